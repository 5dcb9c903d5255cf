"""`Outlet`: how a trainer gives its weights to model servers: as folders, or sent by its first rank (`sending.py`)."""

# pyright: reportMissingImports=false
# torch is an extra

from __future__ import annotations

from typing import Protocol

import torch

from verifiers.rl.train_config import TrainConfig
from verifiers.rl.trainer.sending import SendingOutlet
from verifiers.rl.trainer.trainer import Trainer
from verifiers.rl.transports.transport import BatchReceiver
from verifiers.rl.types import RankBatch
from verifiers.rl.weight_folder import WeightFolder


class Outlet(Protocol):
    """All methods are called on all ranks, in the same order."""

    async def open(self) -> None:
        """The trainer has the weights that it goes on from."""
        ...

    async def receive(self, receiver: BatchReceiver, step: int) -> RankBatch:
        """This rank's batch of a step. The weights do not change before it returns."""
        ...

    async def give(self) -> None:
        """Returns when the weights of now may change."""
        ...

    async def done(self) -> None:
        """The last step is trained, and the run's `model` folder has the weights."""
        ...

    async def close(self) -> None: ...


def outlet_of(config: TrainConfig, trainer: Trainer) -> Outlet:
    dtype = getattr(torch, config.trainer.weights_dtype)
    if config.weights.way == "folder":
        folder = WeightFolder(config.folder / "weights", keep=config.trainer.keep_weights)
        return FolderOutlet(trainer, folder, dtype)
    return SendingOutlet(trainer, config.folder, config.weights, dtype)


class FolderOutlet:
    """A folder for each version; servers read when they are told to."""

    def __init__(self, trainer: Trainer, folder: WeightFolder, dtype: torch.dtype) -> None:
        self._trainer, self._folder, self._dtype = trainer, folder, dtype

    async def open(self) -> None:
        """The folders may be older than the checkpoint: memory that the machine has lost, steps that were sent."""
        newest = self._folder.versions()
        if self._trainer.version > (newest[-1] if newest else 0):
            await self.give()

    async def receive(self, receiver: BatchReceiver, step: int) -> RankBatch:
        return await receiver.receive(step)

    async def give(self) -> None:
        self._trainer.export(self._folder.path(self._trainer.version), self._dtype)
        if self._trainer.ranks.rank == 0:
            self._folder.prune()

    async def done(self) -> None:
        return

    async def close(self) -> None:
        return
