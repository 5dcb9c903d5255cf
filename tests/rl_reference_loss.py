"""The losses once more, token by token in plain numbers: slow, and close to how docs/training-loss.md says it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Token:
    trainer: float
    inference: float
    advantage: float
    trained: bool
    sequence: int
    rollout: int


def masked_importance_sampling(tokens: list[Token], total: int, low: float, high: float, drop_below: float) -> float:
    dropped = {
        token.rollout for token in tokens if token.trained and token.trainer - token.inference < math.log(drop_below)
    }
    found = 0.0
    for token in tokens:
        if not token.trained or token.rollout in dropped:
            continue
        log_ratio = token.trainer - token.inference
        if math.log(low) <= log_ratio <= math.log(high):
            found -= math.exp(log_ratio) * token.advantage
    return found / total


def gspo(tokens: list[Token], total: int, clip_low: float, clip_high: float, max_ratio: float) -> float:
    found = 0.0
    for sequence in {token.sequence for token in tokens}:
        own = [token for token in tokens if token.sequence == sequence and token.trained]
        if not own:
            continue
        mean = sum(token.trainer - token.inference for token in own) / len(own)
        ratio = math.exp(min(mean, math.log(max_ratio)))
        clipped = min(max(ratio, 1 - clip_low), 1 + clip_high)
        found -= sum(min(ratio * token.advantage, clipped * token.advantage) for token in own)
    return found / total
