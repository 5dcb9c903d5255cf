"""Advantages: how much better each rollout of a group did than the group, with no scaling by the spread.

Rewards are finite numbers; a rollout without one is left out before. Lists over the tries of one example end in `_G`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Baseline = Literal[
    "mean",  # of the group; the advantages add up to 0
    "length_weighted",  # mean over the group's tokens: long rollouts weigh more; Σ length × advantage is 0
    "leave_one_out",  # mean of the others: the mean baseline's advantage times n / (n − 1); they add up to 0
]

_EQUAL = 1e-9  # rewards nearer than this, or in proportion to the larger one, differ by rounding


def advantages(
    rewards_G: Sequence[float], *, baseline: Baseline = "mean", lengths_G: Sequence[int] | None = None
) -> list[float]:
    """One advantage per reward. `lengths_G`: sampled tokens of each rollout, for the length-weighted mean.

    Raises ValueError for a reward that is not finite, and for lengths that are missing or not as many.
    """
    for reward in rewards_G:
        if not math.isfinite(reward):
            raise ValueError(f"a reward of {reward} has no advantage; leave the rollout out of its group")
    count = len(rewards_G)
    if count < 2:
        return [0.0] * count  # nothing to compare with
    mean = math.fsum(rewards_G) / count
    if baseline == "leave_one_out":
        return [(reward - mean) * count / (count - 1) for reward in rewards_G]
    if baseline == "length_weighted":
        mean = _length_weighted(rewards_G, lengths_G)
    return [reward - mean for reward in rewards_G]


def _length_weighted(rewards_G: Sequence[float], lengths_G: Sequence[int] | None) -> float:
    if lengths_G is None or len(lengths_G) != len(rewards_G):
        found = "none" if lengths_G is None else len(lengths_G)
        raise ValueError(f"the length-weighted mean of {len(rewards_G)} rewards needs as many lengths, and got {found}")
    total = sum(lengths_G)
    if min(lengths_G) < 0:
        raise ValueError(f"lengths are counts of tokens, not {list(lengths_G)}")
    if not total:
        return math.fsum(rewards_G) / len(rewards_G)  # nothing was sampled, so nothing will carry the advantages
    return math.fsum(reward * length for reward, length in zip(rewards_G, lengths_G)) / total


def is_trivial(rewards_G: Sequence[float]) -> bool:
    """Whether all rewards are equal, whatever they are equal to: such a group teaches nothing."""
    if not rewards_G:
        return True
    low, high = min(rewards_G), max(rewards_G)
    return high - low <= _EQUAL * max(abs(low), abs(high), 1.0)


def turn_advantages(rewards_GT: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """Advantages of rewards that were given to single turns: each minus the mean over the group at the same turn.

    Rollouts may differ in their number of turns. A turn without a reward, and one that no other rollout has a reward
    to compare with, has the advantage 0.0; at every turn the advantages add up to 0.
    """
    longest = max((len(rewards_T) for rewards_T in rewards_GT), default=0)
    found = [[0.0] * len(rewards_T) for rewards_T in rewards_GT]
    for turn in range(longest):
        here = [(g, r[turn]) for g, r in enumerate(rewards_GT) if turn < len(r)]
        rewarded = [(g, reward) for g, reward in here if reward is not None]
        for (g, _), advantage in zip(rewarded, advantages([reward for _, reward in rewarded])):
            found[g][turn] = advantage
    return found
