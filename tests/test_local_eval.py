"""The newcomer's evaluation, for real: `vf-eval math-env` on the small model on this machine."""

from __future__ import annotations

import json
import os
import sys

import pytest
from loopback import ROOT, Desk

from verifiers.records import read_records

pytestmark = pytest.mark.local_model


@pytest.fixture
def desk(tmp_path):
    pytest.importorskip("xllamacpp")
    made = Desk(tmp_path)
    made.variables["PYTHONPATH"] += f"{os.pathsep}{ROOT / 'environments' / 'math_env'}"
    return made


def test_the_small_model_solves_some_and_its_run_is_saved(desk):
    done = desk.run("vf-eval math-env -m local -n 4 -r 1 --json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert 0.2 <= told["avg_reward"] <= 1.0
    assert (told["model"], told["status"], told["n_scored"]) == ("SmolLM2-135M-Instruct", "done", 4)
    folder = desk.saved_run()
    assert json.loads((folder / "metadata.json").read_text()) == told
    records = list(read_records(folder / "results.jsonl"))
    assert {record.key for record in records} == {(i, 0) for i in range(4)}
    for record in records:
        assert record.status == "scored" and record.errors == []
        assert record.messages[-1]["role"] == "assistant" and record.messages[-1]["content"]
        assert record.usage.prompt and record.usage.completion
        assert record.model.name == "SmolLM2-135M-Instruct"
    assert told["usage"]["output_tokens"] == sum(record.usage.completion for record in records)


def test_without_key_model_or_address_it_takes_the_local_model_and_says_so(desk):
    done = desk.run("vf-eval math-env -n 1 -r 1")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "no -m" in line]
    assert "the small model on this machine" in line
    assert "SmolLM2-135M-Instruct @ 127.0.0.1" in done.stdout
    assert "1 of 1 scored" in done.stdout
    assert "OPENAI_API_KEY=… vf-eval math-env -m" in done.stdout  # what to try next


def test_the_result_is_json_alone_for_the_next_program(desk):
    pretty = f"{sys.executable} -m json.tool"
    done = desk.run(f"bash -c 'vf-eval math-env -n 1 -r 1 --json | {pretty}'")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_scored"] == 1
