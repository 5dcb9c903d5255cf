"""A run that sends its weights: trainer, orchestrator's end and servers agree on each version, whoever comes back."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from gloo_inference import GlooInference
from inference_servers import FakeInference
from loopback import ROOT
from rl_policies import batch_of, some_samples, torch, write_model
from vllm_server import vllm_python
from waiting import until

from verifiers.errors import SetupError
from verifiers.rl import sending
from verifiers.rl.inference import UpdateError
from verifiers.rl.metric_log import MetricLog
from verifiers.rl.sent_feed import SentFeed
from verifiers.rl.train_config import TrainConfig, read_config
from verifiers.rl.train_orchestrator import policy_of
from verifiers.rl.train_run import run_training
from verifiers.rl.trainer.program import train
from verifiers.rl.trainer.trainer import Trainer
from verifiers.rl.transports.files import FileSender
from verifiers.rl.types import encode
from verifiers.rl.weight_folder import WeightFolder

pytestmark = pytest.mark.timeout(240)


class Run:
    """A run's folder and configuration, its batches, and its trainer in a thread."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.path, self.model = folder / "run.toml", model
        self.path.write_text(
            f'run = "{folder / "run"}"\nsteps = 3\n[model]\npath = "{model}"\n[[env]]\nid = "e"\n'
            "[schedule]\ngroups_per_step = 4\nmax_in_flight = 32\n[samples]\nseq_len = 64\n[optim]\nlr = 0.003\n"
            '[trainer]\ndevice = "cpu"\nweights_dtype = "float32"\ncheckpoint_every = 1\n'
            '[weights]\nway = "gloo"\ntimeout_s = 60\n'
        )
        self.sender = FileSender(folder / "run" / "batches", 1)
        self.next = 0
        self.threads: list[concurrent.futures.Future[None]] = []

    def config(self, *servers: FakeInference, **changes) -> TrainConfig:
        urls = [server.url for server in servers] or ["http://127.0.0.1:1/v1"]
        return read_config(self.path, {"inference.servers": urls} | changes)

    async def batches(self, count: int) -> None:
        for step in range(self.next, self.next + count):
            await self.sender.send(step, [encode(batch_of(some_samples(9, seed=step), step=step))])
        self.next += count

    def start(self, config: TrainConfig) -> concurrent.futures.Future[None]:
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def work() -> None:
            try:
                train(config, Trainer.start(config.of_trainer, device="cpu"))
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return done

    def expected(self, steps: int) -> dict[str, torch.Tensor]:
        """The weights after so many steps, trained here."""
        trainer = Trainer.start(self.config().of_trainer, device="cpu")
        for step in range(steps):
            trainer.step(batch_of(some_samples(9, seed=step), step=step))
        return {name: tensor.clone() for name, tensor in trainer.named_weights()}


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture
def run(tmp_path, model) -> Run:
    return Run(tmp_path, model)


async def ended(trainer: concurrent.futures.Future[None]) -> None:
    await asyncio.wait_for(asyncio.wrap_future(trainer), 60)


async def test_every_version_reaches_every_server_though_the_next_batch_is_there(run):
    async with GlooInference() as one, GlooInference() as other:
        config = run.config(one, other)
        await run.batches(3)
        trainer = run.start(config)
        async with policy_of(config, [one.url, other.url]) as (pool, feed):
            for version in (1, 2, 3):
                new = await feed.newer_than(version - 1)
                assert new.version == version
                report = await pool.update(new.version, new.source)
                assert len(report.updated) == 2
                assert [one.version, other.version] == [str(version)] * 2
                assert same(one.weights, run.expected(version)) and same(other.weights, run.expected(version))
            await feed.end(3)
        await ended(trainer)
    assert [one.joined, other.joined] == [1, 1], "the connections last"
    assert not (config.folder / "weights").exists()
    from safetensors.torch import load_file

    assert same(load_file(config.folder / "model" / "model.safetensors"), run.expected(3))


async def test_a_lone_server_that_was_started_anew_is_sent_the_same_weights_again(run):
    """No step may be needed for it: the next batch cannot come before it answers."""
    async with AsyncExitStack() as stack:
        first = await GlooInference().__aenter__()
        config = run.config(first, steps=1)
        await run.batches(1)
        trainer = run.start(run.config(first, steps=2))
        pool, feed = await stack.enter_async_context(policy_of(config, [first.url]))
        new = await feed.newer_than(0)
        await pool.update(new.version, new.source)
        await first.__aexit__()
        await until(lambda: _looked(pool, lambda: not pool.serving))
        again = await stack.enter_async_context(GlooInference(port=first.port))
        again.since = 1
        await until(lambda: _looked(pool, lambda: pool.serving))
        assert again.version == "1"
        assert same(again.weights, run.expected(1))
        await run.batches(1)
        await feed.end(2)
        await ended(trainer)


async def _looked(pool, holds) -> bool:
    await pool.look()
    return bool(holds())


async def test_after_a_restart_of_the_trainer_the_connection_is_made_again(run):
    async with GlooInference() as server:
        config = run.config(server)
        await run.batches(2)
        trainer = run.start(run.config(server, steps=2))
        async with policy_of(config, [server.url]) as (pool, feed):
            for last in (2, 3):
                while pool.version < last:
                    new = await feed.newer_than(pool.version)
                    await pool.update(new.version, new.source)
                assert same(server.weights, run.expected(last))
                await ended(trainer)
                await run.batches(1)
                trainer = run.start(config)  # goes on from the checkpoint
            await feed.end(3)
            await ended(trainer)
    assert server.joined == 2


async def test_weights_that_the_trainer_took_along_are_told_as_such_and_the_next_ones_come(run):
    """It dies between news and update: the servers keep their old weights, whole, until it is back at the version."""
    async with GlooInference() as server:
        config = run.config(server)
        await run.batches(1)
        trainer = run.start(run.config(server, steps=1))
        async with policy_of(config, [server.url]) as (pool, feed):
            new = await feed.newer_than(0)
            feed.pass_over(1)  # as if it had been taken
            await ended(trainer)
            with pytest.raises(UpdateError, match=r"the trainer is away|does not have the weights of version 1"):
                await pool.update(new.version, new.source)
            assert (pool.version, server.state, server.is_paused) == (0, "whole", False)
            assert len(pool.serving) == 1


@pytest.mark.parametrize(
    ("engine", "fault", "words"),
    [
        ("NCCLWeightTransferEngine", None, "its weight transfer is NCCL.*start it with --weight-transfer-config"),
        ("VerifiersEngine", (400, "2 tensors are of another shape"), "2 tensors are of another shape"),
    ],
    ids=["another engine", "another model"],
)
async def test_a_server_that_cannot_be_sent_weights_is_named_at_the_start(run, engine, fault, words):
    async with GlooInference() as server:
        server.engine = engine
        if fault is not None:
            server.faults["/init_weight_transfer_engine"] = [fault]
        config = run.config(server, steps=1)
        trainer = run.start(config)
        with pytest.raises(SetupError, match=rf"weights.way = 'gloo'(.|\n)*{server.url}: (.|\n)*{words}"):
            async with policy_of(config, [server.url]):
                pass
        await run.batches(1)
        async with SentFeed(config.folder) as feed:  # an orchestrator that takes no weights lets the trainer end
            await feed.end(1)
        await ended(trainer)
    assert server.asked.count("/update_weights") == 0


async def test_nobody_but_the_run_s_orchestrator_is_let_in(run):
    config = run.config(steps=1)
    trainer = run.start(config)
    await run.batches(1)
    address = await until(lambda: sending.Address.read(config.folder))
    assert (config.folder / "sending").stat().st_mode & 0o077 == 0
    reader, writer = await asyncio.open_connection(address.host, address.port)
    sending.put(writer, sending.Hello(sending.PROTOCOL, "guessed"))
    assert await reader.read() == b""
    writer.close()
    async with SentFeed(config.folder) as feed:
        await feed.end(1)
    await ended(trainer)
    assert json.loads((config.folder / "trainer.jsonl").read_text())["step"] == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it could be sent by")
async def test_nccl_without_a_gpu_is_refused_by_the_trainer(run):
    config = run.config(**{"weights.way": "nccl", "trainer.device": None})
    with pytest.raises(SetupError, match=r"weights.way = 'nccl': the trainer has no GPU"):
        await ended(run.start(config))


async def test_by_folder_a_trainer_that_comes_back_gives_what_is_no_longer_there(run):
    """Weights in memory are gone with a machine's restart, and the next batch may need servers that have them."""
    await run.batches(2)
    await ended(run.start(run.config(steps=2, **{"weights.way": "folder"})))
    config = run.config(**{"weights.way": "folder"})
    weights = WeightFolder(config.folder / "weights")
    assert weights.versions() == [1, 2]
    shutil.rmtree(weights.folder)
    trainer = run.start(config)
    await until(lambda: weights.versions() == [2])
    await run.batches(1)
    await ended(trainer)
    assert weights.versions() == [2, 3]


EXAMPLE = ROOT / "examples" / "train_tiny"
LIMIT_S = 900.0
STEPS = 5


@pytest.fixture
def example(tmp_path, monkeypatch) -> dict[str, object]:
    """Settings over those of the example, whose model is made first."""
    python = vllm_python()
    if python is None:
        pytest.skip("VF_TEST_VLLM_PYTHON does not name a Python with vLLM (scripts/setup_vllm.sh)")
    environments = ROOT / "environments" / "reverse_letters"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(environments)]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(str(environments))
    subprocess.run([sys.executable, EXAMPLE / "make_start.py", tmp_path], check=True, timeout=LIMIT_S)
    return {
        "run": str(tmp_path / "run"),
        "model.path": str(tmp_path / "start" / "model"),
        "steps": STEPS,
        "eval": [],
        "schedule.groups_per_step": 4,
        "schedule.max_in_flight": 32,
        "trainer.checkpoint_every": 2,
        "weights.way": "gloo",
        "inference.launch.python": str(python),
        "inference.launch.port": 20_000 + os.getpid() % 20_000,
    }


def part_of_mine(marker: str) -> int:
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and marker in (entry / "cmdline").read_text():
                return int(entry.name)
    raise AssertionError(f"no {marker} among the parts")


@pytest.mark.vllm
@pytest.mark.timeout(3 * LIMIT_S)
async def test_a_run_on_vllm_by_gloo_goes_on_though_trainer_and_server_are_killed(example):
    """After each update the server's log-probabilities are those of the trainer, before and after either was killed."""
    path = EXAMPLE / "train.toml"
    config = read_config(path, example)
    texts = [f"{name}={json.dumps(value)}" for name, value in example.items()]
    log = MetricLog(config.folder / "trainer.jsonl")
    running = asyncio.create_task(run_training(config, path, texts))
    try:
        for steps, marker in ((1, "vllm.entrypoints"), (2, "trainer.program")):
            await until(lambda steps=steps: len(log.read()) >= steps, running, LIMIT_S)
            os.kill(part_of_mine(marker), signal.SIGKILL)
        await asyncio.wait_for(running, LIMIT_S)
    finally:
        running.cancel()
        await asyncio.wait([running])
    lines = log.read()
    assert [line.step for line in lines] == list(range(STEPS))
    shipped = MetricLog(config.folder / "orchestrator.jsonl").read()
    gaps = {
        line.metrics["weights/version"]: line.metrics["weights/gap"]
        for line in shipped
        if "weights/gap" in line.metrics
    }
    assert gaps and max(gaps.values()) < 0.01, gaps  # as of a shipped batch; a mismatch later on ends the run
    assert (config.folder / "model" / "model.safetensors").exists()
    assert not (config.folder / "weights").exists()
