"""What each of several ranks does in the tests:  torchrun's variables, then  rl_ranks_program.py MODEL FOLDER

Trains, and writes what came out, so that the test can lay it beside one process. Rank 0 writes for all.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import torch
from rl_policies import some_samples
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from verifiers.rl.pack import pack
from verifiers.rl.trainer.config import ModelConfig, OptimConfig, TrainerConfig
from verifiers.rl.trainer.optim import newton_schulz, orthogonalised
from verifiers.rl.trainer.trainer import NotFinite, Trainer
from verifiers.rl.types import RankBatch

STEPS = 3
OPTIM = OptimConfig(lr=0.003, max_grad_norm=0.5)
SHAPES = [(12, 20), (12, 20), (12, 20), (7, 5), (5, 7), (1, 6), (1, 6), (4, 6, 10), (3, 6, 10), (1, 6, 10)]


def batches(rank: int, world_size: int) -> list[RankBatch]:
    """The last step has fewer sequences than there are places for, so that a rank gets a filler."""
    return [pack(some_samples(count, seed=step), 64, world_size, step)[rank] for step, count in enumerate((9, 12, 1))]


def trainer_of(model: str, **options: Any) -> Trainer:
    return Trainer.start(TrainerConfig(model=ModelConfig(path=model, **options), optim=OPTIM), device="cpu")


def matrices() -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [torch.randn(shape) for shape in SHAPES]


def orthogonal_as_alone(rank: int, world_size: int) -> dict[str, float]:
    """By shape and sharded axis, the largest difference to the matrix computed whole."""
    mesh = init_device_mesh("cpu", (world_size,))
    found: dict[str, float] = {}
    for axis in (0, 1):
        sharded = [distribute_tensor(matrix, mesh, [Shard(axis)]) for matrix in matrices()]
        for number, (matrix, update) in enumerate(zip(matrices(), orthogonalised(list(sharded)), strict=True)):
            difference = (update.full_tensor().float() - newton_schulz(matrix).float()).abs().max().item()  # pyright: ignore
            found[f"{number} {tuple(matrix.shape)} axis {axis}"] = difference
    return found


def broken(batch: RankBatch, rank: int) -> RankBatch:
    """As it was, but that one rank's advantages are infinite."""
    if rank != 0:
        return batch
    inf = [float("inf")]
    return msgspec.structs.replace(
        batch,
        micro_batches=[
            msgspec.structs.replace(
                micro, advantage_buffer=torch.tensor(inf * len(micro.mask_buffer)).numpy().tobytes()
            )
            for micro in batch.micro_batches
        ],
    )


def main(model: str, folder: Path) -> None:
    trainer = trainer_of(model)
    rank, world_size = trainer.ranks.rank, trainer.ranks.world_size
    mine = batches(rank, world_size)
    told: dict[str, Any] = {"metrics": [], "orthogonal": orthogonal_as_alone(rank, world_size)}
    probe = mine[0].micro_batches[0]
    told["probe"] = trainer.logprobs(probe)  # between steps, which must see no stale weights after it
    for batch in mine[:2]:
        told["metrics"].append(trainer.step(batch))
        trainer.logprobs(probe)
    told["local_numel"] = sum(parameter.to_local().numel() for parameter in trainer.model.parameters())  # pyright: ignore
    trainer.save(folder / "checkpoints")
    try:
        trainer.step(broken(mine[2], rank))
        told["refused"] = False
    except NotFinite:
        told["refused"] = True
    told["metrics"].append(trainer.step(mine[2]))
    trainer.export(folder / "trained", torch.float32)

    again = trainer_of(model, activation_checkpointing=True)
    told["resumed"] = again.resume(folder / "checkpoints")
    told["again"] = again.step(mine[2])
    again.export(folder / "again", torch.float32)

    mixed = trainer_of(model, compute="bfloat16")
    told["mixed"] = [mixed.step(batch) for batch in mine]
    (folder / f"told_{rank}.json").write_text(json.dumps(told))
    trainer.close()


if __name__ == "__main__":
    faulthandler.dump_traceback_later(150, repeat=True)  # what they wait for, should they never end
    main(sys.argv[1], Path(sys.argv[2]))
