"""`Tally`: what became of every group of a run. Each start has exactly one end."""

from __future__ import annotations

from enum import Enum

import msgspec


class End(Enum):
    """Why a group is in flight no more. The first four have run to their end."""

    KEPT = "kept"
    TRIVIAL = "trivial"
    BROKEN = "broken"
    UNLUCKY = "unlucky"
    STALE = "stale"  # cancelled: it could only have been trained on too late
    STALLED = "stalled"  # cancelled: its wall-clock limit was up
    STOPPED = "stopped"  # cancelled with the run; it is rolled out first when the run goes on


class Tally(msgspec.Struct, kw_only=True):
    """Counts of groups since the run began, resumed parts included, and sums from which lengths are told.

    `started == sum(ended.values()) + in flight` and `ended[kept] == shipped + expired + waiting` hold at all times.
    """

    started: int = 0
    ended: dict[str, int] = msgspec.field(default_factory=lambda: {end.value: 0 for end in End})
    shipped: int = 0
    expired: int = 0  # kept, but too old by the time there was a batch for them
    returned: int = 0  # to the curriculum, having come to nothing
    set_aside: int = 0  # of those, as they had come to nothing too often
    # Dropping what is late drops what is long: these tell by how much.
    shipped_tokens: int = 0
    expired_tokens: int = 0
    seconds: dict[str, float] = msgspec.field(default_factory=lambda: {end.value: 0.0 for end in End})

    def end(self, end: End, seconds: float) -> None:
        self.ended[end.value] += 1
        self.seconds[end.value] += seconds

    def mean_seconds(self, end: End) -> float:
        return self.seconds[end.value] / max(1, self.ended[end.value])

    def __str__(self) -> str:
        ends = ", ".join(f"{n} {end}" for end, n in self.ended.items() if n)
        return f"{self.started} groups started: {ends or 'none has ended'}"
