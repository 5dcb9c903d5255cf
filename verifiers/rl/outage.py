"""`Outage`: whether groups fail for reasons that are not theirs, and how long to wait before the next ones start."""

from __future__ import annotations

from dataclasses import dataclass

UNLUCKY_IN_A_ROW = 3  # from then on it is not chance
FIRST_REST_S, LONGEST_REST_S = 1.0, 30.0


@dataclass(slots=True)
class Outage:
    """Counts unlucky groups since the last one that got through. A model server that is started again takes a minute or
    two: groups that are started meanwhile would only fail, and their examples be blamed."""

    in_a_row: int = 0
    since_s: float | None = None  # of the event loop's clock
    is_resting: bool = False  # nothing shall start

    @property
    def is_on(self) -> bool:
        return self.in_a_row >= UNLUCKY_IN_A_ROW

    def unlucky(self, now_s: float) -> float:
        """Notes one. Returns the seconds of the rest that begins with it; 0.0: none does."""
        self.in_a_row += 1
        self.since_s = now_s if self.since_s is None else self.since_s
        if not self.is_on or self.is_resting:
            return 0.0
        self.is_resting = True
        return min(max(FIRST_REST_S, self.seconds(now_s) / 2), LONGEST_REST_S)

    def seconds(self, now_s: float) -> float:
        """Since it began; 0.0 while there is none."""
        return 0.0 if self.since_s is None or not self.is_on else now_s - self.since_s
