"""`vf export`: what other tools read is what was saved, whole, and never half a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loopback import ROOT, outside_variables
from rollouts import record, write_run

import verifiers as vf
from verifiers.errors import ConfigError, ResultsError
from verifiers.eval.export import export, form_of
from verifiers.records import Failure, Score, TokenUsage
from verifiers.viewer.runs import run_at


def scored(example_id: int, rollout_index: int, reward: float | None, tokens: int = 10, **more: Any):
    return record(
        example_id=example_id,
        rollout_index=rollout_index,
        reward=reward,
        status="failed" if reward is None else "scored",
        scores=[] if reward is None else [Score(name="right", value=reward, weight=1.0)],
        usage=TokenUsage(prompt=5, completion=tokens),
        answer={"sum": 4},
        **more,
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    records = [
        scored(0, 0, 1.0, tokens=30),
        scored(0, 1, 1.0, tokens=20),
        scored(1, 0, 0.25),
        scored(1, 1, None, errors=[Failure(side="model", type="Boom", message="no reply")]),
        scored(2, 0, 1.0, is_truncated=True),
        scored(2, 0, 0.5, is_truncated=True),  # run again: this one counts
    ]
    return write_run(tmp_path / "run", records).parent


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rows_are_flat_with_a_column_for_every_metric(run, tmp_path):
    out = tmp_path / "rows.jsonl"
    assert export([run_at(run)], out, "rows") == 5
    found = lines(out)
    assert [(row["example_id"], row["rollout_index"], row["reward"]) for row in found] == [
        (0, 0, 1.0), (0, 1, 1.0), (1, 0, 0.25), (1, 1, None), (2, 0, 0.5),
    ]  # fmt: skip
    assert [row["metric.right"] for row in found] == [1.0, 1.0, 0.25, None, 0.5]
    assert json.loads(found[0]["answer"]) == {"sum": 4}
    assert json.loads(found[0]["completion"])[0]["content"] == "It is 4."
    assert len({tuple(row) for row in found}) == 1, "every row has the same columns"


def test_parquet_and_a_data_set_hold_the_same_rows(run, tmp_path):
    from datasets import Dataset, load_from_disk

    runs = [run_at(run)]
    export(runs, tmp_path / "rows.jsonl", "rows")
    export(runs, tmp_path / "rows.parquet", "parquet")
    export(runs, tmp_path / "set", "dataset")
    rows = lines(tmp_path / "rows.jsonl")
    assert Dataset.from_parquet(str(tmp_path / "rows.parquet"), cache_dir=str(tmp_path / "cache")).to_list() == rows
    assert load_from_disk(str(tmp_path / "set")).to_list() == rows
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_conversations_to_train_on_are_whole_and_good_enough(run, tmp_path):
    out = tmp_path / "chat.jsonl"
    assert export([run_at(run)], out, "chat", min_reward=0.2) == 3
    assert [(row["example_id"], row["rollout_index"]) for row in lines(out)] == [(0, 0), (0, 1), (1, 0)]
    assert [message["role"] for message in lines(out)[0]["messages"]] == ["user", "assistant"]
    assert export([run_at(run)], out, "chat", best=True, min_reward=0.5, force=True) == 1
    assert lines(out)[0]["rollout_index"] == 1, "of equal rewards the shorter one"


def test_a_report_has_the_reward_with_its_interval_and_what_was_set(tmp_path):
    env = vf.SingleTurnEnv(
        dataset=[{"question": f"{n}?", "answer": str(n)} for n in range(4)],
        rubric=vf.Rubric(funcs=[lambda completion, answer: float(completion[-1].content == answer)]),
        env_id="a|b",
    )
    env.evaluate_sync(vf.ScriptedClient("1"), model="scripted", results_path=tmp_path / "run", save_results=True)
    out = tmp_path / "report.md"
    assert export([run_at(tmp_path / "run")], out, "markdown") == 1
    text = out.read_text()
    assert "0.250" in text and "4 of 4" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} <= {3, 5, 6}, "no cell ends early"


@pytest.mark.parametrize(
    ("form", "options", "told"),
    [
        ("rows", {"min_reward": 2.0}, "no rollout is left to be written: saved, with a reward of at least 2"),
        ("chat", {"min_reward": 2.0}, "scored, whole and without errors, with a reward of at least 2"),
        ("markdown", {"best": True}, "a report is of whole runs"),
    ],
)
def test_what_cannot_be_written_leaves_nothing_behind(run, tmp_path, form, options, told):
    with pytest.raises(ConfigError, match=told):
        export([run_at(run)], tmp_path / "out", form, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_file_that_is_there_is_not_replaced_unasked(run, tmp_path):
    out = tmp_path / "rows.jsonl"
    out.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        export([run_at(run)], out, "rows")
    assert out.read_text() == "mine"


def test_the_suffix_says_which_form_is_meant():
    forms = [form_of(Path(name), None) for name in ("a.jsonl", "a.parquet", "a.md", "a")]
    assert forms == ["rows", "parquet", "markdown", "dataset"]
    assert form_of(Path("a.jsonl"), "chat") == "chat"
    with pytest.raises(ConfigError, match="say which form is meant by --as"):
        form_of(Path("a.csv"), None)
    with pytest.raises(ConfigError, match="--as csv: there is no such form"):
        form_of(Path("a.csv"), "csv")


def test_the_command_says_what_it_wrote_and_where_not(run, tmp_path):
    def ask(*arguments: object):
        command = [sys.executable, "-m", "verifiers.cli.main", "export", *map(str, arguments)]
        variables = outside_variables() | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=200)

    done = ask(run, "-o", tmp_path / "rows.parquet")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [f"{tmp_path / 'rows.parquet'}: 5 rollouts"]
    nowhere = ask(run, "-o", tmp_path / "no" / "folder.jsonl")
    assert nowhere.returncode == 3
    assert "cannot be written: No such file or directory" in nowhere.stderr


def test_a_damaged_line_is_named(run, tmp_path):
    with (run / "results.jsonl").open("ab") as file:
        file.write(b"{broken\n")
    with pytest.raises(ResultsError, match=r"results\.jsonl, line 7 cannot be read"):
        export([run_at(run)], tmp_path / "rows.jsonl", "rows")
