"""`vf profile`: every second of a rollout is in one part, and the slowest rollouts say what took so long."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from loopback import ROOT, outside_variables
from rollouts import record, write_run

from verifiers.eval.profile import profile
from verifiers.records import Timing, TokenUsage


def timed(example_id: int, **parts: float):
    return record(example_id=example_id, timing=Timing(**parts), usage=TokenUsage(completion=100))


def test_parts_add_up_and_what_nothing_accounts_for_is_other():
    found = profile(
        [
            timed(0, total_s=10.0, queue_s=2.0, model_s=5.0, tool_s=1.0, score_s=4.0),
            timed(1, total_s=6.0, model_s=5.0, sandbox_s=1.0),
        ]
    )
    assert {part.name: part.total_s for part in found.parts} == pytest.approx(
        {"queue": 2.0, "model": 10.0, "tools": 1.0, "sandbox": 1.0, "other": 2.0, "scoring": 4.0}
    )
    assert found.rollout_s == pytest.approx(20.0)
    assert sum(part.share for part in found.parts) == pytest.approx(1.0)
    assert found.tokens_per_s == pytest.approx(20.0)
    slow = found.slowest[0]
    assert (slow.example_id, slow.total_s, slow.most, slow.most_s) == (0, pytest.approx(14.0), "model", 5.0)


def test_how_many_ran_at_the_same_time_is_told_from_their_starts():
    starts = ("2026-01-01T00:00:00.000+00:00", "2026-01-01T00:00:05.000+00:00")
    found = profile([timed(n, started=start, total_s=10.0, model_s=10.0) for n, start in enumerate(starts)])
    assert (found.wall_s, found.in_flight) == (pytest.approx(15.0), pytest.approx(20 / 15))


def test_rollouts_without_times_are_left_out_and_counted():
    found = profile([record(), timed(1, total_s=1.0)])
    assert (found.n_rollouts, found.n_untimed) == (1, 1)
    nothing = profile([record()])
    assert nothing.lines() == ["no times in 1 rollout: an older version saved them"]


def test_the_command_shows_parts_and_slowest_rollouts(tmp_path):
    folder = write_run(tmp_path / "run", [timed(n, total_s=1.0 + n, model_s=1.0) for n in range(8)]).parent

    def ask(*arguments: object):
        command = [sys.executable, "-m", "verifiers.cli.main", "profile", *map(str, arguments)]
        variables = outside_variables() | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=200)

    done = ask(folder, "-n", "2")
    assert done.returncode == 0, done.stderr
    assert "8 rollouts, 36 s of rollouts" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if line.endswith("7 s")] == ["7"]
    found = json.loads(ask(folder, "--json").stdout)
    assert (len(found["parts"]), len(found["slowest"])) == (6, 5)
    missing = ask(tmp_path / "nothing")
    assert (missing.returncode, len(missing.stderr.splitlines())) == (3, 1)
