"""`vf-eval --rescore RUN`: today's rubric on yesterday's replies, without a model, and both runs are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from loopback import ROOT, outside_variables

from verifiers.records import read_records

ENVIRONMENT = """
import verifiers as vf

async def reference(messages, row):
    if row["info"]["number"] == 3:
        raise ValueError("no reply to this one")
    return "It is " + row["answer"] * (1 + row["info"]["number"] % 2)

class Counted(vf.SingleTurnEnv):
    async def setup_state(self, state):
        state["bonus"] = 0.5

def right(completion, answer, state):
    said = completion[-1]["content"].split()[-1]
    return RIGHT

def load_environment(question="What"):
    rows = [{"question": f"{question} {n}?", "answer": str(n), "info": {"number": n}} for n in range(4)]
    return Counted(dataset=rows, rubric=vf.Rubric(funcs=[right]))
"""
DECLARED = "[project]\nname = 'zz-env'\nversion = '1'\n[tool.verifiers.validate]\nreference = 'zz_env:reference'\n"


class Workspace:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pyproject.toml").write_text(DECLARED)
        self.write("float(said == answer)")

    def write(self, right: str) -> None:
        (self.folder / "zz_env.py").write_text(ENVIRONMENT.replace("RIGHT", right))

    def vf_eval(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        variables = outside_variables() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}"}
        code = "from verifiers.cli.main import eval_main; eval_main()"
        command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=self.folder, timeout=300)

    def first_run(self) -> Path:
        self.vf_eval("zz-env", "-m", "reference", "-n", "-1", "-r", "1", "-C", "bonus")
        (path,) = self.folder.glob("outputs/evals/*/*/results.jsonl")
        return path.parent


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_replies_get_the_scores_of_today_and_the_old_run_stays(workspace):
    run = workspace.first_run()
    before = (run / "results.jsonl").read_bytes()
    assert [one.reward for one in read_records(run / "results.jsonl")] == [1.0, 0.0, 1.0, None]
    workspace.write('float(answer in said) * state["bonus"]')
    done = workspace.vf_eval("--rescore", run, "--json")
    found = json.loads(done.stdout)
    again = list(read_records(workspace.folder / found["folder"] / "results.jsonl"))
    assert sorted((one.example_id, one.reward) for one in again)[:3] == [(0, 0.5), (1, 0.5), (2, 0.5)]
    assert (found["n_scored"], found["n_failed"], done.returncode) == (3, 1, 1), "what failed is taken over"
    assert found["rescored_from"] == str(run)
    assert found["comparison"]["counts"] == {
        "gained": 1, "lost": 0, "both_pass": 2, "both_fail": 0, "not_comparable": 1,
    }  # fmt: skip
    assert (run / "results.jsonl").read_bytes() == before
    saved = json.loads((workspace.folder / found["folder"] / "metadata.json").read_text())
    assert saved["rescored_from"] == str(run) and saved["model"] == "reference"


def test_a_grader_that_fails_leaves_its_rollouts_unscored(workspace):
    run = workspace.first_run()
    workspace.write("1 / 0")
    found = json.loads(workspace.vf_eval("--rescore", run, "--json").stdout)
    assert (found["n_scored"], found["avg_reward"]) == (0, None)
    assert found["statuses"] == {"fault": 3, "failed": 1}


def test_other_rows_than_those_that_were_answered_are_refused(workspace):
    run = workspace.first_run()
    done = workspace.vf_eval("--rescore", run, "-a", '{"question": "Which"}')
    assert done.returncode == 3
    assert "zz-env has no example 0 with the prompt that was answered" in done.stderr
    assert len(list(workspace.folder.glob("outputs/evals/*/*/results.jsonl"))) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--rescore", "nowhere"], 3, "nowhere does not exist"),
        (["--rescore", "nowhere", "-n", "3"], 2, "leave out --num-examples"),
        (["zz-env", "--rescore", "nowhere"], 2, "leave out zz-env"),
    ],
)
def test_mistakes_get_one_line(workspace, arguments, code, told):
    done = workspace.vf_eval(*arguments)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (code, 1)
    assert told in done.stderr
