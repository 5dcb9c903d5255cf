"""`MuonAdamW`: Muon for the matrices inside the layers, AdamW for everything else; one optimiser, one state.

Muon turns each matrix's momentum into its nearest orthogonal matrix by Newton–Schulz steps, which needs the whole
matrix. Of W ranks each holds some rows of every matrix. W matrices of one shape are therefore exchanged at a time: each
rank receives one of them whole, orthogonalises it, and hands its rows back. A step thus sends every matrix twice over
the wire in bfloat16 and computes each once in all. `torch.optim.Muon` on sharded tensors comes to the same update, but
gathers fifteen times for each matrix, once a product.
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.optim.adamw import adamw

from verifiers.rl.trainer.config import OptimConfig

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Keller Jordan's quintic; five steps
STEPS = 5


class MuonAdamW(torch.optim.Optimizer):
    """An optimiser of groups with a `kind`, "muon" or "adamw". See `groups_of`."""

    def __init__(self, groups: Iterable[dict[str, Any]], config: OptimConfig) -> None:
        defaults = {"lr": config.lr, "weight_decay": config.weight_decay, "kind": "adamw"}
        super().__init__(list(groups), defaults)
        self.config = config
        for group in self.param_groups:
            for parameter in group["params"]:
                # All state exists from the start, so that a checkpoint finds a place for each of its tensors.
                zeros = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                self.state[parameter] = (
                    {"momentum_buffer": zeros}
                    if group["kind"] == "muon"
                    else {"step": torch.tensor(0.0), "exp_avg": zeros, "exp_avg_sq": zeros.clone()}
                )

    def set_lr(self, lr: float) -> None:
        for group in self.param_groups:
            group["lr"] = lr

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Parameters without a gradient stay as they are."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            (self._muon if group["kind"] == "muon" else self._adamw)(parameters, group)
        return loss

    def _adamw(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        states = [self.state[parameter] for parameter in parameters]
        adamw(
            parameters,
            [cast(Tensor, parameter.grad) for parameter in parameters],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            amsgrad=False,
            beta1=self.config.betas[0],
            beta2=self.config.betas[1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=self.config.eps,
            maximize=False,
        )

    def _muon(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        momentum = self.config.momentum
        updates: list[Tensor] = []
        for parameter in parameters:
            grad = cast(Tensor, parameter.grad)
            buffer = self.state[parameter]["momentum_buffer"]
            buffer.lerp_(grad, 1 - momentum)
            updates.append(grad.lerp(buffer, momentum))
        for parameter, update in zip(parameters, orthogonalised(updates), strict=True):
            rows, columns = parameter.shape[-2:]
            # The update's root mean square becomes 0.2, about that of AdamW, so that both take one learning rate.
            size = 0.2 * math.sqrt(max(rows, columns))
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(update.to(parameter.dtype), alpha=-group["lr"] * size)


def groups_of(model: nn.Module, embeddings: Iterable[nn.Module | None], config: OptimConfig) -> list[dict[str, Any]]:
    """Groups for `MuonAdamW`; `embeddings` are the modules whose matrices are tables of tokens, head included."""
    tables = {id(parameter) for module in embeddings if module is not None for parameter in module.parameters()}
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        # Experts of one layer are one tensor [experts, out, in]; other tensors of three axes are convolutions.
        is_matrix = parameter.ndim == 2 or (parameter.ndim == 3 and "experts" in name.split("."))
        if config.muon and is_matrix and id(parameter) not in tables:
            matrices.append(parameter)
        elif parameter.ndim >= 2:
            others.append(parameter)
        else:
            vectors.append(parameter)
    groups = [
        {"params": matrices, "kind": "muon"},
        {"params": others, "kind": "adamw"},
        {"params": vectors, "kind": "adamw", "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def newton_schulz(update: Tensor) -> Tensor:
    """About U Vᵀ of each matrix [..., m, n] with the singular value decomposition U S Vᵀ, in bfloat16."""
    a, b, c = COEFFICIENTS
    x = update.bfloat16().reshape(math.prod(update.shape[:-2]), *update.shape[-2:])  # of no experts too
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).reshape(update.shape)


def orthogonalised(updates: list[Tensor]) -> list[Tensor]:
    """`newton_schulz` of each, sharded as they are. All ranks must call it with the same list."""
    found: dict[int, Tensor] = {}
    exchanged: dict[tuple[torch.Size, Any], list[int]] = defaultdict(list)
    for place, update in enumerate(updates):
        if not isinstance(update, DTensor):
            found[place] = newton_schulz(update)
        elif update.ndim > 2 and update.placements == (Shard(0),):
            found[place] = _like(update, newton_schulz(update.to_local()))  # a rank has its experts whole
        elif update.ndim == 2 and update.placements == (Shard(0),):
            exchanged[update.shape, update.device_mesh].append(place)
        else:
            whole = newton_schulz(update.full_tensor())
            everywhere = DTensor.from_local(whole, update.device_mesh, [Replicate()] * update.device_mesh.ndim)
            found[place] = everywhere.redistribute(placements=update.placements)
    for places in exchanged.values():
        shards = [cast(DTensor, updates[place]) for place in places]
        found |= zip(places, _exchanged(shards), strict=True)
    return [found[place] for place in range(len(updates))]


def _exchanged(updates: list[DTensor]) -> list[Tensor]:
    """As `orthogonalised`, for matrices of one shape that are sharded by rows over one axis of ranks."""
    rows, columns = updates[0].shape
    group = updates[0].device_mesh.get_group()
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    each = -(-rows // world)  # a rank holds so many rows; the last ones fewer, or none
    counts = [columns * max(0, min(each, rows - each * of_rank)) for of_rank in range(world)]
    found: list[Tensor] = []
    for start in range(0, len(updates), world):
        batch = updates[start : start + world]
        sent = torch.cat([update.to_local().bfloat16().flatten() for update in batch])
        send_counts = [counts[rank] if to < len(batch) else 0 for to in range(world)]
        is_mine = rank < len(batch)
        receive_counts = counts if is_mine else [0] * world
        whole = sent.new_empty(sum(receive_counts))
        dist.all_to_all_single(whole, sent, receive_counts, send_counts, group=group)
        if is_mine:
            whole = newton_schulz(whole.view(rows, columns)).flatten()
        back = torch.empty_like(sent)
        dist.all_to_all_single(back, whole, send_counts, receive_counts, group=group)
        for update, part in zip(batch, back.split(counts[rank]) if counts[rank] else [back] * len(batch), strict=True):
            found.append(_like(update, part.view(-1, columns)))
    return found


def _like(update: DTensor, local: Tensor) -> DTensor:
    return DTensor.from_local(
        local, update.device_mesh, update.placements, shape=update.shape, stride=update.stride(), run_check=False
    )
