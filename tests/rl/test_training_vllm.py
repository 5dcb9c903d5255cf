"""A model is trained by the real parts: vLLM on the CPU, our trainer, an environment of ours; and for the right reason.

Needs torch and transformers here (scripts/setup_train.sh) and vLLM elsewhere (scripts/setup_vllm.sh):
VF_TEST_VLLM_PYTHON=… .venv-train/bin/python -m pytest tests/rl/test_training_vllm.py. Takes 6 to 15 minutes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean

import msgspec
import pytest
from loopback import ROOT, outside_variables
from vllm_server import vllm_python

from verifiers.records import read_records
from verifiers.rl.metric_log import MetricLog
from verifiers.rl.samples import SampleSet, samples_of_group
from verifiers.rl.train_config import read_config
from verifiers.rl.train_run import run_training

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the trainer needs torch"),
]

EXAMPLE = ROOT / "examples" / "train_tiny"
STEPS = 150
LIMIT_S = 1200.0


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Path:
    """The model that training starts from."""
    folder = tmp_path_factory.mktemp("start")
    command = [sys.executable, str(EXAMPLE / "make_start.py"), str(folder)]
    done = subprocess.run(command, env=variables(), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return folder / "start" / "model"


def variables() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "environments" / "reverse_letters")])
    return outside_variables() | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def changes(start, tmp_path) -> dict[str, object]:
    """What a run here has other than the example: where it is, and ports and programs of this machine."""
    python = vllm_python()
    if python is None:
        pytest.skip("VF_TEST_VLLM_PYTHON does not name a Python with vLLM (scripts/setup_vllm.sh)")
    return {
        "run": str(tmp_path / "run"),
        "model.path": str(start),
        "inference.launch.python": str(python),
        "inference.launch.port": 20_000 + os.getpid() % 20_000,
    }


class Program:
    """`vf-train` as somebody would start it."""

    def __init__(self, changes: dict[str, object]) -> None:
        texts = [f"{name}={json.dumps(value)}" for name, value in changes.items()]
        code = "from verifiers.cli.main import train_main; train_main()"
        self.command = [sys.executable, "-c", code, str(EXAMPLE / "train.toml"), *texts]
        self.log = MetricLog(Path(str(changes["run"])) / "trainer.jsonl")
        self.errors = Path(str(changes["run"]) + ".log")

    def begin(self) -> None:
        with self.errors.open("ab") as log:
            self.process = subprocess.Popen(self.command, env=variables(), stdout=log, stderr=log)

    def steps(self) -> int:
        return len(self.log.read())

    def wait_for_step(self, step: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.steps() <= step:
            assert self.process.poll() is None, self.errors.read_text()[-3000:]
            assert time.monotonic() < deadline, self.errors.read_text()[-3000:]
            time.sleep(0.5)

    def child(self, marker: str) -> int:
        """The process that it started whose command has `marker` in it."""
        for entry in Path("/proc").iterdir():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and marker in (entry / "cmdline").read_text():
                    return int(entry.name)
            except (OSError, ValueError, IndexError):
                continue
        raise AssertionError(f"no {marker} among the parts")


def held_out(run: Path) -> list[float]:
    """Mean rewards of the evaluations, from the first to the last."""
    return [line.metrics["reward/reverse-letters-eval"] or 0.0 for line in MetricLog(run / "evaluations.jsonl").read()]


def trained_on(run: Path, count: int = 10 * 16 * 8) -> list[float]:
    """Mean rewards of ten steps' worth of rollouts after another, those of trivial groups among them."""
    rewards = [record.reward or 0.0 for record in read_records(run / "rollouts.jsonl")]
    return [fmean(rewards[start : start + count]) for start in range(0, len(rewards) - count + 1, count)]


def test_reward_rises_on_held_out_words_though_server_and_orchestrator_are_killed(changes):
    run = Path(str(changes["run"]))
    program = Program({**changes, "steps": STEPS})
    program.begin()
    try:
        program.wait_for_step(STEPS // 5)
        os.kill(program.child("vllm.entrypoints"), signal.SIGKILL)
        program.wait_for_step(2 * STEPS // 5)
        program.process.kill()
        program.process.wait()
        program.begin()
        assert program.process.wait(LIMIT_S) == 0, program.errors.read_text()[-3000:]
    finally:
        program.process.terminate()
        program.process.wait()
    rewards = held_out(run)
    assert rewards[0] < 0.5
    assert rewards[-1] > 0.8
    means = trained_on(run)
    assert means[0] < 0.5
    assert max(means) > 0.8  # it falls again towards the end: problems that are always solved are asked no more
    trained = program.log.read()
    assert [line.step for line in trained] == list(range(STEPS))
    # Both compute in float32: what is left is that rollouts end under newer weights than they began with.
    assert fmean(line.metrics["mismatch_kl"] or 0.0 for line in trained) < 0.02
    # After each update, of the same tokens: here nothing is left but rounding.
    gaps = [gap for line in MetricLog(run / "orchestrator.jsonl").read() if (gap := line.metrics.get("weights/gap"))]
    assert len(gaps) > STEPS / 2
    assert max(gaps) < 1e-3
    assert (run / "model" / "model.safetensors").exists()


async def test_with_permuted_advantages_nothing_is_learned(changes, monkeypatch):
    for name, value in variables().items():
        if name in ("PYTHONPATH", "OMP_NUM_THREADS"):
            monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(ROOT / "environments" / "reverse_letters"))
    generator = random.Random(0)
    changes = {**changes, "steps": 20}  # a policy that gets worse has few groups to learn from: steps take long
    config = read_config(EXAMPLE / "train.toml", changes)
    texts = [f"{name}={json.dumps(value)}" for name, value in changes.items()]

    def permuted(group, policy) -> SampleSet:
        """As it is, but whose advantage is whose is drawn by lot."""
        rewards = [rollout.record.reward for rollout in group.rollouts]
        generator.shuffle(rewards)
        rollouts = [
            msgspec.structs.replace(rollout, record=msgspec.structs.replace(rollout.record, reward=reward))
            for rollout, reward in zip(group.rollouts, rewards)
        ]
        return samples_of_group(msgspec.structs.replace(group, rollouts=rollouts), policy)

    await asyncio.wait_for(run_training(config, EXAMPLE / "train.toml", texts, samples_of=permuted), LIMIT_S)
    first, *_, last = held_out(config.folder)
    assert last < first + 0.1
