"""The benchmark that trains asynchronously beside synchronously: updates fall into rollouts of one of them only."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import rl_policies  # noqa: F401 (skips without torch)

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rl_curves.py"


@pytest.mark.slow
def test_updates_fall_into_rollouts_and_both_train_on_as_many_samples(tmp_path):
    report = tmp_path / "curves.json"
    command = [sys.executable, str(SCRIPT), "--steps", "4", "--ratios", "3", "--json", str(report)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    told = json.loads(report.read_text())
    found = told["ratios"]["3"]
    slow, fast = found["synchronous"], found["asynchronous"]
    assert found["faster"] > 1
    assert slow["crossed"] == 0 < fast["crossed"]
    assert fast["versions"] > 1 == slow["versions"]
    assert max(slow["mismatch_kl"]) < 1e-6 < max(fast["mismatch_kl"])
    assert max(slow["age"]) == 0 < max(fast["age"])
    for name in ("held_out", "reward", "loss", "step_s"):
        assert len(slow[name]) == len(fast[name]) == 4
    assert slow["held_out"][0] == pytest.approx(fast["held_out"][0], abs=0.02)  # the first batch is the same, but for
    assert slow["reward"][0] == pytest.approx(fast["reward"][0], abs=0.05)  # the order of its sums
