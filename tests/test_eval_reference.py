"""`-m reference`: right answers stand in a model's place, and show what an environment pays at most."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from loopback import ROOT, outside_variables

BOXED = """
import verifiers as vf

def load_environment():
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(4)]
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.MathRubric())
"""

# Every row has the same prompt, and the answer takes two turns: only the row itself tells what to say.
GUESSING = """
import verifiers as vf

class Guessing(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "And the second letter?"}]

def reference(messages, row):
    return row["info"]["letters"][sum(m["role"] == "assistant" for m in messages)]

def right(completion, info):
    said = [m["content"] for m in completion if m["role"] == "assistant"]
    return float(said == list(info["letters"]))

def load_environment():
    rows = [{"question": "Which letters?", "info": {"letters": letters}} for letters in ("ab", "cd", "ef")]
    return Guessing(dataset=rows, rubric=vf.Rubric(funcs=[right]), max_turns=2)
"""


def evaluated(folder: Path, source: str, *arguments: str, reference: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "zz_env.py").write_text(source)
    declared = f'[tool.verifiers.validate]\nreference = "{reference}"\n' if reference else ""
    (folder / "pyproject.toml").write_text(f"[project]\nname = 'zz-env'\nversion = '1'\n{declared}")
    variables = outside_variables() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    code = "from verifiers.cli.main import eval_main; eval_main()"
    command = [sys.executable, "-P", "-c", code, "zz-env", "-m", "reference", "-n", "-1", "-r", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=folder, timeout=300)


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_a_declared_policy_the_rows_answers_are_written_in_the_form_that_is_paid(tmp_path):
    found = summary(evaluated(tmp_path, BOXED, "--json"))
    assert (found["model"], found["avg_reward"], found["n_scored"]) == ("reference", 1.0, 8)


def test_a_declared_policy_is_asked_at_every_turn_with_the_row_that_is_played(tmp_path):
    found = summary(evaluated(tmp_path, GUESSING, "--json", reference="zz_env:reference"))
    assert (found["avg_reward"], found["n_scored"]) == (1.0, 6)


def test_a_policy_that_raises_leaves_its_rollouts_unscored_with_the_reason(tmp_path):
    source = GUESSING.replace('return row["info"]["letters"]', 'return row["nothing"]')
    done = evaluated(tmp_path, source, reference="zz_env:reference")
    assert done.returncode == 1
    assert "KeyError" in done.stdout + done.stderr


def test_where_there_is_neither_answer_nor_policy_it_is_said_how_to_declare_one(tmp_path):
    done = evaluated(tmp_path, GUESSING)
    assert done.returncode == 3, done.stderr
    assert "the rows of zz-env have no answers, and it declares no policy" in done.stderr
    assert "Traceback" not in done.stderr


def test_workers_of_another_process_are_refused_for_it(tmp_path):
    done = evaluated(tmp_path, BOXED, "--executor", "process")
    assert done.returncode == 3
    assert "-m reference answers in this process alone: drop --executor process" in done.stderr
