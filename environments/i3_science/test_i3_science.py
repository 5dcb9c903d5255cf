"""Are bad arguments refused, do the public schemas come through, does a seed give the same examples and options, does
the reference answer score full, and does a wrong, empty or hedged one not?"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from i3_science import load_environment, own_questions
from i3_science.references import readable

import verifiers as vf

# made up, with the columns of the public sets and their types
MEGASCIENCE = {
    "question": "A stone falls for 2 s. How fast is it, taking $g = 10$ m/s²?",
    "answer": "It gains 10 m/s in each second, so it is at 20 m/s.",
    "subject": "physics",
    "reference_answer": "20 m/s",
    "source": "textbook_reasoning",
}
GPQA = {
    "Pre-Revision Question": "Which is a noble gas, if any?",
    "Question": "Which is a noble gas?\n",
    "Correct Answer": "neon\n",
    "Incorrect Answer 1": "nitrogen",
    "Incorrect Answer 2": "oxygen",
    "Incorrect Answer 3": "hydrogen",
    "Explanation": "Its shell is full.",
    "Subdomain": "Chemistry (general)",
    "High-level domain": "Chemistry",
    "Record ID": "rec0",
    "Writer's Difficulty Estimate": "Easy",
}
MMLU_PRO = {
    "question_id": 70,
    "question": "How many bits are a byte?",
    "options": ["1", "2", "4", "6", "8", "10", "12", "16", "32", "64"],
    "answer": "E",
    "answer_index": 4,
    "cot_content": "",
    "category": "computer science",
    "src": "made up",
}
HLE = {
    "id": "0123456789abcdef01234567",
    "question": "How many corners has a cube?",
    "image": "",
    "image_preview": None,
    "answer": "8",
    "answer_type": "exactMatch",
    "author_name": "A. Author",
    "rationale": "Count them.",
    "rationale_image": None,
    "raw_subject": "Geometry",
    "category": "Math",
    "canary": "",
}


def judging(request: vf.ModelRequest) -> str:
    """Accepts two responses in other words than the reference's, one of them a canary's, and one letter."""
    response = request.messages[0].content.partition("<response>")[2].partition("</response>")[0].strip()
    accepts = response in ("There are 42 balls.", "mitochondria", "eight", "B")
    return f"Final judgment: \\boxed{{{'A' if accepts else 'B'}}}"


def judged() -> dict[str, Any]:
    return {"judge_model": "judge", "judge_client": vf.ScriptedClient(judging)}


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def evaluating(tmp_path: Path, name: str, rows: list[Any], **arguments: Any) -> vf.Environment:
    return load_environment(eval=name, data=write(tmp_path / "eval.jsonl", rows), **arguments)


def training(tmp_path: Path, rows: list[Any], **arguments: Any) -> vf.Environment:
    return load_environment(train_data=write(tmp_path / "train.jsonl", rows), **arguments)


async def scored(env: vf.Environment, rows: list[Any], reply: Any) -> vf.RolloutRecord:
    return (await env.generate(rows, vf.ScriptedClient(reply), "scripted")).records[0]


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"eval": "arc"}, "eval='arc': there are 'gpqa', 'mmlu-pro', 'hle'"),
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": "all"}, "num_eval_examples='all'"),
        ({"seed": 0.5}, "seed=0.5"),
        ({"subjects": "physics"}, "subjects='physics': give a list"),
        ({"subjects": []}, r"subjects=\[\]: give a list"),
        ({"data": "nowhere.jsonl"}, "data='nowhere.jsonl': there is no such file"),
        ({"train_data": "rows.csv"}, "train_data='rows.csv'"),
        ({"judge_base_url": "http://127.0.0.1:1/v1"}, "address is given without judge_model"),
        ({"eval": "hle"}, "eval='hle' is scored by a judge: give judge_model"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


@pytest.mark.parametrize(
    ("name", "row", "told"),
    [
        (
            "gpqa",
            {"Question": "?", "Correct Answer": "A"},
            "no column 'Incorrect Answer 1', 'Incorrect Answer 2'",
        ),
        ("gpqa", {**GPQA, "Incorrect Answer 2": None}, "row 2: .* an option is None"),
        ("mmlu-pro", {**MMLU_PRO, "answer": "F"}, "row 2: .* the answer 'F' is not option 4, counted from 0"),
        ("mmlu-pro", {**MMLU_PRO, "answer": "K", "answer_index": 10}, "the answer 'K' is none of 10 options"),
        ("mmlu-pro", {**MMLU_PRO, "options": "8"}, "the answer 'E' is none of 1 options"),
        ("hle", {**HLE, "answer_type": "essay"}, "'answer_type' is 'essay', neither"),
        ("hle", {**HLE, "answer": None}, "the answer is None"),
    ],
)
def test_a_row_outside_the_schema_is_named(tmp_path, name, row, told):
    good = {"gpqa": GPQA, "mmlu-pro": MMLU_PRO, "hle": HLE}[name]
    with pytest.raises(vf.DatasetError, match=told):
        evaluating(tmp_path, name, [good, row], **judged()).eval_rows()


def test_a_training_row_outside_the_schema_is_named(tmp_path):
    with pytest.raises(vf.DatasetError, match="row 1: not in the schema of MegaScience/MegaScience train"):
        training(tmp_path, [{**MEGASCIENCE, "question": ""}]).train_rows()


# 2. the public schemas, and what becomes of them


def test_a_row_of_megascience_is_a_question_with_a_reference_that_rules_read(tmp_path):
    (row,) = training(tmp_path, [MEGASCIENCE]).train_rows()
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert "\\boxed{}" in row["prompt"][0]["content"]
    assert row["prompt"][1]["content"] == MEGASCIENCE["question"]
    assert row["answer"] == "20\\text{ m/s}"
    assert row["info"] == {"subject": "physics", "scored_by": "rules", "source": "train.jsonl"}


def test_a_row_of_gpqa_shows_its_options_and_knows_where_the_right_one_went(tmp_path):
    (row,) = evaluating(tmp_path, "gpqa", [GPQA]).eval_rows()
    shown = row["prompt"][1]["content"].splitlines()
    assert shown[:2] == ["Which is a noble gas?", ""]
    assert sorted(line[3:] for line in shown[2:]) == ["hydrogen", "neon", "nitrogen", "oxygen"]
    assert f"{row['answer']}. neon" in shown
    assert row["info"]["options"]["ABCD".index(row["answer"])] == "neon"
    assert (row["info"]["domain"], row["info"]["record_id"]) == ("Chemistry", "rec0")


def test_a_row_of_mmlu_pro_keeps_its_ten_options_in_their_order(tmp_path):
    (row,) = evaluating(tmp_path, "mmlu-pro", [MMLU_PRO]).eval_rows()
    shown = row["prompt"][1]["content"].splitlines()
    assert shown[2] == "A. 1" and shown[6] == "E. 8" and shown[11] == "J. 64"
    assert row["answer"] == "E"


def test_parquet_is_read_like_jsonl(tmp_path):
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist([MMLU_PRO]), tmp_path / "rows.parquet")
    (row,) = load_environment(eval="mmlu-pro", data=str(tmp_path / "rows.parquet")).eval_rows()
    assert (row["answer"], len(row["info"]["options"])) == ("E", 10)


def test_rows_of_hle_with_an_image_are_left_out_and_counted(tmp_path, caplog):
    rows = [HLE, {**HLE, "image": "data:image/png;base64,iVBORw0KGgo="}, {**HLE, "answer_type": "multipleChoice"}]
    with caplog.at_level(logging.WARNING, "verifiers"):
        made = evaluating(tmp_path, "hle", rows, **judged()).eval_rows()
    assert [row["info"]["scored_by"] for row in made] == ["rules", "judge"]
    assert "1 of 3 rows are left out: they have an image" in caplog.text


def test_references_that_no_rule_reads_are_for_a_judge_or_left_out(tmp_path, caplog):
    references = ("20 m/s", "the mitochondrion", "", None, "word " * 100)
    rows = [{**MEGASCIENCE, "reference_answer": reference} for reference in references]
    with caplog.at_level(logging.WARNING, "verifiers"):
        made = training(tmp_path, rows).train_rows()
    assert [row["info"]["scored_by"] for row in made] == ["rules"]
    for told in ("1 of 5 rows are left out: no rule can", "2 of 5 rows are left out: they have no", "answer is long"):
        assert told in caplog.text
    made = training(tmp_path, rows, **judged()).train_rows()
    assert [row["info"]["scored_by"] for row in made] == ["rules", "judge"]


def test_subjects_are_chosen_and_as_many_rows_come_as_asked_for(tmp_path):
    subjects = ("biology", None, "Physics") * 6
    rows = [{**MEGASCIENCE, "subject": subject} for subject in subjects]
    made = training(tmp_path, rows, subjects=["physics"], num_train_examples=5).train_rows()
    assert [row["info"]["subject"] for row in made] == ["Physics"] * 5


def test_no_row_that_fits_is_said(tmp_path):
    with pytest.raises(vf.DatasetError, match=r"none of 1 rows is left: .*of other subjects"):
        training(tmp_path, [MEGASCIENCE], subjects=["law"]).train_rows()


@pytest.mark.parametrize(
    ("reference", "read"),
    [
        ("42", "42"),
        ("-0.5", "-0.5"),
        ("5,000", "5,000"),
        ("$1.5 \\times 10^{-3}$ mol/L", "1.5 \\times 10^{-3}\\text{ mol/L}"),
        ("3.0 x 10^8 m/s", "3.0 \\times 10^8\\text{ m/s}"),
        ("1.6e-19 C", "1.6e-19\\text{ C}"),
        ("9.8 \\text{ m/s}^2", "9.8 \\text{ m/s}^2"),
        ("10%", "10%"),
        ("25 °C.", "25\\text{ °C}"),
        ("\\frac{kq}{r^2}", "\\frac{kq}{r^2}"),
        ("\\sin x + C", "\\sin x + C"),
        ("(B)", "B"),
    ],
)
def test_numbers_and_formulas_are_for_rules(reference, read):
    assert readable(reference) == read


@pytest.mark.parametrize(
    "reference",
    ["ATP", "NaCl", "H_2SO_4", "CH_3CH_2OH", "Na+", "the cell wall", "increases", "12 or more", "2 moles of NaOH", ""],
)  # fmt: skip
def test_words_and_chemical_formulas_are_for_no_rule(reference):
    assert readable(reference) is None


# 3. the same by seed


def test_options_depend_on_seed_and_row_alone(tmp_path):
    rows = [{**GPQA, "Question": f"Question {number}?"} for number in range(12)]

    def answers(seed: int | None, rows: list[Any]) -> dict[str, str]:
        made = evaluating(tmp_path, "gpqa", rows, seed=seed).eval_rows()
        return {row["question"].partition("\n")[0]: row["answer"] for row in made}

    assert answers(1, rows) == answers(1, rows[::-1]) != answers(2, rows)
    assert len(set(answers(None, rows).values())) == 4
    assert list(answers(None, rows)) == [row["Question"] for row in rows]
    assert list(answers(1, rows)) != [row["Question"] for row in rows]


# Loading and the public names, in a fresh process with a cache of its own.


def in_fresh_process(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    own = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **own}, capture_output=True, text=True, timeout=120, check=True
    )


def test_without_network_our_own_questions_serve_and_loading_touches_nothing(tmp_path):
    code = (
        "import i3_science, json, sys; env = i3_science.load_environment();"
        "print('datasets' in sys.modules); print(json.dumps([env.train_rows(), env.eval_rows()]))"
    )
    done = in_fresh_process(code, tmp_path)
    imported, rows = done.stdout.splitlines()
    assert imported == "False"
    train, evaluation = json.loads(rows)
    assert [len(train), len(evaluation)] == [6, 4]  # the seventh wants a judge
    assert {row["info"]["source"].partition(",")[0] for row in train + evaluation} == {"own rows"}
    assert "THEIR SCORES ARE NOT Idavidrein/gpqa SCORES" in done.stderr


# 4. the reference answer scores full


@pytest.mark.parametrize("name", ["gpqa", "mmlu-pro"])
@pytest.mark.parametrize(
    "form", ["So \\boxed{{{0}}}.", "The answer is ({0}).", "**Answer:** {0}", "\\boxed{{{0}. {1}}}"]
)
async def test_the_right_option_scores_full_in_every_usual_form(tmp_path, name, form):
    own = {"gpqa": own_questions.gpqa_rows, "mmlu-pro": own_questions.mmlu_pro_rows}[name]
    env = evaluating(tmp_path, name, own())
    for row in env.eval_rows():
        text = row["info"]["options"]["ABCDEFGHIJ".index(row["answer"])]
        record = await scored(env, [row], form.format(row["answer"], text))
        assert (record.reward, record.scores[0].name) == (1.0, "correct_choice")


async def test_every_short_answer_scores_full(tmp_path):
    env = training(tmp_path, own_questions.megascience_rows())
    for row in env.train_rows():
        assert (await scored(env, [row], f"It is \\boxed{{{row['answer']}}}.")).reward == 1.0


@pytest.mark.parametrize("boxed", ["20 m/s", "20", "20\\text{ m/s}", "20\\,\\mathrm{m/s}", "20.0 \\text{ m/s}"])
async def test_another_way_to_write_a_quantity_scores_full(tmp_path, boxed):
    env = training(tmp_path, [MEGASCIENCE])
    assert (await scored(env, env.train_rows(), f"\\boxed{{{boxed}}}")).reward == 1.0


# 5. a wrong, empty, hedged or echoed one does not


@pytest.mark.parametrize(
    "reply",
    ["", "{right}", "I think {right}.", "\\boxed{{{right}", "\\boxed{{{wrong}}}", "\\boxed{{{right} or {wrong}}}",
     "\\boxed{{A, B, C, D}}", "<think>\\boxed{{{right}}}</think> \\boxed{{{wrong}}}", "<think>\\boxed{{{right}}}",
     "The answer is not {right}.", "{question}"],
)  # fmt: skip
async def test_a_wrong_empty_or_hedged_choice_scores_nothing(tmp_path, reply):
    env = evaluating(tmp_path, "gpqa", [GPQA])
    (row,) = env.eval_rows()
    wrong = next(letter for letter in "ABCD" if letter != row["answer"])
    text = reply.format(right=row["answer"], wrong=wrong, question=row["question"])
    assert (await scored(env, [row], text)).reward == 0.0


@pytest.mark.parametrize(
    "reply",
    ["", "20 m/s", "\\boxed{20 m/s", "\\boxed{20 km/s}", "\\boxed{19 m/s}", "\\boxed{20 \\text{ or } 21}", "\\boxed{}",
     "<think>\\boxed{20}</think>\\boxed{21}", MEGASCIENCE["question"]],
)  # fmt: skip
async def test_a_wrong_empty_or_hedged_short_answer_scores_nothing(tmp_path, reply):
    env = training(tmp_path, [MEGASCIENCE])
    assert (await scored(env, env.train_rows(), reply)).reward == 0.0


# 6. what a judge decides, and that its failure is no 0.0


@pytest.mark.parametrize(
    ("boxed", "reward"), [("mitochondria", 1.0), ("the nucleus", 0.0), ("", 0.0), ("Solution", 0.0)]
)
async def test_a_judge_decides_about_words(tmp_path, boxed, reward):
    row = {**MEGASCIENCE, "reference_answer": "the mitochondrion"}
    env = training(tmp_path, [row], **judged())
    record = await scored(env, env.train_rows(), f"\\boxed{{{boxed}}}")
    assert (record.reward, record.scores[0].name) == (reward, "verdict")


@pytest.mark.parametrize(
    ("kind", "answer", "boxed", "reward"),
    [
        ("exactMatch", "8", "8", 1.0),
        ("exactMatch", "8", "eight", 1.0),
        ("exactMatch", "8", "nine", 0.0),
        ("multipleChoice", "B", "B", 1.0),
        ("multipleChoice", "B", "C", 0.0),
    ],
)
async def test_hle_is_scored_by_rules_and_a_judge(tmp_path, kind, answer, boxed, reward):
    env = evaluating(tmp_path, "hle", [{**HLE, "answer_type": kind, "answer": answer}], **judged())
    assert (await scored(env, env.eval_rows(), f"\\boxed{{{boxed}}}")).reward == reward


async def test_a_judge_is_not_asked_about_a_choice_or_what_the_rules_accept(tmp_path):
    arguments = judged()
    env = evaluating(tmp_path, "gpqa", [GPQA], **arguments)
    await scored(env, env.eval_rows(), "\\boxed{B}")
    env = training(tmp_path, [MEGASCIENCE], **arguments)
    await scored(env, env.train_rows(), "\\boxed{20 m/s}")
    assert not arguments["judge_client"].requests


@pytest.mark.parametrize("reference", ["20 m/s", "the mitochondrion"])
async def test_a_judge_that_is_down_is_a_fault_and_no_zero(tmp_path, reference):
    judge = vf.ScriptedClient(vf.ModelUnavailableError("down"))
    env = training(tmp_path, [{**MEGASCIENCE, "reference_answer": reference}], judge_model="j", judge_client=judge)
    record = await scored(env, env.train_rows(), "\\boxed{something}")
    assert (record.reward, record.status) == (None, "fault")


async def test_tries_of_one_example_are_scored_each_by_itself(tmp_path):
    env = evaluating(tmp_path, "gpqa", [GPQA])
    (row,) = env.eval_rows()
    wrong = next(letter for letter in "ABCD" if letter != row["answer"])
    client = vf.ScriptedClient([f"\\boxed{{{letter}}}" for letter in (row["answer"], wrong)])
    results = await env.evaluate(client, "scripted", rollouts_per_example=4, max_concurrent=1)
    assert results["reward"] == [1.0, 0.0, 1.0, 0.0]
