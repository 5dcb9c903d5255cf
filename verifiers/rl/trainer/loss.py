"""Losses: functions from one `LossInput`, what a micro-batch says token by token, to one `LossOutput`.

The formulas and where they are from: docs/training-loss.md. Ratios are compared as logarithms and replaced by 1 where
they do not count *before* anything is exponentiated: a rejected one may be e^10000, and 0 times infinity is no number.
"""

# pyright: reportMissingImports=false
# torch and what goes with it are an extra

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from verifiers.rl.trainer.config import CrossEntropy, LossConfig, MaskedImportanceSampling, SequencePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInput:
    """The L tokens of a micro-batch. Whatever stands in the log-probabilities where `mask` is 0 plays no part."""

    logprobs: Tensor  # float [L], of the weights being trained, with gradient
    inference_logprobs: Tensor  # float [L], of the weights that sampled
    advantages: Tensor  # float [L]
    mask: Tensor  # bool [L]: trained on
    sequences: Tensor  # int64 [L], 0 to num_sequences - 1: the sequence of each token
    rollouts: Tensor  # int64 [L], below num_sequences: the rollout of each token, one for all branches of a rollout
    num_sequences: int
    total_tokens: int  # trained tokens of the whole step, over all ranks and micro-batches


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOutput:
    loss: Tensor  # scalar; added up over the micro-batches and ranks of a step it is the step's loss
    sums: dict[str, Tensor]  # scalars that add up in the same way: counts, and sums over trained tokens
    log_ratios: Tensor  # [number trained], without gradient


LossFunction = Callable[[LossInput], LossOutput]


def loss_of(config: LossConfig) -> LossFunction:
    match config:
        case MaskedImportanceSampling():
            return lambda given: masked_importance_sampling(given, config)
        case SequencePolicy():
            return lambda given: sequence_policy(given, config)
        case CrossEntropy():
            return cross_entropy


def masked_importance_sampling(given: LossInput, config: MaskedImportanceSampling) -> LossOutput:
    """-(1/total) Σ ratio · advantage over the tokens whose ratio is in [low, high], but for dropped rollouts.

    The rule that drops a rollout sees the sequences that it has in this micro-batch.
    """
    log_ratio = _log_ratio(given)
    seen = log_ratio.detach()
    below = seen < math.log(config.low)
    above = seen > math.log(config.high)
    lowest = seen.new_zeros(given.num_sequences).scatter_reduce(0, given.rollouts, seen, "amin")
    dropped = lowest < math.log(config.drop_below)
    kept = given.mask & ~below & ~above & ~dropped[given.rollouts]
    ratio = torch.where(kept, log_ratio, 0.0).exp()
    loss = -torch.where(kept, ratio * given.advantages, 0.0).sum() / max(given.total_tokens, 1)
    in_dropped = given.mask & dropped[given.rollouts]
    sums = _sums(given, seen) | {
        "masked_low": (given.mask & below & ~in_dropped).sum(),
        "masked_high": (given.mask & above & ~in_dropped).sum(),
        "dropped_tokens": in_dropped.sum(),
        "dropped_rollouts": dropped.sum(),
    }
    return LossOutput(loss=loss, sums=sums, log_ratios=seen[given.mask])


def sequence_policy(given: LossInput, config: SequencePolicy) -> LossOutput:
    """GSPO in its token form: every token carries its sequence's ratio, and the gradient of its own logarithm.

    A sequence counts by its trained tokens, not as one, so that one normalisation serves all losses.
    """
    log_ratio = _log_ratio(given)
    seen = log_ratio.detach()
    zeros = seen.new_zeros(given.num_sequences)
    lengths = zeros.scatter_add(0, given.sequences, given.mask.to(seen.dtype)).clamp(min=1)
    mean = zeros.scatter_add(0, given.sequences, seen) / lengths
    capped = mean.clamp(max=math.log(config.max_ratio))[given.sequences]
    # Of the value exp(capped), with the gradient of the token's own log-probability where the cap does not hold.
    own = torch.where(given.mask & (mean[given.sequences] <= math.log(config.max_ratio)), log_ratio - seen, 0.0)
    ratio = torch.where(given.mask, capped + own, 0.0).exp()
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    gain = torch.minimum(ratio * given.advantages, clipped * given.advantages)
    loss = -torch.where(given.mask, gain, 0.0).sum() / max(given.total_tokens, 1)
    sums = _sums(given, seen) | {
        "masked_low": (given.mask & (ratio < 1 - config.clip_low) & (given.advantages < 0)).sum(),
        "masked_high": (given.mask & (ratio > 1 + config.clip_high) & (given.advantages > 0)).sum(),
    }
    return LossOutput(loss=loss, sums=sums, log_ratios=seen[given.mask])


def cross_entropy(given: LossInput) -> LossOutput:
    loss = -torch.where(given.mask, given.logprobs, 0.0).sum() / max(given.total_tokens, 1)
    empty = given.logprobs.detach()[:0]
    return LossOutput(loss=loss, sums={"trained_tokens": given.mask.sum()}, log_ratios=empty)


def _log_ratio(given: LossInput) -> Tensor:
    return torch.where(given.mask, given.logprobs, 0.0) - torch.where(given.mask, given.inference_logprobs, 0.0)


def _sums(given: LossInput, seen: Tensor) -> dict[str, Tensor]:
    # KL(inference || trainer) from what inference sampled, by the estimator r - 1 - ln r: unbiased and never negative.
    # A token counts for no more than e^20: one more would not say more, and infinity would hide the rest.
    counted = seen.clamp(max=20.0)
    return {
        "trained_tokens": given.mask.sum(),
        "mismatch_kl": torch.where(given.mask, counted.exp() - 1 - counted, 0.0).sum(),
        "abs_log_ratio": torch.where(given.mask, seen.abs(), 0.0).sum(),
    }
