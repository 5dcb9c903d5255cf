"""How many tokens to draft for a rollout in a step: none, always as many, or by its predicted length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from verifiers.rl.speculate.lengths import LengthPredictor


class Budget(Protocol):
    def tokens(self, problem: str, generated: int) -> int:
        """To draft for a rollout of the problem that has `generated` tokens so far."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same for every rollout; 0: no speculation."""

    limit: int

    def tokens(self, problem: str, generated: int) -> int:
        return self.limit


@dataclass(frozen=True, slots=True)
class ByLength:
    """Small drafts for short rollouts, large ones for long: those decide when a batch ends (DAS, arXiv 2511.13841).

    The classes part at `quantiles` of all lengths of late; `limits` has one more. A rollout that outgrows its predicted
    length moves up.
    """

    lengths: LengthPredictor
    limits: tuple[int, ...] = (0, 4, 16)
    quantiles: tuple[float, ...] = (0.5, 0.8)

    def __post_init__(self) -> None:
        if len(self.limits) != len(self.quantiles) + 1:
            raise ValueError(f"{len(self.quantiles)} quantiles part {len(self.quantiles) + 1} classes of length")

    def tokens(self, problem: str, generated: int) -> int:
        length = max(self.lengths.predict(problem), generated)
        return self.limits[sum(length > self.lengths.overall(quantile) for quantile in self.quantiles)]
