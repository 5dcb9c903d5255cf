"""`run_training`: the parts of a run on one machine: servers, trainer and orchestrator, with a view of all of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from verifiers.errors import ConfigError
from verifiers.rl.launch import VLLMLaunch
from verifiers.rl.parts import Part
from verifiers.rl.samples import samples_of_group
from verifiers.rl.speculate.engine import speculative_config
from verifiers.rl.train_config import TrainConfig
from verifiers.rl.train_orchestrator import SamplesOf, orchestrate

PARTS = ("all", "orchestrator", "trainer", "servers")


def launches_of(config: TrainConfig) -> list[VLLMLaunch]:
    """The servers that a run starts; none when it is given some."""
    table = config.inference.launch
    if table is None:
        return []
    return [
        VLLMLaunch(
            model=str(Path(config.model.path).absolute()),
            python=table.python,
            served_name=config.inference.model,
            port=table.port + number,
            dtype=table.dtype,
            max_model_len=table.max_model_len,
            max_num_seqs=table.max_num_seqs,
            tensor_parallel=table.tensor_parallel,
            transfer="nccl" if config.weights.way == "nccl" else "verifiers",
            tool_parser=table.tool_parser,
            reasoning_parser=table.reasoning_parser,
            speculation=speculative_config(table.suffix_decoding) if table.suffix_decoding else None,
            cpu=table.cpu,
            extra=tuple(table.extra),
            more_variables={"CUDA_VISIBLE_DEVICES": table.devices[number]} if table.devices else {},
        )
        for number in range(table.count)
    ]


def server_parts(config: TrainConfig) -> list[Part]:
    logs = config.folder / "logs"
    return [
        Part(f"server {number}", launch.command, logs / f"server-{number}.log", launch.variables)
        for number, launch in enumerate(launches_of(config))
    ]


def trainer_part(config: TrainConfig, path: Path, changes: Sequence[str]) -> Part:
    """One process a rank."""
    table = config.trainer
    command = [table.python or sys.executable, "-m", "verifiers.rl.trainer.program", str(path), *changes]
    variables = {} if table.devices is None else {"CUDA_VISIBLE_DEVICES": table.devices}
    if table.device == "cpu":
        variables["OMP_NUM_THREADS"] = "1"
    return Part("trainer", command, config.folder / "logs" / "trainer.log", variables, ranks=table.ranks)


async def run_training(
    config: TrainConfig,
    path: Path,
    changes: Sequence[str] = (),
    *,
    part: str = "all",
    on_step: Callable[[int, dict[str, float]], None] | None = None,
    samples_of: SamplesOf = samples_of_group,
) -> None:
    """Runs to the last step. A part that dies is started again. Raises PartFailed when that does not help.

    `path` and `changes` are what `config` was read from: the trainer's program reads them itself. `part` runs one of
    `PARTS` alone, for a run that is spread over machines with a folder in common.
    """
    if part not in PARTS:
        raise ConfigError(f"no part '{part}'; there are: {', '.join(PARTS)}")
    config.folder.mkdir(parents=True, exist_ok=True)
    servers, trainer = server_parts(config), trainer_part(config, path, changes)
    if part == "servers" and not servers:
        raise ConfigError("inference.launch: missing; it says which servers to start")
    beside = {"all": [*servers, trainer], "servers": servers, "trainer": [trainer], "orchestrator": []}[part]
    urls = config.inference.servers or [launch.url for launch in launches_of(config)]
    tasks = [asyncio.create_task(one.run(), name=one.name) for one in beside]
    if part in ("all", "orchestrator"):
        tasks.append(asyncio.create_task(orchestrate(config, urls, on_step, samples_of), name="orchestrator"))
    try:
        await _until_done(tasks, part)
    finally:
        await _end(tasks)


async def _until_done(tasks: list[asyncio.Task[Any]], part: str) -> None:
    """Servers run for as long as anybody needs them: until orchestrator and trainer have ended, or for ever alone."""
    needed = {task for task in tasks if part == "servers" or not task.get_name().startswith("server")}
    while needed:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # raises what it failed with
        tasks[:] = [task for task in tasks if task not in done]
        needed -= done


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
