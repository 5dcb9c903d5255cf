"""`vf compare`: what it says is no stronger than the numbers, and its exit code can guard a CI job."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from loopback import ROOT, outside_variables
from rollouts import record, write_run

from verifiers.records import Score


def run_of(folder: Path, rewards: Sequence[float | None], question: str = "Question") -> Path:
    """A run with one try of each example; `None`: not scored."""
    records = [
        record(
            example_id=number,
            prompt=[{"role": "user", "content": f"{question} {number}"}],
            reward=reward,
            status="failed" if reward is None else "scored",
            scores=[] if reward is None else [Score(name="right", value=reward, weight=1.0)],
        )
        for number, reward in enumerate(rewards)
    ]
    return write_run(folder, records, env_id="demo", model=folder.name).parent


def compare(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verifiers.cli.main", "compare", *map(str, arguments)]
    variables = outside_variables() | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=200)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return run_of(tmp_path / "before", [1.0] * 10 + [0.0] * 10)


def test_the_verdict_the_metrics_and_the_examples_that_changed_sides_are_shown(before, tmp_path):
    after = run_of(tmp_path / "after", [1.0] * 18 + [0.0] * 2)
    done = compare(before, after, "-n", "3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["baseline", "0.5"] and lines[1].split()[:2] == ["candidate", "0.9"]
    assert "The candidate is better by 0.4 over 20 examples (95 % interval +0.165 to +0.635)." in lines
    assert "8 gained · 0 lost · 10 both pass · 2 both fail · 0 not comparable" in lines
    assert any(line.split()[:4] == ["right", "0.5", "0.9", "+0.4"] for line in lines)
    assert lines[-1] == "and 5 more that changed sides (-n)"


def test_where_nothing_can_be_told_it_says_what_could_have_been(before, tmp_path):
    after = run_of(tmp_path / "after", [0.0] + [1.0] * 9 + [0.0] * 8 + [1.0] * 2)
    told = compare(before, after).stdout
    assert "No difference can be told: +0.05" in told
    assert "With these 20 examples a true difference below 0.2" in told


def test_runs_over_other_questions_are_warned_of(before, tmp_path):
    told = compare(before, run_of(tmp_path / "after", [1.0] * 20, question="Another")).stdout
    assert "warning: 20 examples of equal id ask something else in the two runs" in told


def test_examples_that_one_run_did_not_score_are_left_out_and_counted(before, tmp_path):
    done = compare(before, run_of(tmp_path / "after", [None] + [1.0] * 19), "--json")
    found = json.loads(done.stdout)
    assert found["difference"]["n_examples"] == 19
    assert (found["difference"]["n_only_baseline"], found["counts"]["not_comparable"]) == (1, 1)


@pytest.mark.parametrize(
    ("rewards", "options", "code"),
    [
        ([1.0] * 10 + [0.0] * 10, [], 0),  # the same
        ([1.0] * 10 + [0.0] * 10, ["--strict"], 0),  # nothing changed: surely not worse
        ([0.0] * 20, [], 1),
        ([0.0] * 20, ["--allow", "0.9"], 0),
        ([0.0] + [1.0] * 9 + [0.0] * 9 + [1.0], [], 0),  # one lost, one gained: not surely worse
        ([0.0] + [1.0] * 9 + [0.0] * 9 + [1.0], ["--strict"], 1),
        ([0.0] + [1.0] * 9 + [0.0] * 9 + [1.0], ["--strict", "--allow", "0.2"], 0),
    ],
)
def test_the_exit_code_says_whether_the_candidate_may_pass(before, tmp_path, rewards, options, code):
    done = compare(before, run_of(tmp_path / "after", rewards), "--json", *options)
    assert done.returncode == code, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"] is (code == 0)


def test_what_is_not_one_run_is_told_in_one_line(before, tmp_path):
    (tmp_path / "empty").mkdir()
    for other, told in ((tmp_path / "nowhere", "does not exist"), (tmp_path / "empty", "is not one run")):
        done = compare(before, other)
        assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
        assert told in done.stderr
