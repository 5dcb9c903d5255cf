"""MathRubric: what counts as the same answer, and what happens to answers that are made to stall it."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from waiting import steady

from verifiers.errors import RewardFault
from verifiers.rubrics import MathRubric
from verifiers.rubrics.math_answers import BrokenGold, compare
from verifiers.types import State

DATA = Path(__file__).parent / "data"
CASES, MORE = (
    [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    for name in ("math_answers.jsonl", "math_answers_more.jsonl")
)


@pytest.fixture(scope="module")
def rubric():
    return MathRubric()


async def score(rubric, gold, completion):
    messages = [{"role": "assistant", "content": completion}]
    state = State(input={"prompt": "?", "answer": gold}, completion=messages, trajectory=[])
    await rubric.score_rollout(state)
    return state["scores"][0]


async def same(rubric, gold, answer):
    return (await rubric.compare(gold, answer)).same


@pytest.mark.parametrize("case", CASES + MORE, ids=[case["id"] for case in CASES + MORE])
async def test_case_is_decided_as_expected(rubric, case):
    found = await score(rubric, case["gold"], case["completion"])
    assert found.name == "correct_answer"
    assert bool(found.value) is case["expected"]
    has_gold = case["gold"] not in (None, "")
    assert (found.status == "scored") is has_gold


RIGHT = [
    ("1/3", r"0.\overline{3}"),
    (r"\frac{1}{6}", r"0.1\overline{6}"),
    ("1/3", "0.333333"),
    (r"\sqrt2", "1.414214"),
    ("132_5", r"132_{\text{five}}"),
    (r"3\text{ hours}", r"180\text{ minutes}"),
    (r"10\text{ min}", r"600\text{ sec}"),
    (r"9\text{ m}^2", r"9\text{ square meters}"),
    (r"12\text{ m}", "12 m"),
    ("3", "x=2+1=3"),
    ("B", r"\textbf{(B)}\ 12"),
    (r"1<x\le4", r"4\ge x>1"),
    (r"x\ge2", r"[2,\infty)"),
    ("1234567", r"1\,234\,567"),
    (r"7.5\%", "0.075"),
    (r"\frac{x^2-1}{x-1}", "x+1"),
    (r"x^2+y^2=9", r"2x^2+2y^2=18"),
    (r"2\pm\sqrt3", r"2-\sqrt3, 2+\sqrt3"),
    (r"\cos^2x", r"1-\sin^2 x"),
    (r"3\frac{1}{5}", "3 1/5"),
    (r"-3\frac{1}{5}", "-3.2"),
    (r"\$0.50", r"50\text{ cents}"),
    ("1,2", r"x=1 \text{ or } x=2"),
    (r"\sum_{k=1}^{3} k", "6"),
    (r"\sin 30^\circ", r"\frac12"),
    (r"120^\circ", r"\frac{2\pi}{3}"),
    (r"(-\infty,-1)\cup(1,\infty)", "x<-1 or x>1"),
    (r"x<-1 \text{ or } x>1", r"(-\infty,-1)\cup(1,\infty)"),
    (r"(-\infty,-1)\cup(1,\infty)", "x<-1, x>1"),
    (r"(-\infty,\sqrt2)\cup(2,\infty)", r"x>2 \text{ or } x<\sqrt2"),
    (r"(-\infty,\infty)", "x<3 or x>1"),
    (r"(-\infty,1)\cup(1,\infty)", r"x\ne 1"),
    ("1<x<3", "x>1 and x<3"),
    ("(1,3)", "x>1, x<3"),
    (r"\{1\}\cup[2,3]", r"x=1 \text{ or } 2\le x\le 3"),
    (r"(1,2,3)", r"\begin{pmatrix}1\\2\\3\end{pmatrix}"),
]
WRONG = [
    ("1/3", "0.33"),
    (r"\sqrt2", "1.4142"),
    (r"\frac{1}{3^{70}}", r"\frac{1}{3^{71}}"),
    ("132_5", "132_6"),
    (r"3\text{ hours}", r"3\text{ minutes}"),
    (r"9\text{ m}^2", r"9\text{ m}"),
    (r"\$5", "€5"),
    ("5", "3=5"),
    ("17", "15=16=17"),
    ("3", r"3\pm 1"),
    ("5", "5, 5"),
    ("5", "5 5"),
    ("5", r"5 \text{ is wrong}"),
    ("5", r"\text{the answer is not }5"),
    ("A", "Answer"),
    ("B", r"\text{B or C}"),
    ("D", "DC"),
    ("|x|", "x"),
    ("x=5", "y=5"),
    (r"-3\frac{1}{5}", "-2.8"),
    ("(1,2)", "[1,2]"),
    ("12:30", "12.30"),
    (r"120^\circ", r"\frac{\pi}{3}"),
    (r"\pi^\circ", r"\pi"),
    (r"(-\infty,-1)\cup(1,\infty)", r"x<-1 \text{ or } x\ge1"),
    (r"(-\infty,-1)\cup(1,\infty)", "x<-1 and x>1"),
    (r"(-\infty,-1)\cup(1,\infty)", "x<-1 or y>1"),
    (r"(-\infty,-1)\cup(1,\infty)", "x>-1, x<1"),
    ("x>3", "x>3, x>2"),
    ("x>2", "x>3 or x>2"),
    ("(1,3)", "x>1 or x<3"),
    (r"(-\infty,1)\cup(3,\infty)", "x<1 or x>3 or x=2"),
    ("x<1 or x>3", "x<3 or x>1"),
    ("10^{-9}", r"\sin\pi"),
    (r"\infty", "10^{100}"),
    (r"\frac{1}{2}", r"\frac{1}{2"),
]


@pytest.mark.parametrize(("gold", "answer"), RIGHT)
async def test_other_notation_of_the_same_answer_is_right(rubric, gold, answer):
    assert await same(rubric, gold, answer) is True


@pytest.mark.parametrize(("gold", "answer"), WRONG)
async def test_another_answer_is_wrong_however_close(rubric, gold, answer):
    assert await same(rubric, gold, answer) is False


@pytest.mark.parametrize("gold", ["", "  ", r"\boxed{}", "$$", r"\frac{1}{", None, [5]])
@pytest.mark.parametrize("completion", [r"\boxed{}", r"\boxed{None}", r"\boxed{\frac{1}{}}", r"\boxed{5}", ""])
async def test_pattern_24_and_25_gold_that_is_no_answer_is_a_fault_and_never_matched(rubric, gold, completion):
    found = await score(rubric, gold, completion)
    assert (found.value, found.status, found.side) == (None, "fault", "reward")


async def test_unfinished_reasoning_holds_no_answer_and_says_so(rubric):
    assert (await score(rubric, "3", r"<think>maybe \boxed{3}")).reason == "reasoning not finished"
    assert (await score(rubric, "3", r"<think>maybe \boxed{3}")).value == 0.0
    assert (await score(rubric, "3", r"so it is three</think>\boxed{3}")).value == 1.0
    assert (await score(rubric, "3", r"\boxed{3}")).value == 1.0


async def test_pattern_06_cutting_a_right_reply_before_its_box_closes_is_never_right(rubric):
    reply = r"We add 64 and 64, which is 128. So the answer is \boxed{128}"
    for end in range(len(reply)):
        assert (await score(rubric, "128", reply[:end])).value == 0.0


STALLING = [
    ("7", "9^{9^{9^{9}}}"),
    ("2", "100000000!"),
    ("2", "((9^{9})^{9})!"),
    ("100001!", "100000!"),
    ("2^{99999999}", "3^{99999999}"),
    ("1", "7" * 20_000),
    ("13", "(" * 3_000 + "14" + ")" * 3_000),
    ("2", r"\sqrt{" * 200 + "x" + "}" * 200),
    (r"\frac{\pi^2}{6}", r"\sum_{n=1}^{1000000000} \frac{1}{n^2}"),
    ("1", "x^{" * 300 + "x" + "}" * 300),
    ("1", "+".join(["x^{99}"] * 1000)),
]


async def test_pattern_37_stalling_answers_are_wrong_within_seconds_and_the_next_answer_is_right(rubric):
    await same(rubric, r"\sum_{k=1}^{3} k", "6")  # the start of the workers is not what is timed here
    for gold, answer in STALLING:
        began = time.monotonic()
        assert await same(rubric, gold, answer) is False, answer[:40]
        assert time.monotonic() - began < 60, answer[:40]
        began = time.monotonic()
        assert await same(rubric, r"\sqrt{8}", rf"\sqrt{{{8 + len(answer)} - {len(answer)}}}") is True
        assert time.monotonic() - began < 60


async def test_limit_hit_by_the_answer_is_wrong_with_the_reason_in_the_score(rubric):
    found = await score(rubric, r"\frac{\pi^2}{6}", r"\boxed{\sum_{n=1}^{2000000000} \frac{1}{n^2}}")
    assert (found.value, found.status) == (0.0, "scored")
    assert found.reason.startswith("grading took more than")


@steady(0.2)
async def test_hundred_cases_at_once_do_not_stop_the_event_loop():
    rubric, gaps = MathRubric(), []

    def now():
        """Without the time in which this thread only waited for a core."""
        waited = Path("/proc/thread-self/schedstat")
        return time.perf_counter() - (int(waited.read_text().split()[1]) / 1e9 if waited.exists() else 0)

    async def beat():
        last = now()
        while True:
            await asyncio.sleep(0.005)
            gaps.append(now() - last)
            last = now()

    heart, began = asyncio.create_task(beat()), now()
    await asyncio.gather(*(score(rubric, case["gold"], case["completion"]) for case in CASES[:100]))
    heart.cancel()
    took_s = now() - began
    assert max(gaps) < max(0.25, took_s / 4)  # 0.03 s on a quiet machine


async def test_exact_match_costs_microseconds(rubric):
    completion = [{"role": "assistant", "content": "Some words. " * 50 + r"\boxed{42}"}]
    began = time.process_time()
    for _ in range(2_000):
        assert await rubric.correct_answer(rubric.parser, completion, "42") == 1.0
    assert (time.process_time() - began) / 2_000 < 100e-6


def test_verdicts_are_the_same_in_loop_after_loop_and_in_other_threads():
    rubric, found = MathRubric(), []

    def work():
        found.append(asyncio.run(same(rubric, r"\sqrt{50}", r"5\sqrt{2}")))

    for _ in range(2):
        work()
        rubric._cache.clear()
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


async def test_equal_questions_are_graded_once(rubric):
    rubric = MathRubric()
    found = await asyncio.gather(*(rubric.compare(r"\sqrt{18}", r"3\sqrt{2}") for _ in range(20)))
    assert len({id(comparison) for comparison in found}) == 1


async def test_own_parser_and_functions_are_kept():
    from verifiers.parsers import XMLParser

    def length(completion):
        return float(len(completion))

    rubric = MathRubric(funcs=[length], weights=[0.5], parser=XMLParser(["answer"]), max_workers=3)
    assert (rubric._get_reward_func_names(), rubric.weights) == (["length", "correct_answer"], [0.5, 1.0])
    completion = [{"role": "assistant", "content": "<answer>0.5</answer>"}]
    assert await rubric.correct_answer(rubric.parser, completion, "1/2") == 1.0


async def test_fault_of_the_data_is_raised_to_who_calls_directly(rubric):
    with pytest.raises(RewardFault, match="empty"):
        await rubric.correct_answer(rubric.parser, r"\boxed{1}", "")


def test_comparison_without_workers_decides_or_says_it_cannot():
    assert compare("10^{30}+1", "10^{30}").same is False
    assert compare("x+1", "1+x").same is None
    with pytest.raises(BrokenGold):
        compare("", "")


def test_process_that_graded_ends_in_silence():
    program = (
        "import asyncio\nfrom verifiers.rubrics import MathRubric\n"
        r"print(asyncio.run(MathRubric().compare(r'\sqrt{8}', r'2\sqrt2')).same)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_scoring_exact_answers_loads_no_algebra():
    program = (
        "import asyncio, sys\nfrom verifiers.rubrics import MathRubric\n"
        r"print(asyncio.run(MathRubric().compare(r'\frac12', '0.5')).same)"
        "\nprint({'sympy', 'mpmath', 'math_verify', 'openai', 'aiohttp'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\nset()\n"
