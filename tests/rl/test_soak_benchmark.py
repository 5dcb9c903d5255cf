"""A small soak: refusals, resets, malformed replies, a killed worker, groups that stall; accounted for to the last."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="what is left behind is read from /proc"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the endpoint of benchmarks/ is written in C"),
]


@pytest.fixture(scope="module")
def account(tmp_path_factory) -> dict[str, Any]:
    """Of 5,000 model calls."""
    report = tmp_path_factory.mktemp("soak") / "account.json"
    options = ["--calls", "5000", "--kills", "1", "--in-flight", "48", "--group-s", "5", "--json", str(report)]
    done = subprocess.run([sys.executable, str(BENCHMARKS / "rl_soak.py"), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(report.read_text())


@pytest.fixture
def faults_in(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "drivers"))
    import rl_soak

    return rl_soak.faults_in


def test_everything_that_began_has_one_end_and_nothing_is_left(account):
    assert account["wrong"] == []
    assert account["calls"]["calls"] >= 5000
    assert account["deaths"] == 1
    for fault in ("slow down", "server", "reset", "malformed"):
        assert account["calls"][fault] > 0, fault
    assert account["calls"]["sandboxes"] > 0


@pytest.mark.parametrize(
    "where, what",
    [
        (("groups", "started"), "every started group has one end"),
        (("batches", "shipped"), "every kept group was shipped"),
        (("seen", "rollouts"), "every rollout of a group has a record"),
        (("calls", "odd replies"), "every reply reached its own rollout"),
        (("calls", "calls"), "calls without an end are of killed processes"),
        (("calls", "malformed"), "the endpoint met every attempt"),
        (("server", "requests"), "the endpoint accounts for its requests"),
        (("calls", "sandboxes"), "open sandboxes are of killed processes"),
        (("deaths",), "every kill was a death"),
        (("files",), "no files is left: 1"),
    ],
    ids=lambda value: "/".join(value) if isinstance(value, tuple) else "",
)
def test_one_too_many_is_told(account, faults_in, where, what):
    changed = copy.deepcopy(account)
    *path, last = where
    place: Any = changed
    for name in path:
        place = place[name]
    place[last] += 1
    assert any(wrong.startswith(what) for wrong in faults_in(changed))
