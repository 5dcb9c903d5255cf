"""`PolicyModel`: a causal language model of transformers that gives the log-probability of each token of a pack.

Logits exist for a few tokens at a time, and only for tokens that are trained on: a pass of L tokens over a vocabulary
of V never holds L × V numbers, in neither direction.
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from verifiers.rl.trainer.attention import NAME, UnsupportedModel, check_packs
from verifiers.rl.trainer.config import ModelConfig
from verifiers.rl.types import MicroBatch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """A micro-batch of L tokens as tensors on a device, T of them trained on."""

    # An object that FSDP does not look into: it would round the temperatures to the layers' precision.
    input_ids: Tensor  # int64 [L]
    position_ids: Tensor  # int64 [L]
    mask: Tensor  # bool [L]
    sequences: Tensor  # int64 [L]
    rollouts: Tensor  # int64 [L], counted from 0 in this micro-batch
    advantages: Tensor  # float32 [L]
    inference_logprobs: Tensor  # float32 [L]
    trained: Tensor  # int64 [T], places of the trained tokens
    temperatures: Tensor  # float32 [T]
    seq_lens: list[int]

    @classmethod
    def of(cls, batch: MicroBatch, device: torch.device) -> Packed:
        """Raises ValueError when the first token of a sequence is to be trained on: nothing foretells it."""
        lengths = torch.tensor(batch.seq_lens)
        mask = _tensor(batch.mask_buffer, torch.uint8).bool()
        starts = lengths.cumsum(0) - lengths
        if mask[starts[lengths > 0]].any():
            raise ValueError(f"step {batch.step}: the first token of a sequence is marked as trained on")
        numbers: dict[int, int] = {}
        rollouts = torch.tensor([numbers.setdefault(rollout, len(numbers)) for rollout in batch.rollouts])
        trained = mask.nonzero().squeeze(1)
        sequences = torch.arange(len(lengths)).repeat_interleave(lengths)
        values = {
            "input_ids": _tensor(batch.input_buffer, torch.int32).long(),
            "position_ids": _tensor(batch.position_buffer, torch.int32).long(),
            "mask": mask,
            "sequences": sequences,
            "rollouts": rollouts[sequences],
            "advantages": _tensor(batch.advantage_buffer, torch.float32),
            "inference_logprobs": _tensor(batch.logprob_buffer, torch.float32),
            "trained": trained,
            "temperatures": _tensor(batch.temperature_buffer, torch.float32)[sequences[trained]],
        }
        return cls(seq_lens=batch.seq_lens, **{name: value.to(device) for name, value in values.items()})


class PolicyModel(nn.Module):
    """`forward(packed)` gives log-probabilities [L], 0 where the mask is 0, and the mean entropy's sum."""

    def __init__(self, causal: PreTrainedModel, *, logit_chunk: int = 1024) -> None:
        super().__init__()
        self.causal = causal
        self.logit_chunk = logit_chunk

    def forward(self, packed: Packed) -> tuple[Tensor, Tensor]:
        base = self.causal.base_model
        hidden = base(
            input_ids=packed.input_ids[None],
            position_ids=packed.position_ids[None],
            use_cache=False,
            sequence_lengths=packed.seq_lens,
        ).last_hidden_state[0]
        weight = self.head
        rows = hidden[packed.trained - 1].to(weight.dtype)  # what comes out at a token foretells the next one
        targets = packed.input_ids[packed.trained]
        chosen, entropy = _ChosenLogprobs.apply(rows, weight, targets, packed.temperatures, self.logit_chunk)
        logprobs = chosen.new_zeros(len(packed.input_ids)).index_copy(0, packed.trained, chosen)
        return logprobs, entropy.sum()

    @property
    def head(self) -> Tensor:
        return cast(nn.Linear, self.causal.get_output_embeddings()).weight

    @property
    def layers(self) -> list[nn.Module]:
        """The decoder layers, from the first to the last."""
        names = set(self.causal._no_split_modules or ())
        return [module for module in self.causal.modules() if type(module).__name__ in names]


def load_model(config: ModelConfig, *, device: torch.device | None = None) -> PolicyModel:
    """The model of a folder, weights in float32, ready to train, not yet sharded.

    Raises FileNotFoundError for a folder without config.json, UnsupportedModel for what cannot be packed.
    """
    if not (Path(config.path) / "config.json").is_file():
        raise FileNotFoundError(f"model.path: no config.json in {config.path}; should be a folder that holds a model")
    description = AutoConfig.from_pretrained(config.path)
    if type(description) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedModel(f"{config.path} holds a {type(description).__name__}: not a causal language model")
    check_packs(description, cast(type, MODEL_FOR_CAUSAL_LM_MAPPING[type(description)]))
    causal: Any = AutoModelForCausalLM.from_pretrained(
        config.path, config=description, dtype=torch.float32, attn_implementation=NAME
    )
    return as_policy(causal if device is None else causal.to(device), config)


def as_policy(causal: PreTrainedModel, config: ModelConfig) -> PolicyModel:
    """Switches dropout off: the ratio to what sampled would be one of two different models."""
    if getattr(causal.get_output_embeddings(), "bias", None) is not None:
        raise UnsupportedModel(f"{type(causal).__name__} has an output layer with a bias, which is not written here")
    for module in causal.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    if config.activation_checkpointing:
        causal.activation_checkpointing_enable(offload=config.offload_activations)
    policy = PolicyModel(causal, logit_chunk=config.logit_chunk)
    if not policy.layers:
        raise UnsupportedModel(f"{type(causal).__name__} does not say which of its modules are its layers")
    return policy.train()


class _ChosenLogprobs(torch.autograd.Function):
    """Log-softmax of `rows @ weight.T / temperatures`, at `targets`: [T], and its entropy [T] without gradient.

    Logits are computed `chunk` tokens at a time and once more on the way back, never kept.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, targets: Tensor, temperatures: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(rows.dtype, torch.float32)
        chosen, entropy, total = (torch.empty(len(rows), dtype=exact, device=rows.device) for _ in range(3))
        for span in _spans(len(rows), chunk):
            logits = _logits(rows[span], weight, temperatures[span], exact)
            total[span] = logits.logsumexp(1)
            chosen[span] = logits.gather(1, targets[span, None]).squeeze(1) - total[span]
            shares = (logits - total[span, None]).exp_()
            entropy[span] = total[span] - shares.mul_(logits).sum(1)
        ctx.save_for_backward(rows, weight, targets, temperatures, total)
        ctx.chunk = chunk
        ctx.mark_non_differentiable(entropy)
        return chosen, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, targets, temperatures, total = ctx.saved_tensors
        exact = total.dtype
        grad_rows = torch.empty_like(rows)
        grad_weight = torch.zeros_like(weight, dtype=exact) if ctx.needs_input_grad[1] else None
        for span in _spans(len(rows), ctx.chunk):
            logits = _logits(rows[span], weight, temperatures[span], exact)
            grad_logits = logits.sub_(total[span, None]).exp_().neg_()
            grad_logits.scatter_add_(1, targets[span, None], torch.ones_like(total[span, None]))
            grad_logits = grad_logits.mul_((grads[0][span] / temperatures[span])[:, None]).to(weight.dtype)
            grad_rows[span] = grad_logits @ weight
            if grad_weight is not None:
                grad_weight += grad_logits.T @ rows[span]
        return grad_rows, None if grad_weight is None else grad_weight.to(weight.dtype), None, None, None


def _logits(rows: Tensor, weight: Tensor, temperatures: Tensor, exact: torch.dtype) -> Tensor:
    return (rows @ weight.T).to(exact).div_(temperatures[:, None])


def _spans(length: int, chunk: int) -> list[slice]:
    return [slice(start, min(start + chunk, length)) for start in range(0, length, chunk)]


def _tensor(buffer: bytes, dtype: torch.dtype) -> Tensor:
    if not buffer:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(buffer), dtype=dtype)
