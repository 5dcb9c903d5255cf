"""Several ranks of a run's trainer: they train as one, die as one, and go on together from the checkpoint."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from gloo_inference import GlooInference
from rl_policies import batch_of, some_samples, torch, write_model
from safetensors.torch import load_file
from waiting import is_running, until

from verifiers.rl.metric_log import MetricLog
from verifiers.rl.pack import pack
from verifiers.rl.train_config import TrainConfig, read_config
from verifiers.rl.train_orchestrator import policy_of
from verifiers.rl.train_run import trainer_part
from verifiers.rl.trainer.trainer import Trainer
from verifiers.rl.transports.files import FileSender
from verifiers.rl.types import encode

LONG_S = 400.0  # for processes that start, twice: 20 s of a quiet core each
pytestmark = [pytest.mark.slow, pytest.mark.timeout(LONG_S + 100)]
RANKS, STEPS, KILLED_AT = 2, 4, 2  # steps are trained when a rank is killed


def config_of(path: Path, folder: Path, url: str) -> TrainConfig:
    path.write_text(
        f'run = "{folder}"\nsteps = {STEPS}\n[model]\npath = "{folder.parent / "model"}"\n[[env]]\nid = "e"\n'
        "[schedule]\ngroups_per_step = 4\nmax_in_flight = 32\n[samples]\nseq_len = 64\n[optim]\nlr = 0.003\n"
        f'[trainer]\nranks = {RANKS}\ndevice = "cpu"\nweights_dtype = "float32"\ncheckpoint_every = 1\n'
        f'[weights]\nway = "gloo"\n[inference]\nservers = ["{url}"]\n'
    )
    return read_config(path)


def alone(config: TrainConfig) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and last weights of one process over the same samples."""
    trainer = Trainer.start(config.of_trainer, device="cpu")
    losses = [trainer.step(batch_of(some_samples(9, seed=step), step=step))["loss"] for step in range(STEPS)]
    return losses, {name: tensor.clone() for name, tensor in trainer.named_weights()}


async def test_two_ranks_train_as_one_though_one_of_them_is_killed(tmp_path):
    start = load_file(write_model(tmp_path / "model") / "model.safetensors")
    async with GlooInference() as server:
        config = config_of(tmp_path / "run.toml", tmp_path / "run", server.url)
        log = MetricLog(config.folder / "trainer.jsonl")
        part = trainer_part(config, tmp_path / "run.toml", [])
        sender = FileSender(config.folder / "batches", RANKS)
        running = asyncio.create_task(part.run())
        try:
            async with policy_of(config, [server.url]) as (pool, feed):
                for step in range(STEPS):
                    if step == KILLED_AT:
                        await until(lambda: len(log.read()) == KILLED_AT, running, LONG_S)
                        first, second = part.pids
                        os.kill(second, signal.SIGKILL)
                        await until(lambda first=first: not is_running(first), running, LONG_S)
                    payloads = [encode(batch) for batch in pack(some_samples(9, seed=step), 64, RANKS, step)]
                    await sender.send(step, payloads)
                    new = await asyncio.wait_for(feed.newer_than(step), LONG_S)
                    await pool.update(new.version, new.source)
                await feed.end(STEPS)
            await running
        finally:
            running.cancel()
            await asyncio.wait([running])
    assert (part.deaths, server.joined) == (1, 2)
    losses, expected = alone(config)
    lines = log.read()
    assert [line.step for line in lines] == list(range(STEPS))
    assert [line.metrics["loss"] for line in lines] == pytest.approx(losses, rel=2e-4, abs=1e-6)
    model = load_file(config.folder / "model" / "model.safetensors")
    assert all(torch.equal(server.weights[name], tensor) for name, tensor in model.items())
    for name, tensor in expected.items():  # another order of additions, and Newton–Schulz in bfloat16
        assert (model[name] - tensor).norm() < 0.02 * (tensor - start[name]).norm(), name
