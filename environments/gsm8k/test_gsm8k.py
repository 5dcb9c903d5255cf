"""Are bad arguments refused, does a seed give the same examples, does an example have the right shape, does the
reference answer score full, and does a wrong, empty or hedged one not?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gsm8k import EVAL, TRAIN, load_environment
from gsm8k.own_problems import WORKED
from gsm8k.rows import final_number

import verifiers as vf


def write_rows(path: Path, answers: list[str]) -> str:
    """A file in the public schema."""
    rows = [{"question": f"Question {i}?", "answer": f"It is <<{a}>>.\n#### {a}"} for i, a in enumerate(answers)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_rows(tmp_path / "test.jsonl", ["18", "1,200", "-7", "0.5", "70000", "3", "64", "260", "9", "45"])


async def reward(reply: str, answer: str, data: str) -> float | None:
    row = {"prompt": [{"role": "user", "content": "?"}], "answer": answer, "example_id": 0}
    results = await load_environment(data=data).generate([row], vf.ScriptedClient([reply]), "scripted")
    return results["outputs"][0]["reward"]


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": -2}, "num_eval_examples=-2"),
        ({"seed": "1"}, "seed='1'"),
        ({"few_shot": 5}, "few_shot=5: give a whole number from 0 to 4"),
        ({"data": "nowhere.jsonl"}, "data='nowhere.jsonl': there is no such file"),
        ({"data": "rows.csv"}, r"data='rows\.csv': .*\.jsonl, .*\.parquet"),
        ({"train_data": "train.jsonl"}, "train_data is given without data"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            '{"question": "Q?", "answer": "18"}',
            r"rows\.jsonl: 'answer' must end in '#### ' and a number, .* '18', of .*'Q\?'",
        ),
        ('{"question": "Q?", "answer": "#### many"}', "it ends in '#### many'"),
        ('{"question": "Q?"}', "row 2: no column 'answer'; it has .* are to be those of openai/gsm8k main test"),
        ('{"question": "Q?", "answer": 18}', "'question' and 'answer' are texts"),
        ("[1]", "row 2: a row is an object"),
        ("{torn", "line 2 is no JSON"),
    ],
)
def test_a_row_outside_the_schema_is_named(tmp_path, line, told):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "Q?", "answer": "#### 1"}\n' + line + "\n")
    with pytest.raises(vf.DatasetError, match=told):
        load_environment(data=str(path)).eval_rows()


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_text("no parquet")
    with pytest.raises(vf.DatasetError, match=r"rows\.parquet is no parquet file"):
        load_environment(data=str(path)).eval_rows()


# 2. same seed, same examples


def answers(rows: list[dict[str, Any]]) -> list[str]:
    return [row["answer"] for row in rows]


def test_without_a_seed_the_order_is_the_file_s(data):
    assert answers(load_environment(data=data, num_eval_examples=3).eval_rows()) == ["18", "1200", "-7"]


def test_a_seed_gives_the_same_examples_and_another_seed_others(data):
    one, same, other = (answers(load_environment(data=data, seed=seed).eval_rows()) for seed in (1, 1, 2))
    assert one == same != other
    assert sorted(one) == sorted(other)


def test_training_rows_come_from_their_own_file(tmp_path, data):
    train_data = write_rows(tmp_path / "train.jsonl", ["1", "2", "3"])
    env = load_environment(data=data, train_data=train_data, num_train_examples=2)
    assert answers(env.train_rows()) == ["1", "2"]
    assert len(env.eval_rows()) == 10


# 3. an example has the right shape


def test_an_example_is_a_prompt_with_a_plain_number(data):
    for row in load_environment(data=data).eval_rows():
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        assert "\\boxed{}" in row["prompt"][0]["content"]
        assert re.fullmatch(r"-?\d+(\.\d+)?", row["answer"])
        assert row["info"] == {"source": "test.jsonl"}


def test_few_shot_shows_worked_examples_that_are_not_asked(data):
    prompt = load_environment(data=data, few_shot=2).eval_rows(1)[0]["prompt"]
    assert [message["role"] for message in prompt] == ["system", *["user", "assistant"] * 2, "user"]
    assert not {problem.question for problem in WORKED} & {problem.question for problem in (*TRAIN, *EVAL)}


def test_parquet_is_read_like_jsonl(tmp_path, data):
    from pyarrow import Table, parquet

    path = tmp_path / "test.parquet"
    parquet.write_table(Table.from_pylist([json.loads(line) for line in Path(data).read_text().splitlines()]), path)
    assert answers(load_environment(data=str(path)).eval_rows()) == answers(load_environment(data=data).eval_rows())


@pytest.mark.parametrize("problem", [*WORKED, *TRAIN, *EVAL], ids=lambda problem: problem.answer)
def test_every_calculation_in_our_own_problems_holds(problem):
    steps = re.findall(r"([\d][\d */+-]*) = (\d+)", problem.working)
    assert steps
    assert all(eval(left) == int(right) for left, right in steps)
    assert final_number(problem.solution) in re.findall(r"\d+", problem.working)


# The public data set is fetched on first use. A fresh process shows what was imported, and has a cache of its own.


def in_fresh_process(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    own = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **own}, capture_output=True, text=True, timeout=120, check=True
    )


def test_loading_touches_neither_network_nor_datasets(tmp_path):
    code = "import gsm8k, sys; gsm8k.load_environment(); print('datasets' in sys.modules)"
    assert in_fresh_process(code, tmp_path).stdout.strip() == "False"


def test_without_network_our_own_problems_serve_and_it_is_said(tmp_path):
    code = "import gsm8k, json; env = gsm8k.load_environment();print(json.dumps([env.train_rows(), env.eval_rows()]))"
    done = in_fresh_process(code, tmp_path)
    train, evaluation = json.loads(done.stdout)
    assert [len(train), len(evaluation)] == [len(TRAIN), len(EVAL)]
    assert {row["info"]["source"] for row in train + evaluation} == {"own rows, not openai/gsm8k"}
    assert done.stderr.count("THEIR SCORES ARE NOT openai/gsm8k SCORES") == 1


def test_the_public_splits_are_read_through_datasets(tmp_path, data):
    folder = tmp_path / "public" / "main"
    folder.mkdir(parents=True)
    write_rows(folder / "train.jsonl", ["1", "2"])
    write_rows(folder / "test.jsonl", ["3,000"])
    (folder.parent / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - {split: train, path: main/train.jsonl}\n"
        "  - {split: test, path: main/test.jsonl}\n---\n"
    )
    code = (
        f"import gsm8k, json, msgspec; name = {str(folder.parent)!r};"
        "gsm8k.TRAIN_SPLIT, gsm8k.TEST_SPLIT = ("
        "msgspec.structs.replace(one, name=name) for one in (gsm8k.TRAIN_SPLIT, gsm8k.TEST_SPLIT));"
        "env = gsm8k.load_environment();"
        "print(json.dumps([[row['answer'] for row in rows] for rows in (env.train_rows(), env.eval_rows())]))"
    )
    assert json.loads(in_fresh_process(code, tmp_path).stdout) == [["1", "2"], ["3000"]]


# 4. the reference answer scores full


async def test_every_reference_answer_scores_full(data):
    env = load_environment(data=data)
    for row in env.eval_rows():
        results = await env.generate([row], vf.ScriptedClient([f"So \\boxed{{{row['answer']}}}."]), "scripted")
        assert results["outputs"][0]["metrics"]["correct_answer"] == results["outputs"][0]["reward"] == 1.0


@pytest.mark.parametrize("problem", WORKED, ids=lambda problem: problem.answer)
async def test_a_worked_example_scores_full(problem, data):
    assert await reward(problem.reply, problem.answer, data) == 1.0


@pytest.mark.parametrize(
    "boxed", ["70000", "70,000", "70{,}000", r"\$70,000", "$70000$", "70000.0", "70000.00", r"70000 \text{ dollars}"]
)
async def test_another_way_to_write_the_number_scores_full(boxed, data):
    assert await reward(f"\\boxed{{{boxed}}}", "70000", data) == 1.0


async def test_the_last_box_after_the_thoughts_counts(data):
    assert await reward(r"<think>\boxed{1}</think> First \boxed{2}, no: \boxed{18}", "18", data) == 1.0


# 5. a wrong, empty, hedged or echoed one does not


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "18",
        "The answer is 18.",
        "#### 18",
        r"\boxed{}",
        r"\boxed{18",
        r"\boxed{17}",
        r"\boxed{-18}",
        r"\boxed{1.8}",
        r"\boxed{18 or 19}",
        r"\boxed{17, 18}",
        r"\boxed{17 = 18}",
        r"\boxed{18 \pm 1}",
        r"\boxed{18} or \boxed{19}",
        r"<think>\boxed{18}</think> I am not sure.",
        r"<think>\boxed{18}",
        r"Put the final number in \boxed{}.",
    ],
)
async def test_a_wrong_empty_or_hedged_answer_scores_nothing(reply, data):
    assert await reward(reply, "18", data) == 0.0


async def test_the_prompt_sent_back_scores_nothing(data):
    client = vf.ScriptedClient(lambda request: "\n".join(message["content"] for message in request.messages))
    results = await load_environment(data=data).evaluate(client=client, model="scripted")
    assert [output["reward"] for output in results["outputs"]] == [0.0] * 10
