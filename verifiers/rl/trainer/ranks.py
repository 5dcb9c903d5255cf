"""`Ranks`: the processes that train one model together, each with its share of the data and of every weight.

One process is the same thing without company: it needs no process group, and nothing of this file is in its way.
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from verifiers.rl.trainer.config import ModelConfig
from verifiers.rl.trainer.model import PolicyModel

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


@dataclass(frozen=True, slots=True)
class Ranks:
    rank: int
    world_size: int
    device: torch.device

    @classmethod
    def join(cls, device: str | None = None) -> Ranks:
        """From the environment variables that `torchrun` sets; one process where there are none.

        `device` is "cpu" or "cuda"; None: a GPU where there is one. Waits until all ranks have joined.
        """
        rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if kind == "cuda" else torch.device(kind)
        if kind == "cuda":
            torch.cuda.set_device(place)
        if world_size > 1 and not dist.is_initialized():
            dist.init_process_group(BACKENDS[kind], device_id=place if kind == "cuda" else None)
        return cls(rank, world_size, place)

    def leave(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def shard(self, model: PolicyModel, config: ModelConfig) -> PolicyModel:
        """FSDP2: every rank keeps its rows of each weight, and a layer is whole only while it is computed.

        One process that computes in float32 has nothing to shard, and nothing to convert.
        """
        if self.world_size == 1 and config.compute == "float32":
            return model
        mesh = self._mesh()
        exact, fast = torch.float32, getattr(torch, config.compute)
        inside = MixedPrecisionPolicy(param_dtype=fast, reduce_dtype=exact)
        around = MixedPrecisionPolicy(param_dtype=exact if config.fp32_head else fast, reduce_dtype=exact)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=inside)
        # What is left: embedding, last norm and head, in one group, as the first and the last may be one matrix.
        return cast(PolicyModel, fully_shard(model, mesh=mesh, mp_policy=around, reshard_after_forward=False))

    def sum(self, values: Tensor) -> Tensor:
        return self._reduced(values, dist.ReduceOp.SUM)

    def max(self, values: Tensor) -> Tensor:
        return self._reduced(values, dist.ReduceOp.MAX)

    def barrier(self) -> None:
        if self.world_size > 1:
            dist.barrier()

    def _reduced(self, values: Tensor, op: dist.ReduceOp.RedOpType) -> Tensor:
        if self.world_size > 1:
            dist.all_reduce(values, op)
        return values

    def _mesh(self) -> DeviceMesh:
        if not dist.is_initialized():  # one process that mixes precisions is a group of one
            place = self.device if self.device.type == "cuda" else None
            backend = BACKENDS[self.device.type]
            dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1, device_id=place)
        return init_device_mesh(self.device.type, (self.world_size,))


def parameters_of(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
