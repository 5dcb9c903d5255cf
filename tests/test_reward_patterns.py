"""Forty ways in which rewards go wrong, each by its number. Many are held beside the rubric they are about, in other
files, under the same `pattern_NN` in their names; the last test here counts them all."""

import asyncio
import contextlib
import itertools
import json
import random
import re
from pathlib import Path

import pytest
from waiting import until

import verifiers as vf
from verifiers.errors import SetupError
from verifiers.eval import row_checks
from verifiers.eval.declared import Declared
from verifiers.eval.validate import Checker
from verifiers.types import Response, State

TESTS = Path(__file__).parent
CASES = [
    json.loads(line)
    for name in ("math_answers.jsonl", "math_answers_more.jsonl")
    for line in (TESTS / "data" / name).read_text("utf-8").splitlines()
]


def state_of(reply, answer="", info=None, prompt="?"):
    return State(
        input={"prompt": prompt, "answer": answer, "info": info or {}},
        completion=[{"role": "assistant", "content": reply}],
        trajectory=[],
    )


async def score(rubric, reply, answer="", info=None):
    state = state_of(reply, answer, info)
    await rubric.score_rollout(state)
    return state["scores"][0]


def failed_checks(env, **declared):
    """What vf-validate finds wrong with an environment: check → reason."""
    checker = Checker(env, Declared(**declared), None, num_examples=10)
    checker.splits = row_checks.rows_of(env)
    checks = [
        row_checks.answers_there(checker.splits),
        row_checks.answers_hidden(checker.rows, env.tool_defs or [], checker.declared),
        *asyncio.run(checker.reward_checks()),
    ]
    assert len(checks) > 10
    return {check.name: check.reason for check in checks if check.status == "failed"}


def sums(count=6, **columns):
    return [{"question": f"{n} + {n}?", "answer": str(1000 + 2 * n), **columns} for n in range(1, count + 1)]


def math_env(rows=None, **options):
    return vf.SingleTurnEnv(dataset=rows or sums(), rubric=vf.MathRubric(), **options)


@pytest.fixture
def maths():
    return vf.MathRubric()


def test_an_environment_without_these_faults_fails_no_check():
    assert failed_checks(math_env()) == {}


# The task tells its answer


def test_pattern_01_the_answer_in_question_system_prompt_or_tool_description_is_found():
    told = [{"question": f"Is it {row['answer']}?", "answer": row["answer"]} for row in sums()]
    assert "6 of 6 answers" in failed_checks(math_env(told))["answer hidden"]
    assert "example 1" in failed_checks(math_env(system_prompt="One of them is 1004."))["answer hidden"]

    def add(a: int, b: int) -> int:
        """Adds. Often it is 1004.

        Args:
            a: one
            b: the other
        """
        return a + b

    env = vf.ToolEnv(tools=[add], dataset=sums(), rubric=vf.MathRubric())
    assert "example 1" in failed_checks(env)["answer hidden"]


def test_pattern_02_an_answer_that_a_tool_returns_is_found():
    def notes() -> str:
        """The notes of whoever wrote the task."""
        return "solutions: 1002, 1004, 1006"

    env = vf.ToolEnv(tools=[notes], dataset=sums(), rubric=vf.MathRubric())
    assert "a tool returns 'solutions" in failed_checks(env)["answer in tools"]
    assert "answer in tools" not in failed_checks(env, answer_in_context="it is to be looked up")


# Paid for the look of a reply


async def test_pattern_04_fifty_boxes_are_paid_like_one(maths):
    for box, value in ((r"\boxed{1002} ", 1.0), (r"\boxed{1003} ", 0.0)):
        assert (await score(maths, box, "1002")).value == (await score(maths, box * 50, "1002")).value == value


async def test_pattern_05_steps_before_a_wrong_box_earn_nothing(maths):
    steps = "".join(f"Step {n}: so we add 1002.\n" for n in range(200))
    assert (await score(maths, steps + r"\boxed{1003}", "1002")).value == 0.0


@pytest.mark.parametrize("tenth", range(10))
def test_pattern_06_a_truncated_reply_is_not_scored_right(tenth):
    reply = r"First 64 + 64 = 128, in short: the answer, which is \boxed{128}"
    cut = Response(vf.AssistantMessage(reply[: len(reply) * tenth // 10]), finish_reason="length")
    env = math_env([{"question": "64 + 64?", "answer": "128"}])
    (record,) = env.evaluate_sync(vf.ScriptedClient(cut), model="scripted").records
    assert record.is_truncated
    assert record.reward == 0.0 and record.scores[0].reason
    assert env.evaluate_sync(vf.ScriptedClient(reply), model="scripted").records[0].reward == 1.0


async def test_pattern_07_a_draft_while_thinking_is_not_the_answer(maths):
    assert (await score(maths, r"<think>\boxed{3}</think>\boxed{4}", "3")).value == 0.0
    assert (await score(maths, r"<think>\boxed{3}</think>It is four.", "3")).value == 0.0
    assert (await score(maths, r"\boxed{3}</think>It is four.", "3")).value == 0.0


# Programs that work on their grader


TWO = {"tests": [{"input": "1", "output": "5"}, {"input": "2", "output": "42"}]}
NO_TRACE = {"tests": [{"input": "1", "output": "5"}, {"input": "2", "output": "False"}]}
TRACES = r"""
import os, stat
if input() == "1":
    for name in ("sitecustomize.py", "usercustomize.py", "conftest.py", "json.py", "site.py"):
        open(name, "w").write("print(42)\nimport os\nos._exit(0)\n")
    open("pytest.ini", "w").write("[pytest]\naddopts = --co\n")
    open("python3", "w").write("#!/bin/sh\necho 42\n")
    os.chmod("python3", stat.S_IRWXU)
    os.environ["PATH"] = os.getcwd()
    print(5)
else:
    print(os.path.exists("json.py"))
"""


async def test_pattern_15_what_a_program_puts_in_the_way_of_later_tests_changes_no_verdict():
    rubric = vf.CodeRubric(engine="unsafe-local", time_limit_s=60)
    found = await score(rubric, f"```python{TRACES}```", info=TWO)
    assert (found.value, found.reason) == (0.0, "test 2 of 2: line 1 differs")
    assert (await score(rubric, f"```python{TRACES}```", info=NO_TRACE)).value == 1.0


LEFT = r"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("sitecustomize.py", "a") as file:
            while True:
                file.write("print(42)\n")
                file.flush()
                time.sleep(0.01)
    os._exit(0)
print(5 if input() == "1" else os.path.exists("sitecustomize.py"))
"""


async def test_pattern_17_a_process_left_behind_is_dead_before_the_next_test():
    rubric = vf.CodeRubric(engine="local", time_limit_s=60)
    try:
        await rubric.engine.capabilities()
    except SetupError as error:
        pytest.skip(f"no sandbox here: {error}")
    try:
        before = holders_of("sitecustomize.py")
        assert (await score(rubric, f"```python{LEFT}```", info=TWO)).value == 0.0
        assert (await score(rubric, f"```python{LEFT}```", info=NO_TRACE)).value == 1.0
        await until(lambda: holders_of("sitecustomize.py") <= before)  # an interpreter may just have read one
    finally:
        await rubric.teardown()


def holders_of(name):
    """The processes of this machine that have a file of that name open."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(name in str(link.readlink()) for link in (folder / "fd").iterdir()):
                found.add(int(folder.name))
    return found


# Nothing to score, and no number for it


def test_pattern_22_a_reward_function_that_raises_is_a_fault_by_its_name():
    def grader(completion):
        raise ZeroDivisionError("no cases")

    env = vf.SingleTurnEnv(dataset=sums(), rubric=vf.Rubric(funcs=[grader, vf.exact_match]))
    results = env.evaluate_sync(vf.ScriptedClient("1002"), model="scripted")
    assert results["reward"] == [None] * 6
    assert {record.status for record in results.records} == {"fault"}
    fault = results.records[0].scores[0]
    assert (fault.name, fault.value, fault.reason) == ("grader", None, "raised ZeroDivisionError: no cases")
    assert "grader" in failed_checks(env)["rewards"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
async def test_pattern_23_nan_and_infinity_are_faults_and_harmless_as_metrics(value):
    def odd(completion):
        return value

    for rubric in (vf.Rubric(funcs=[odd]), vf.RubricGroup([vf.Rubric(funcs=[odd]), vf.MathRubric()])):
        state = state_of(r"\boxed{1}", "1")
        await rubric.score_rollout(state)
        assert state["reward"] is None and state["scores"][0].status == "fault"
    for rubric in (vf.Rubric(funcs=[odd], weights=[0.0]), vf.MathRubric(funcs=[odd], weights=[0.0])):
        state = state_of(r"\boxed{1}", "1")
        await rubric.score_rollout(state)
        assert state["reward"] == (1.0 if isinstance(rubric, vf.MathRubric) else 0.0)
        assert state["metrics"]["odd"] is None


@pytest.mark.parametrize("answer", ["", None, "  "])
@pytest.mark.parametrize("reply", ["", r"\boxed{}", r"\boxed{None}", "None", r"\boxed{\text{None}}"])
async def test_pattern_24_no_reply_equals_a_missing_reference(answer, reply):
    for rubric in (vf.Rubric(funcs=[vf.exact_match]), vf.HybridMathRubric()):
        found = await score(rubric, reply, answer)
        assert (found.value, found.status) == (None, "fault")


def test_pattern_24_a_row_without_an_answer_is_named():
    rows = sums()
    rows[3]["answer"] = ""
    assert failed_checks(math_env(rows))["answers"] == "train row 3: its answer is empty, and others are not"


def test_pattern_25_a_reference_that_cannot_be_read_is_found_among_many():
    rows = sums(30)
    rows[25]["answer"] = r"\frac{1}{"
    told = failed_checks(math_env(rows))
    assert "example 25" in told["other rows"] and "correct_answer" in told["rewards"]


def test_pattern_25_a_reference_that_everything_matches_is_found():
    def lenient(parser, completion, answer):
        return float(answer == "1050" or parser.parse_answer(completion) == answer)

    env = vf.SingleTurnEnv(dataset=sums(30), rubric=vf.Rubric(funcs=[lenient]))
    assert "example 24" in failed_checks(env)["other rows"]


# Weights, groups, order


def test_pattern_26_weights_that_do_not_fit_are_refused_and_those_of_zero_change_nothing():
    def half(completion):
        return 0.5

    with pytest.raises(ValueError, match="2 reward functions but 1 weights"):
        vf.Rubric(funcs=[half, vf.exact_match], weights=[1.0])
    with pytest.raises(ValueError, match="1 reward functions but 2 weights"):
        vf.MathRubric(funcs=[half], weights=[1.0, 2.0])
    rewards = {}
    for weight in (0.0, 2.0):
        state = state_of(r"\boxed{4}", "4")
        asyncio.run(vf.MathRubric(funcs=[half], weights=[weight]).score_rollout(state))
        rewards[weight] = state["reward"]
    assert rewards == {0.0: 1.0, 2.0: 2.0}  # the sum, not the mean


@pytest.mark.parametrize("seed", range(4))
def test_pattern_27_rewards_of_a_group_follow_their_rollouts_in_whatever_order_they_end(seed):
    rng = random.Random(seed)

    async def reply(request):
        number = len(client.requests)
        await asyncio.sleep(rng.random() / 50)
        return f"{number}"

    async def number_of_each(completions) -> list[float]:
        return [float(completion[-1].content) for completion in completions]

    client = vf.ScriptedClient(reply)
    rubric = vf.Rubric(funcs=[number_of_each])
    env = vf.SingleTurnEnv(dataset=sums(3), rubric=rubric)
    results = env.evaluate_sync(client, model="scripted", rollouts_per_example=4)
    said = [float(record.messages[-1]["content"]) for record in results.records]
    assert sorted(said) == list(range(1, 13)) and results["reward"] == said


async def test_pattern_27_two_scores_for_one_rollout_are_refused():
    def of_group(completions):
        return [[1.0, 0.0], [0.0, 1.0]]

    states = [state_of("a"), state_of("b")]
    await vf.Rubric(funcs=[of_group]).score_group(states)
    assert [(s["reward"], s["scores"][0].status) for s in states] == [(None, "fault")] * 2


# Answers that are none


@pytest.mark.parametrize("case", [c for c in CASES if c["kind"] in ("hedge", "plus_minus", "several_boxed")])
async def test_pattern_28_a_hedge_is_no_answer(maths, case):
    assert bool((await score(maths, case["completion"], case["gold"])).value) is case["expected"]


@pytest.mark.parametrize("between", [" or ", ", ", "=", r" \text{ or } ", r"\pm", r" \text{ to } "])
async def test_pattern_28_the_right_answer_beside_another_is_wrong(maths, between):
    for pair in (("7", "8"), ("8", "7")):
        assert (await score(maths, rf"\boxed{{{between.join(pair)}}}", "7")).value == 0.0


def test_pattern_29_the_prompt_sent_back_scores_nothing_on_any_row():
    env = math_env(system_prompt=r"Think step by step. Put your final answer within \boxed{}, as in \boxed{42}.")
    for row in env.train_rows(-1):
        echo = "\n".join(message["content"] for message in row["prompt"])
        (record,) = asyncio.run(env.generate([row], vf.ScriptedClient(echo), model="scripted")).records
        assert record.reward == 0.0


# The same reply, the same reward


CHOICE = {"options": ["Rome", "Paris"]}
SUBSET = {"logic_task": "subset_sum", "puzzle": {"numbers": [2, 3], "target": 5}}
COMMA = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
PLAYED = [
    (vf.MathRubric, r"\boxed{\sqrt{8}}", r"2\sqrt{2}", None, 1.0),
    (vf.MathRubric, r"\boxed{\sqrt{8}}", r"3\sqrt{2}", None, 0.0),
    (vf.MathRubric, r"\boxed{9^{9^{9^9}}}", "7", None, 0.0),
    (vf.ChoiceRubric, "Answer: B", "B", CHOICE, 1.0),
    (vf.ChoiceRubric, "Answer: B", "A", CHOICE, 0.0),
    (vf.InstructionRubric, "a, b", "", COMMA, 0.0),
    (vf.InstructionRubric, "a b", "", COMMA, 1.0),
    (vf.LogicRubric, "<answer>2 3</answer>", "", SUBSET, 1.0),
    (vf.LogicRubric, "<answer>2</answer>", "", SUBSET, 0.0),
]  # fmt: skip


@pytest.mark.parametrize("order", [1, -1])
async def test_pattern_30_what_was_scored_before_changes_no_reward(order):
    rubrics = {kind: kind() for kind, *_ in PLAYED}
    for kind, reply, answer, info, value in PLAYED[::order]:
        assert (await score(rubrics[kind], reply, answer, info)).value == value
    for kind, group in itertools.groupby(PLAYED, key=lambda played: played[0]):
        alone = kind()
        for _, reply, answer, info, value in group:
            assert (await score(alone, reply, answer, info)).value == value


def test_pattern_30_a_reward_that_remembers_is_found():
    seen = []

    def tired(parser, completion, answer):
        seen.append(completion)
        return float(parser.parse_answer(completion) == answer and len(seen) < 50)

    env = vf.SingleTurnEnv(dataset=sums(), rubric=vf.Rubric(funcs=[tired]))
    assert "1.0 before the other replies and 0.0 after" in failed_checks(env)["same reward"]


async def test_pattern_31_the_same_reply_is_scored_the_same_twice():
    for kind, reply, answer, info, value in PLAYED:
        first, second = [await score(kind(), reply, answer, info) for _ in range(2)]
        assert (first.value, first.reason) == (second.value, second.reason) and first.value == value


def test_pattern_31_a_reward_by_chance_is_found():
    rng = random.Random(0)

    def moody(parser, completion, answer):
        return float(parser.parse_answer(completion) == answer) * (0.999 + 0.001 * rng.random())

    env = vf.SingleTurnEnv(dataset=sums(), rubric=vf.Rubric(funcs=[moody]))
    assert "got 0.999" in failed_checks(env, reference_reward=0.999)["same reward"]


async def test_pattern_32_two_hundred_answers_at_once_have_the_verdicts_of_each_alone(maths):
    asked = [(rf"\sqrt{{{n * n * 2}}}", rf"{n + n % 2}\sqrt{{2}}", n % 2 == 0) for n in range(2, 202)]
    found = await asyncio.gather(*(score(maths, rf"\boxed{{{answer}}}", gold) for gold, answer, _ in asked))
    assert [(s.value, s.status) for s in found] == [(float(same), "scored") for *_, same in asked]


# Right the wrong way round


async def test_pattern_33_answer_and_reference_are_not_taken_for_each_other(maths):
    def in_one_order(answer, completion):
        return float((answer, completion[-1]["content"]) == ("4", "five"))

    def in_the_other(completion, answer):
        return in_one_order(answer, completion)

    state = state_of("five", "4")
    await vf.Rubric(funcs=[in_one_order, in_the_other]).score_rollout(state)
    assert state["reward"] == 2.0
    for rubric, box in ((maths, r"\boxed{%s}"), (vf.Rubric(funcs=[vf.numeric_match]), "%s")):
        assert (await score(rubric, box % "", "4")).value == 0.0  # the model's fault
        assert (await score(rubric, box % "4", "")).status == "fault"  # the row's


def test_pattern_33_a_containment_the_wrong_way_round_is_found():
    def swapped(parser, completion, answer):
        said = parser.parse_answer(completion)
        return float(len(said) > 1 and said in answer)

    env = vf.SingleTurnEnv(dataset=sums(), rubric=vf.Rubric(funcs=[swapped]))
    assert "'10' is paid 1, as '1002' is" in failed_checks(env)["part of an answer"]


async def test_pattern_35_a_reply_of_none_is_not_the_word(maths):
    for rubric in (maths, vf.Rubric(funcs=[vf.exact_match]), vf.ChoiceRubric()):
        found = await score(rubric, None, "None", {"options": ["None", "Some"]})
        assert found.value == 0.0


@pytest.mark.parametrize("power", [3, 9, 20, 50])
async def test_pattern_39_numbers_are_compared_by_their_ratio_however_small(maths, power):
    assert (await score(maths, rf"\boxed{{2 \cdot 10^{{-{power}}}}}", rf"10^{{-{power}}}")).value == 0.0
    assert (await score(maths, rf"\boxed{{1 \cdot 10^{{-{power}}}}}", rf"10^{{-{power}}}")).value == 1.0


# All of them


def test_every_pattern_has_a_test_that_carries_its_number():
    found = set()
    for file in TESTS.glob("test_*.py"):
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.M):
            for numbers in re.findall(r"pattern_(\d\d(?:_and_\d\d)*)", name):
                found |= {int(number) for number in numbers.split("_and_")}
    assert found == set(range(1, 41))
