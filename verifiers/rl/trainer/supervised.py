"""Supervised stages, one after the other: each a run of its own that starts from the weights that the last one wrote.

A stage lives in a folder: `checkpoints/` while it runs, `model/` when it is done. So a run that is started again skips
what is done and goes on in the middle of what is not.
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from verifiers.errors import ConfigError
from verifiers.rl.trainer.config import CrossEntropy, ModelConfig, OptimConfig, TrainerConfig
from verifiers.rl.trainer.conversations import DataConfig, Renders, StageData
from verifiers.rl.trainer.trainer import Trainer


class StageConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str  # of its folder
    data: DataConfig
    optim: OptimConfig = OptimConfig(lr=1e-5)


class SupervisedConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The report's two stages are two entries of `stages`: general reasoning first, then tools and agents."""

    model: ModelConfig  # that the first stage starts from
    stages: list[StageConfig]
    folder: str  # everything that is written goes below it
    checkpoint_every: int = 100  # steps
    seed: int = 0

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        if (
            not names
            or len(set(names)) < len(names)
            or not all(name.replace("-", "_").isidentifier() for name in names)
        ):
            raise ConfigError(f"stages: names {names}; should be at least one stage, of different plain names")
        if self.checkpoint_every < 1:
            raise ConfigError(f"checkpoint_every: {self.checkpoint_every}; should be at least 1")


OnStep = Callable[[str, int, int, dict[str, float]], None]  # stage, step, steps of the stage, metrics


def train_supervised(
    config: SupervisedConfig, renderer: Renders, *, on_step: OnStep | None = None, device: str | None = None
) -> Path:
    """All stages; returns the folder of the last model, in float32. To be called on all ranks."""
    start = config.model.path
    for stage in config.stages:
        folder = Path(config.folder) / stage.name
        if not (folder / "model").exists():
            model = msgspec.structs.replace(config.model, path=start)
            _train_stage(config, stage, model, folder, renderer, on_step, device)
        start = str(folder / "model")
    return Path(start)


def _train_stage(
    config: SupervisedConfig,
    stage: StageConfig,
    model: ModelConfig,
    folder: Path,
    renderer: Renders,
    on_step: OnStep | None,
    device: str | None,
) -> None:
    data = StageData.read(stage.data, renderer, seed=config.seed)
    settings = TrainerConfig(model=model, loss=CrossEntropy(), optim=stage.optim, seed=config.seed)
    trainer = Trainer.start(settings, device=device)
    trainer.resume(folder / "checkpoints")
    ranks = trainer.ranks
    for step in range(trainer.next_step, data.steps):
        metrics = trainer.step(data.batch(step, ranks.world_size)[ranks.rank])
        if on_step is not None:
            on_step(stage.name, step, data.steps, metrics)
        if trainer.next_step % config.checkpoint_every == 0:
            trainer.save(folder / "checkpoints")
    trainer.export(folder / "model", torch.float32)
    if ranks.rank == 0:  # what they are for is done
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
