"""`Trainer`: one rank's part in training one model, a step a call.

trainer = Trainer.start(TrainerConfig(model=ModelConfig(path="qwen")))
for batch in batches:                      # RankBatch, one a step
    metrics = trainer.step(batch)          # trainer.version has gone up by one
    send(trainer.version, trainer.named_weights())
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from verifiers.rl.trainer.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from verifiers.rl.trainer.config import TrainerConfig
from verifiers.rl.trainer.loss import LossFunction, LossInput, LossOutput, loss_of
from verifiers.rl.trainer.model import Packed, PolicyModel, load_model
from verifiers.rl.trainer.optim import MuonAdamW, groups_of
from verifiers.rl.trainer.ranks import Ranks, parameters_of
from verifiers.rl.trainer.weights import export, named_weights
from verifiers.rl.types import MicroBatch, RankBatch


class NotFinite(FloatingPointError):
    """A loss or gradient that is infinite or no number. The weights are those of before the step."""


class Trainer:
    """`step` counts trainer steps, `version` the weight updates that they made: the policy's version."""

    def __init__(self, config: TrainerConfig, model: PolicyModel, ranks: Ranks) -> None:
        causal = model.causal
        groups = groups_of(model, [causal.get_input_embeddings(), causal.get_output_embeddings()], config.optim)
        self.config = config
        self.model = model
        self.ranks = ranks
        self.optimizer = MuonAdamW(groups, config.optim)
        self.next_step = 0
        self.version = 0
        self.extra: dict[str, Any] = {}  # saved with a checkpoint, and found again after `resume`
        self._loss: LossFunction = loss_of(config.loss)

    @classmethod
    def start(cls, config: TrainerConfig, *, device: str | None = None) -> Trainer:
        """Loads the model of `config.model.path` and joins the ranks that `torchrun` started, if it did."""
        ranks = Ranks.join(device)
        torch.manual_seed(config.seed)
        model = load_model(config.model, device=ranks.device if ranks.world_size == 1 else None)
        return cls(config, ranks.shard(model, config.model), ranks)

    def step(self, batch: RankBatch) -> dict[str, float]:
        """Trains on all micro-batches of one step, then updates the weights once. Returns its metrics, the same on all
        ranks but for times and memory.

        Raises ValueError for a batch that is not this rank's next one, NotFinite before any weight is touched.
        """
        started = time.perf_counter()
        self._check(batch)
        self.optimizer.zero_grad(set_to_none=True)
        outputs: list[LossOutput] = []
        entropy = torch.zeros((), device=self.ranks.device)
        for micro_batch in batch.micro_batches:
            packed = Packed.of(micro_batch, self.ranks.device)
            logprobs, of_batch = self.model(packed)
            output = self._loss(_loss_input(packed, logprobs, micro_batch.total_tokens))
            # FSDP takes the mean of the ranks' gradients; the loss is divided by the tokens of all ranks already.
            (output.loss * self.ranks.world_size).backward()
            outputs.append(_detached(output))
            entropy += of_batch.detach()
        sums = self._summed(outputs, entropy)
        norm = self._clipped_norm()
        if not (math.isfinite(norm) and math.isfinite(sums["loss"])):
            self.optimizer.zero_grad(set_to_none=True)
            raise NotFinite(
                f"step {batch.step}: loss {sums['loss']}, gradient norm {norm}; the weights were left as they were. "
                "Look at the log-probabilities of this batch, or lower optim.lr"
            )
        lr = self.config.optim.lr * self.config.optim.factor(self.next_step)
        self.optimizer.set_lr(lr)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.next_step += 1
        self.version += 1
        metrics = _metrics(sums) | self._quantiles(outputs) | {"grad_norm": norm, "lr": lr}
        tokens = sum(len(micro_batch.mask_buffer) for micro_batch in batch.micro_batches)
        return metrics | self._cost(time.perf_counter() - started, tokens)

    @torch.no_grad()
    def logprobs(self, batch: MicroBatch) -> list[float]:
        """Of each token under the weights of now; 0.0 where the mask is 0. To be called on all ranks."""
        found, _ = self.model(Packed.of(batch, self.ranks.device))
        if isinstance(self.model, FSDPModule):
            self.model.reshard()  # a pass that nothing goes back through leaves it whole: a copy of the old weights
        return found.tolist()

    def named_weights(self, dtype: torch.dtype | None = None) -> Iterator[tuple[str, Tensor]]:
        """See `weights.named_weights`: whole tensors, a layer at a time, on all ranks together."""
        return named_weights(self.model, dtype)

    def export(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        """A folder that transformers and vLLM load. To be called on all ranks."""
        export(self.model, folder, self.ranks, source=self.config.model.path, dtype=dtype)

    def save(self, root: Path) -> Path:
        """A checkpoint of now. To be called on all ranks."""
        return save_checkpoint(
            root,
            self.model,
            self.optimizer,
            self.ranks,
            step=self.next_step,
            version=self.version,
            extra=self.extra,
            keep=self.config.keep_checkpoints,
        )

    def resume(self, root: Path) -> bool:
        """Goes on from the newest complete checkpoint under `root`. False: there is none, and nothing changed."""
        found = checkpoints(root)
        if not found:
            return False
        marker = load_checkpoint(found[-1], self.model, self.optimizer, self.ranks)
        self.next_step, self.version, self.extra = marker.step, marker.version, dict(marker.extra)
        return True

    def close(self) -> None:
        self.ranks.leave()

    def _check(self, batch: RankBatch) -> None:
        mine = (self.next_step, self.ranks.rank, self.ranks.world_size)
        if (batch.step, batch.rank, batch.world_size) != mine:
            raise ValueError(
                f"a batch of step {batch.step} for rank {batch.rank} of {batch.world_size}; "
                f"this is rank {mine[1]} of {mine[2]}, and its next step is {mine[0]}"
            )
        if not batch.micro_batches:
            raise ValueError(f"step {batch.step}: a batch without micro-batches; send fillers, or no step at all")

    def _summed(self, outputs: list[LossOutput], entropy: Tensor) -> dict[str, float]:
        """Over micro-batches and ranks, in one exchange."""
        names = sorted(outputs[0].sums)
        values = [torch.stack([output.sums[name].double().cpu() for output in outputs]).sum() for name in names]
        losses = torch.stack([output.loss.double().cpu() for output in outputs]).sum()
        together = torch.stack([losses, entropy.double().cpu(), *values]).to(self.ranks.device)
        return dict(zip(["loss", "entropy", *names], self.ranks.sum(together).tolist(), strict=True))

    def _clipped_norm(self) -> float:
        """The norm of all gradients before clipping."""
        parameters = parameters_of(self.model)
        norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        whole = norm.full_tensor() if isinstance(norm, DTensor) else norm
        if self.config.optim.max_grad_norm > 0:
            clip_grads_with_norm_(parameters, self.config.optim.max_grad_norm, norm)
        return whole.item()

    def _quantiles(self, outputs: list[LossOutput]) -> dict[str, float]:
        """Of the ratios trainer / inference. Over several ranks the outermost ones: no rank hides behind the others."""
        found = torch.cat([output.log_ratios for output in outputs]).float().sort().values
        if not len(found):
            low, high = torch.tensor(math.inf), torch.tensor(-math.inf)
        else:
            low, high = found[int(0.01 * (len(found) - 1))], found[math.ceil(0.99 * (len(found) - 1))]
        outer = self.ranks.max(torch.stack([-low, high]).to(self.ranks.device)).clamp(max=80.0).tolist()
        if outer[1] == -math.inf:
            return {}  # no rank has ratios: a loss without, or a step without trained tokens
        return {"ratio_p01": math.exp(-outer[0]), "ratio_p99": math.exp(outer[1])}

    def _cost(self, seconds: float, tokens: int) -> dict[str, float]:
        cost = {"step_s": seconds, "tokens_per_s": tokens / seconds}
        if self.ranks.device.type == "cuda":
            cost["peak_memory_bytes"] = float(torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()
        return cost


def _loss_input(packed: Packed, logprobs: Tensor, total_tokens: int) -> LossInput:
    return LossInput(
        logprobs=logprobs,
        inference_logprobs=packed.inference_logprobs,
        advantages=packed.advantages,
        mask=packed.mask,
        sequences=packed.sequences,
        rollouts=packed.rollouts,
        num_sequences=len(packed.seq_lens),
        total_tokens=total_tokens,
    )


def _detached(output: LossOutput) -> LossOutput:
    return LossOutput(loss=output.loss.detach(), sums=output.sums, log_ratios=output.log_ratios)


def _metrics(sums: dict[str, float]) -> dict[str, float]:
    """Shares and means over the step's trained tokens, from sums over them."""
    trained = max(sums["trained_tokens"], 1.0)
    metrics = {"loss": sums["loss"], "trained_tokens": sums["trained_tokens"]}
    for name in ("entropy", "mismatch_kl", "abs_log_ratio"):
        if name in sums:
            metrics[name] = sums[name] / trained
    for name in ("masked_low", "masked_high", "dropped_tokens"):
        if name in sums:
            metrics[f"share_{name}"] = sums[name] / trained
    if "dropped_rollouts" in sums:
        metrics["dropped_rollouts"] = sums["dropped_rollouts"]
    return cast(dict[str, float], metrics)
