"""`LengthPredictor`: how long the next rollout of a problem will be, judged by its last ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any


class LengthPredictor:
    """Quantiles of the last `window` lengths of each problem; of a problem not seen yet, of all of late.

    A rollout that was cut off counts with the length at which that happened: it would have been at least as long.

    >>> lengths = LengthPredictor()
    >>> for tokens in (100, 300, 200):
    ...     lengths.observe("p", tokens)
    >>> lengths.predict("p")
    200.0
    """

    RECENT = 4096  # lengths of any problem that are kept for those not seen yet

    def __init__(self, window: int = 16) -> None:
        if window < 1:
            raise ValueError(f"a window of {window} rollouts; it must hold at least 1")
        self.window = window
        self._lengths: dict[str, deque[int]] = {}
        self._recent: deque[int] = deque(maxlen=self.RECENT)
        self._overall: dict[float, float] = {}  # quantiles of `_recent`, until it changes

    def observe(self, problem: str, tokens: int) -> None:
        self._lengths.setdefault(problem, deque(maxlen=self.window)).append(tokens)
        self._recent.append(tokens)
        self._overall.clear()

    def predict(self, problem: str, quantile: float = 0.5) -> float:
        """Completion tokens; 0.0 before anything was observed."""
        found = self._lengths.get(problem)
        return _quantile(found, quantile) if found else self.overall(quantile)

    def overall(self, quantile: float) -> float:
        """Completion tokens over all problems of late."""
        if quantile not in self._overall:
            self._overall[quantile] = _quantile(self._recent, quantile)
        return self._overall[quantile]

    def priority(self, problem: str) -> int:
        """For vLLM's `priority`, where the lowest goes first: long before short."""
        return -round(self.predict(problem))

    def state(self) -> dict[str, Any]:
        """All of it, as JSON can hold it; `restore` takes it back."""
        lengths = {problem: list(found) for problem, found in self._lengths.items()}
        return {"window": self.window, "lengths": lengths, "recent": list(self._recent)}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> LengthPredictor:
        made = cls(state["window"])
        made._lengths = {problem: deque(found, maxlen=made.window) for problem, found in state["lengths"].items()}
        made._recent.extend(state["recent"])
        return made


def _quantile(values: Sequence[int], quantile: float) -> float:
    """Between the two nearest values, by distance; 0.0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = quantile * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
