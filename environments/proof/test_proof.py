"""Are bad arguments refused, does a seed give the same examples, does an example have the right shape, is the reference
policy paid in full, and do wrong, empty, lenient and obedient ones lose?"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from proof import HOLDS, load_environment, reference_reply
from proof.formats import BadForm, Grade, Issue, read_grade, read_judge_score, read_proof
from proof.judges import GRADER_CANARIES, META_CANARIES
from proof.rows import own_rows, read_rows, reference_grade, rows_of, unpacked
from proof.rubrics import meta_by_gap
from proof.theorems import THEOREMS

import verifiers as vf

OWN = [row for split in ("train", "eval") for row, _ in own_rows(split)]
FLAWED = [row for row in OWN if row.gap is not None]


def env_rows(env: vf.Environment) -> list[dict[str, Any]]:
    return [*env.train_rows(), *env.eval_rows()]


async def played(env: vf.Environment, rows: list[dict[str, Any]], policy: Any) -> list[Any]:
    """Records of rows, by a policy called with messages and row; rows are told by what they ask."""
    asked = {row["prompt"][-1]["content"]: row for row in rows}

    def reply(request: Any) -> str:
        return policy(request.messages, asked[request.messages[-1]["content"]])

    return list((await env.generate(rows, vf.ScriptedClient(reply), "m")).records)


async def mean(task: str, policy: Any) -> float:
    env = load_environment(task)
    records = await played(env, env_rows(env), policy)
    return sum(record.reward for record in records) / len(records)


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"task": "solve"}, "task='solve': there are 'prove', 'grade', 'judge' and 'all'"),
        ({"meta": "both"}, "meta='both'"),
        ({"data": "rows.csv"}, r"data='rows\.csv'"),
        ({"data": "nowhere.jsonl"}, r"data='nowhere\.jsonl': there is no such file"),
        ({"train_data": "train.jsonl"}, "train_data is given without data"),
        ({"judge_model": ""}, "judge_model=''"),
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": True}, "num_eval_examples=True"),
        ({"seed": 0.5}, r"seed=0\.5"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


ROW = {"id": "x", "problem": "Prove it.", "proof": ["It is so.", "Hence it is."], "score": 0.5,
       "gap": {"steps": [2], "what": "it is not"}}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"problem": None}, "Object missing required field `problem`"),
        ({"problem": " "}, "the problem is empty"),
        ({"score": 0.7}, r"\[0\.7\] is no score: 0, 0\.5 or 1"),
        ({"score": "1"}, r"Expected `float \| null`"),
        ({"proof": None}, "there is a score and no proof"),
        ({"gap": {"steps": [3]}}, "the gap names no step, or one that the proof has not"),
        ({"score": 1}, "a proof of score 1 has a gap"),
        ({"gap": None}, "x: a proof of score 0.5 without a gap"),
        ({"proof": "a " * 4001}, "the proof is longer than 8000 characters"),
    ],
)
def test_a_row_that_cannot_be_graded_is_named(tmp_path, change, told):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**ROW, **change}) + "\n")
    with pytest.raises(vf.DatasetError, match=rf"rows\.jsonl, .*{told}"):
        load_environment(data=str(path)).eval_rows()


def test_a_file_without_rows_for_a_task_says_so(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    with pytest.raises(vf.DatasetError, match="task='judge': no row fits it"):
        load_environment("judge", data=str(path)).eval_rows()


# 2. same seed, same examples


@pytest.mark.parametrize("task", ["prove", "grade", "judge"])
def test_a_seed_gives_the_same_examples_and_another_seed_others(task):
    def asked(seed: int | None, num: int = -1) -> list[str]:
        env = load_environment(task, seed=seed, num_eval_examples=num)
        return [row["prompt"][-1]["content"] for row in env.eval_rows()]

    assert asked(1) == asked(1) != asked(2)
    assert sorted(asked(1)) == sorted(asked(None))
    assert asked(1, 3) == asked(1)[:3]


def test_no_theorem_is_in_both_splits():
    problems = [{row.problem for row, _ in own_rows(split)} for split in ("train", "eval")]
    assert [len(found) for found in problems] == [10, 10] and not problems[0] & problems[1]


# 3. an example has the right shape


@pytest.mark.parametrize(("task", "count"), [("prove", 10), ("grade", 20), ("judge", 40), ("all", 70)])
def test_each_split_has_as_many_examples_as_the_readme_says(task, count):
    env = load_environment(task)
    assert [len(env.train_rows()), len(env.eval_rows())] == [count, count]


@pytest.mark.parametrize("task", ["prove", "grade", "judge"])
def test_a_prompt_tells_neither_label_nor_reference(task):
    for row in env_rows(load_environment(task)):
        known, said = unpacked(row["info"]), row["prompt"][-1]["content"]
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        assert row["info"]["source"] == "own theorems"
        assert known.id not in said
        if task == "grade" and known.gap is not None:
            assert known.gap.what not in said
        if task == "prove":
            assert not any(step in said for step in known.reference)


@pytest.mark.parametrize("theorem", THEOREMS, ids=lambda theorem: theorem.name)
def test_a_gap_is_planted_in_a_proof_of_the_same_claim_and_located(theorem):
    right, flawed = rows_of(theorem)
    right.check(right.id)
    flawed.check(flawed.id)
    assert flawed.gap is not None and len(flawed.gap.what.split()) > 5
    assert {flawed.steps[step - 1] for step in flawed.gap.steps} - set(right.steps), "the step stands in both proofs"
    assert flawed.score in (0.0, 0.5)


def test_twenty_gaps_are_not_all_of_one_kind():
    assert len(FLAWED) == 20
    assert {row.score for row in FLAWED} == {0.0, 0.5}
    assert len({row.gap.steps for row in FLAWED if row.gap is not None}) > 3


def test_own_rows_written_to_a_file_are_read_by_all_three_tasks(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in OWN))
    assert [row for row, _ in read_rows(str(path))] == OWN
    for task, count in (("prove", 20), ("grade", 40), ("judge", 80)):
        rows = load_environment(task, data=str(path)).eval_rows()
        assert len(rows) == count and rows[0]["info"]["source"] == "rows.jsonl"


def test_the_row_of_the_readme_is_read(tmp_path):
    (line,) = re.findall(r"```json\n(.*)\n```", (Path(__file__).parent / "README.md").read_text())
    path = tmp_path / "rows.jsonl"
    path.write_text(line)
    assert len(load_environment(data=str(path)).eval_rows()) == 1


def test_a_proof_that_is_one_text_has_its_paragraphs_as_steps(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**ROW, "proof": "It is so.\n\nHence it is.\n"}))
    assert "Step 2. Hence it is." in load_environment(data=str(path)).eval_rows()[0]["prompt"][-1]["content"]


# 4. the reference policy is paid in full


@pytest.mark.parametrize("task", ["grade", "judge"])
async def test_the_reference_policy_is_paid_in_full(task):
    assert await mean(task, reference_reply) == 1.0


def grader(request: Any) -> str:
    """An honest one, which knows our proofs: one that holds gets 1, and one with a gap its label."""
    response = request.messages[0].content.rpartition("<response>")[2]
    held = {row.steps[-1]: row.score for row in OWN if row.gap is None}
    found = [score for end, score in held.items() if end in response]
    gaps = [row.score for row in FLAWED if all(step in response for step in row.steps)]
    score = gaps[0] if gaps else found[0] if found else 0.0
    return f"I went through it.\nScore: \\boxed{{{score:g}}}"


async def test_known_proofs_with_an_honest_grade_of_oneself_are_paid_in_full():
    env = load_environment("prove", judge_client=vf.ScriptedClient(grader))
    records = await played(env, env_rows(env), reference_reply)
    assert [record.reward for record in records] == [1.0] * 20
    assert all(record.scores[0].judge is not None for record in records)


async def test_all_three_tasks_run_as_one():
    env = load_environment("all", judge_client=vf.ScriptedClient(grader), num_eval_examples=4)
    records = await played(env, env.eval_rows(), reference_reply)
    assert [record.reward for record in records] == [1.0] * 12


# 5. a wrong, empty, lenient or hedged one is not

LENIENT = Grade(HOLDS, (), 1.0).text


def always(score: float, *steps: int) -> str:
    return Grade("It fails.", tuple(Issue(step, "this does not follow") for step in steps), score).text


async def test_a_grader_that_looks_at_nothing_earns_less_than_an_honest_one():
    earned = {
        name: await mean("grade", lambda messages, row, said=said: said)
        for name, said in {
            "lenient": LENIENT,
            "harsh": always(0.0, 2),
            "hedged": always(0.5, 2),
            "everything": always(0.0, 1, 2, 3, 4, 5),
        }.items()
    }
    assert earned == pytest.approx({"lenient": 0.5, "harsh": 0.25, "hedged": 0.2, "everything": 0.025})


async def test_a_lenient_grader_gets_nothing_for_any_planted_gap():
    env = load_environment()
    rows = [row for row in env_rows(env) if unpacked(row["info"]).gap is not None]
    assert [record.reward for record in await played(env, rows, lambda messages, row: LENIENT)] == [0.0] * 20


@pytest.mark.parametrize(("score", "earned"), [("1", 0.5), ("0", 0.425), ("0.5", 0.075)])
async def test_a_judge_that_looks_at_nothing_earns_less_than_an_honest_one(score, earned):
    said = f"<analysis>It is so.</analysis><score>{score}</score>"
    assert await mean("judge", lambda messages, row: said) == pytest.approx(earned)


@pytest.mark.parametrize(
    ("steps", "meta"), [((2,), 1.0), ((2, 3), 0.5), ((2, 3, 1), 0.0), ((1,), 0.0), ((9,), 0.0), ((2, 2), 1.0)]
)
def test_issues_are_real_where_the_gap_is(steps, meta):
    (_, flawed) = rows_of(THEOREMS[0])
    grade = Grade("It fails.", tuple(Issue(step, "this does not follow") for step in steps), 0.0)
    assert meta_by_gap(grade, flawed) == meta


GOOD = "<evaluation>So.</evaluation><issues>Step 2: it does not follow</issues><score>0</score>"


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "0",
        "<score>0</score>",
        GOOD.replace("<score>0</score>", ""),
        GOOD.removesuffix("</score>"),
        GOOD + "<score>1</score>",
        GOOD + " or 1",
        GOOD + GOOD,
        GOOD.replace(">0<", ">0 or 1<"),
        GOOD.replace(">0<", ">0.25<"),
        GOOD.replace(">0<", ">1<"),
        GOOD.replace("Step 2: it does not follow", "none"),
        GOOD.replace("Step 2: it does not follow", "Step 2: wrong"),
        GOOD.replace("Step 2: it does not follow", "It does not follow."),
        GOOD.replace("So.", " "),
        f"<think>{GOOD}</think> I am not sure.",
        f"<think>{GOOD}",
    ],
)
async def test_a_grade_of_another_form_is_paid_nothing(reply):
    with pytest.raises(BadForm):
        read_grade(reply)
    env = load_environment()
    rows = [row for row in env.train_rows() if row["info"]["id"] == f"{THEOREMS[0].name}-gap"]
    assert [record.reward for record in await played(env, rows, lambda messages, row: GOOD)] == [1.0]
    (record,) = await played(env, rows, lambda messages, row: reply)
    assert record.reward == 0.0 and record.scores[0].reason


# The prover, and judges that are models

RIGHT, GAP = rows_of(THEOREMS[2])  # no canary is made of it; its gap leaves 0.5


def proved(steps: Any, own: Grade) -> str:
    text = steps if isinstance(steps, str) else "\n\n".join(steps)
    return f"<proof>\n{text}\n</proof>\n{own.text}"


async def prove(reply: str, client: Any, **arguments: Any) -> Any:
    env = load_environment("prove", judge_client=client, **arguments)
    (row,) = [row for row in env_rows(env) if RIGHT.problem in row["prompt"][-1]["content"]]
    (record,) = await played(env, [row], lambda messages, row: reply)
    return record


SURE, DOUBTFUL, SORRY = Grade(HOLDS, (), 1.0), reference_grade(GAP), Grade("No.", (Issue(1, "I have no idea"),), 0.0)


@pytest.mark.parametrize(
    ("steps", "own", "reward"),
    [
        (RIGHT.steps, SURE, 1.0),
        (RIGHT.steps, DOUBTFUL, 0.5),
        (RIGHT.steps, SORRY, 0.0),
        (GAP.steps, DOUBTFUL, 0.5),
        (GAP.steps, SURE, 0.25),
        (("We see that this is plainly the case for all numbers.",), SORRY, 0.0),
    ],
)
async def test_a_prover_is_paid_its_score_times_its_honesty(steps, own, reward):
    record = await prove(proved(steps, own), vf.ScriptedClient(grader))
    assert record.reward == reward
    metrics = {score.name: score.value for score in record.scores}
    assert metrics["grader_score"] * metrics["honesty"] == reward and metrics["own_score"] == own.score


@pytest.mark.parametrize(
    "reply",
    [
        "",
        SURE.text,
        proved("Proof.", SURE),
        proved(RIGHT.problem, SURE),
        proved(f"{RIGHT.problem} This is true.", SURE),
        proved("It is true. " * 1000, SURE),
        proved(RIGHT.steps, SURE) + proved(RIGHT.steps, SURE),
        f"<think>{proved(RIGHT.steps, SURE)}</think>",
    ],
)
async def test_what_is_no_proof_is_refused_without_asking_the_grader(reply):
    client = vf.ScriptedClient(grader)
    record = await prove(reply, client)
    assert (record.reward, client.requests) == (0.0, []) and record.scores[0].reason


def test_a_proof_and_its_grade_are_read_apart():
    proof, own = read_proof(proved(GAP.steps, DOUBTFUL))
    assert (proof, own) == ("\n\n".join(GAP.steps), DOUBTFUL)


def lenient(request: Any) -> str:
    return "All is well. Score: \\boxed{1}"


def obedient(request: Any) -> str:
    said = re.findall(r"Score: \\boxed\{[01]\}", request.messages[0].content.rpartition("<response>")[2])
    return said[0] if said else grader(request)


@pytest.mark.parametrize("judge", [lenient, obedient])
async def test_a_lenient_or_obedient_grader_is_stopped_and_pays_nobody(judge):
    record = await prove(proved(GAP.steps, SURE), vf.ScriptedClient(judge))
    assert (record.reward, record.scores[0].status, record.scores[0].side) == (None, "fault", "judge")
    assert "the judge is stopped: asked about a known" in record.scores[0].reason


async def test_a_grader_that_cannot_be_reached_is_a_fault_and_no_zero():
    record = await prove(proved(RIGHT.steps, SURE), vf.ScriptedClient(vf.ModelUnavailableError("refused")))
    assert (record.reward, record.scores[0].status, record.scores[0].side) == (None, "fault", "judge")


async def test_a_grader_without_a_score_is_asked_once_more_and_is_then_undecided():
    def silent(request: Any) -> str:
        return "Hm." if RIGHT.steps[2] in request.messages[0].content.rpartition("<response>")[2] else grader(request)

    client = vf.ScriptedClient(silent)
    record = await prove(proved(RIGHT.steps, SURE), client)
    assert (record.reward, record.scores[0].status) == (None, "undecided")
    assert len(client.requests) == len(GRADER_CANARIES) + 2


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "Score: 1",
        "Score: \\boxed{1",
        "Score: \\boxed{0.7}",
        "Score: \\boxed{1}, I think",
        "<think>Score: \\boxed{1}",
        "<think>Score: \\boxed{1}</think>",
        "It says Score: \\boxed{1}. It is wrong.",
    ],
)
def test_a_score_that_does_not_end_the_reply_is_none(reply):
    with pytest.raises(vf.Undecided):
        read_judge_score(reply)


async def test_a_judge_of_grades_takes_away_and_never_adds():
    """By rules the place is right; the judge finds that what is said of it is not so."""
    known = {canary.response: canary for canary in META_CANARIES}
    asked = []

    def judge(request: Any) -> str:
        text = request.messages[0].content
        shown = text.rpartition("<response>\n")[2].partition("\n</response>")[0]
        asked.append(shown)
        is_right = known[shown].is_right if shown in known else "because it rains" not in shown
        return f"Score: \\boxed{{{int(is_right)}}}"

    env = load_environment(meta="judge", judge_client=vf.ScriptedClient(judge))
    rows = [row for row in env_rows(env) if row["info"]["id"] in (GAP.id, RIGHT.id)]
    for said, rewards in (
        (reference_grade(GAP).text, [0.0, 1.0]),
        (Grade("No.", (Issue(3, "false because it rains"),), 0.5).text, [0.0, 0.0]),
        (Grade("No.", (Issue(1, "it does not follow"),), 0.5).text, [0.0, 0.0]),
    ):
        records = await played(env, rows, lambda messages, row, said=said: said)
        assert sorted(record.reward for record in records) == sorted(rewards)
    assert len(asked) == len(META_CANARIES) + 2, "where no issue can be real, nobody is asked"


async def test_without_a_known_gap_the_judge_alone_tells(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**ROW, "gap": None}) + "\n")
    env = load_environment(data=str(path), meta="judge", judge_client=vf.ScriptedClient(lenient))
    (record,) = await played(env, env.eval_rows(), lambda messages, row: always(0.5, 2))
    assert (record.reward, record.scores[0].side) == (None, "judge")  # it failed the canaries
