"""The trainer's program, one process a rank:  python -m verifiers.rl.trainer.program CONFIG.toml [name=value …]

It takes batches from the run's folder and leaves weights, checkpoints and figures there. Started again it goes on from
its newest checkpoint; the batches since then are still there.
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import torch

from verifiers.rl.metric_log import MetricLog
from verifiers.rl.parts import changes_of
from verifiers.rl.train_config import TrainConfig, read_config
from verifiers.rl.trainer.trainer import Trainer
from verifiers.rl.transports.files import FileReceiver
from verifiers.rl.weight_folder import WeightFolder


def main(arguments: list[str]) -> None:
    config = read_config(Path(arguments[0]), changes_of(arguments[1:]))
    if config.trainer.device == "cpu" or not torch.cuda.is_available():
        torch.set_num_threads(1)  # ranks that share cores wait for each other at every operation otherwise
    trainer = Trainer.start(config.of_trainer, device=config.trainer.device)
    try:
        train(config, trainer)
    finally:
        trainer.close()


def train(config: TrainConfig, trainer: Trainer) -> None:
    """From where the newest checkpoint left off to the last step."""
    folder, rank = config.folder, trainer.ranks.rank
    weights = WeightFolder(folder / "weights", keep=config.trainer.keep_weights)
    dtype = getattr(torch, config.trainer.weights_dtype)
    log = MetricLog(folder / "trainer.jsonl") if rank == 0 else None
    trainer.resume(folder / "checkpoints")
    receiver = FileReceiver(folder / "batches", rank)
    with asyncio.Runner() as runner:
        while (step := trainer.next_step) < config.steps:
            asked = time.monotonic()
            batch = runner.run(receiver.receive(step))
            waited_s = time.monotonic() - asked
            metrics = trainer.step(batch) | {"wait_s": waited_s}
            began = time.monotonic()
            trainer.export(weights.path(trainer.version), dtype)
            metrics["export_s"] = time.monotonic() - began
            if log is not None:
                weights.prune()
                log.write(step, metrics)
            if trainer.next_step % config.trainer.checkpoint_every == 0 or trainer.next_step == config.steps:
                trainer.save(folder / "checkpoints")
                runner.run(receiver.release(step))
    trainer.export(folder / "model", dtype)


if __name__ == "__main__":
    main(sys.argv[1:])
