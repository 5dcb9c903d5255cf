"""The benchmark of the trainer on a GPU works, and says so on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rl_policies import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "train_gpu.py"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_benchmark_reports_speed_and_that_losses_agree():
    command = [sys.executable, str(SCRIPT), "--tiny", "--device", "cpu", "--steps", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["agrees"]
    assert report["torch"] == torch.__version__
    for label in ("4k", "16k", "4k checkpointed", "16k checkpointed"):
        assert report[label]["tokens_per_s"] > 0
