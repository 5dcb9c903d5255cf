"""A budget ends an evaluation early and cleanly: what finished is saved, and the rest can be gone on with."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loopback import ROOT, outside_variables
from rollouts import record

from verifiers.errors import ConfigError
from verifiers.eval.budget import Budget
from verifiers.eval.config import EvalConfig, configs_of
from verifiers.records import TokenUsage, read_records

ENVIRONMENT = """
import asyncio
import verifiers as vf

async def reference(messages, row):
    if row["info"]["is_slow"]:
        await asyncio.sleep(3600)
    return "yes " * 9

def load_environment(slow_from=10**9):
    rows = [{"question": f"{n}?", "answer": "yes", "info": {"is_slow": n >= slow_from}} for n in range(20)]
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[lambda completion: 1.0]))
"""


class Evaluations:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "zz_env.py").write_text(ENVIRONMENT)
        (folder / "pyproject.toml").write_text(
            "[project]\nname = 'zz-env'\nversion = '1'\n[tool.verifiers.validate]\nreference = 'zz_env:reference'\n"
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        variables = outside_variables() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}"}
        code = "from verifiers.cli.main import eval_main; eval_main()"
        command = [sys.executable, "-P", "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=self.folder, timeout=300)

    def evaluate(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("zz-env", "-m", "reference", "-n", "20", "-r", "1", "-c", "1", *arguments)

    @property
    def saved(self) -> list[Any]:
        (path,) = self.folder.glob("outputs/evals/*/*/results.jsonl")
        return list(read_records(path))


@pytest.fixture
def evaluations(tmp_path: Path) -> Evaluations:
    return Evaluations(tmp_path)


def test_tokens_that_are_used_up_end_the_run_and_it_can_be_gone_on_with(evaluations):
    done = evaluations.evaluate("--max-total-tokens", "50")
    assert done.returncode == 1
    n = len(evaluations.saved)
    assert 0 < n < 20
    assert f"tokens are used (--max-total-tokens); {n} of 20 rollouts are saved" in done.stderr
    assert f"{n} of 20 scored; {20 - n} not run" in done.stdout or f"{n} of {n} scored" in done.stdout, done.stdout
    again = shlex.split(done.stderr.splitlines()[-1])
    folder = again[again.index("--resume-path") + 1]
    rest = evaluations.evaluate("--resume-path", folder)
    assert rest.returncode == 0, rest.stderr
    assert sorted(one.example_id for one in evaluations.saved) == list(range(20))


def test_time_that_is_up_stops_what_runs(evaluations):
    done = evaluations.evaluate("--time-limit", "4", "-a", '{"slow_from": 3}')
    assert done.returncode == 1
    assert [one.example_id for one in evaluations.saved] == [0, 1, 2]
    assert re.search(r"stopped: 4 s have passed \(--time-limit\); 3 of 20 rollouts are saved", done.stderr)


def test_a_budget_that_is_never_reached_changes_nothing(evaluations):
    done = evaluations.evaluate("--max-total-tokens", "100000", "--time-limit", "600", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_scored"] == 20


def test_a_limit_on_the_cost_wants_prices(evaluations):
    done = evaluations.evaluate("--max-cost", "1")
    assert done.returncode == 3
    assert "--max-cost needs the model's prices, and none are known" in done.stderr


def test_cost_and_tokens_are_counted_of_finished_rollouts():
    config = EvalConfig(env_id="x", max_cost=0.5, max_total_tokens=1000)
    budget = Budget(config, has_prices=True)
    assert not budget.add(record(usage=TokenUsage(prompt=100, completion=100, cost=0.25)))
    assert budget.add(record(usage=TokenUsage(prompt=100, completion=100, cost=0.25)))
    assert budget.spent is not None and "--max-cost" in budget.spent
    with pytest.raises(ConfigError, match="input_price"):
        Budget(config, has_prices=False)


@pytest.mark.parametrize("name", ["max_cost", "max_total_tokens", "time_limit"])
def test_a_budget_of_nothing_is_refused(name):
    with pytest.raises(ConfigError, match=f"{name} must be above 0"):
        configs_of("x", {name: 0})
