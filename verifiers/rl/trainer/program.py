"""The trainer's program, one process a rank:  python -m verifiers.rl.trainer.program CONFIG.toml [name=value …]

It takes batches from the run's folder, gives its weights to the servers by the run's way, and leaves checkpoints and
figures in the folder. Started again it goes on from its newest checkpoint; the batches since then are still there.

Exit status 3: it cannot run here, and another try would not help.
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import torch

from verifiers.errors import SetupError
from verifiers.rl.metric_log import MetricLog
from verifiers.rl.parts import SET_UP, changes_of
from verifiers.rl.train_config import TrainConfig, read_config
from verifiers.rl.trainer.checked_step import checked_step
from verifiers.rl.trainer.outlet import outlet_of
from verifiers.rl.trainer.trainer import Trainer
from verifiers.rl.transports.files import FileReceiver
from verifiers.rl.weight_check import ScoredTexts


def main(arguments: list[str]) -> None:
    config = read_config(Path(arguments[0]), changes_of(arguments[1:]))
    if config.trainer.device == "cpu" or not torch.cuda.is_available():
        torch.set_num_threads(1)  # ranks that share cores wait for each other at every operation otherwise
    trainer = Trainer.start(config.of_trainer, device=config.trainer.device)
    try:
        train(config, trainer)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(SET_UP)
    finally:
        trainer.close()


def train(config: TrainConfig, trainer: Trainer) -> None:
    """From where the newest checkpoint left off to the last step."""
    folder, rank = config.folder, trainer.ranks.rank
    log = MetricLog(folder / "trainer.jsonl") if rank == 0 else None
    trainer.resume(folder / "checkpoints")
    receiver = FileReceiver(folder / "batches", rank)
    texts = None if config.weight_check.on_mismatch == "off" else ScoredTexts(folder / "weight_checks")
    outlet = outlet_of(config, trainer)
    with asyncio.Runner() as runner:
        try:
            runner.run(outlet.open())
            while (step := trainer.next_step) < config.steps:
                asked = time.monotonic()
                batch = runner.run(outlet.receive(receiver, step))
                waited_s = time.monotonic() - asked
                metrics = checked_step(trainer, batch, texts) | {"wait_s": waited_s}
                began = time.monotonic()
                runner.run(outlet.give())
                metrics["export_s"] = time.monotonic() - began
                if log is not None:
                    log.write(step, metrics)
                if trainer.next_step % config.trainer.checkpoint_every == 0 or trainer.next_step == config.steps:
                    trainer.save(folder / "checkpoints")
                    runner.run(receiver.release(step))
            trainer.export(folder / "model", getattr(torch, config.trainer.weights_dtype))
            runner.run(outlet.done())
        finally:
            runner.run(outlet.close())


if __name__ == "__main__":
    main(sys.argv[1:])
