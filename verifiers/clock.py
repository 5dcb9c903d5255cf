"""`Clock`: where the seconds of one rollout went, and how many of its wall-clock limit are left."""

from __future__ import annotations

import time
from functools import lru_cache


class Clock:
    """Counts seconds by phase. Queueing (for a place at the server, for a grader) counts against no deadline."""

    __slots__ = (
        "limit_s",
        "model_s",
        "queue_s",
        "sandbox_s",
        "score_s",
        "started_at",
        "started_s",
        "stopped_s",
        "tool_s",
    )

    def __init__(self, limit_s: float | None = None) -> None:
        self.limit_s = limit_s  # None: no limit
        self.started_at = time.time()
        self.started_s = time.perf_counter()
        self.stopped_s: float | None = None  # None: still running
        self.queue_s = self.model_s = self.tool_s = self.sandbox_s = self.score_s = 0.0

    @property
    def started(self) -> str:
        """UTC, ISO 8601 with milliseconds."""
        second, fraction = divmod(self.started_at, 1)
        return f"{_second(int(second))}.{int(fraction * 1000):03d}+00:00"

    @property
    def total_s(self) -> float:
        return (self.stopped_s if self.stopped_s is not None else time.perf_counter()) - self.started_s

    @property
    def remaining_s(self) -> float | None:
        """Seconds of work left before the limit; `None` without one."""
        return None if self.limit_s is None else max(0.0, self.limit_s - (self.total_s - self.queue_s))

    @property
    def is_up(self) -> bool:
        return self.limit_s is not None and self.total_s - self.queue_s >= self.limit_s

    def stop(self) -> None:
        self.stopped_s = time.perf_counter()


@lru_cache(16)
def _second(timestamp: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(timestamp))
