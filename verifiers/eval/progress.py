"""`Progress`: what is known of a run while it goes on. It is fed one record at a time and never looks back at them."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from verifiers.records import RolloutRecord
from verifiers.statistics import Interval, UngradedTrend, confidence_interval

ErrorKey = tuple[str, str]  # side, type
GRADED = ("scored", "undecided", "fault")  # statuses of rollouts that were to be graded


@dataclass(slots=True)
class ScoreSoFar:
    weight: float
    total: float = 0.0
    n: int = 0

    @property
    def mean(self) -> float | None:
        return self.total / self.n if self.n else None


@dataclass(slots=True)
class RewardSoFar:
    """Mean and interval clustered by example from sums alone, so that 100,000 rollouts cost no more than one.

    It computes what `statistics.clustered_standard_error` does: the sum over the examples of the squared deviations
    (s_g - n_g m)² is written out, and each of its three sums is kept up to date.
    """

    n: int = 0
    total: float = 0.0
    by_example: dict[int, tuple[int, float]] = field(default_factory=dict)  # n_g, s_g
    sum_ss: float = 0.0
    sum_sn: float = 0.0
    sum_nn: float = 0.0

    def add(self, example_id: int, reward: float) -> None:
        n, s = self.by_example.get(example_id, (0, 0.0))
        self._count(n, s, -1)
        self.by_example[example_id] = (n + 1, s + reward)
        self._count(n + 1, s + reward, 1)
        self.n += 1
        self.total += reward

    def _count(self, n: int, s: float, sign: int) -> None:
        self.sum_ss += sign * s * s
        self.sum_sn += sign * s * n
        self.sum_nn += sign * n * n

    @property
    def mean(self) -> float | None:
        return self.total / self.n if self.n else None

    @property
    def interval(self) -> Interval | None:
        groups, mean = len(self.by_example), self.mean
        if mean is None or groups < 2:
            return None
        squares = max(0.0, self.sum_ss - 2 * mean * self.sum_sn + mean * mean * self.sum_nn)
        error = math.sqrt(groups / (groups - 1) * squares) / self.n
        return confidence_interval(mean, error, degrees_of_freedom=groups - 1)


class Progress:
    """Running totals, and the last finished rollouts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, ungraded_alarm: float = 0.05) -> None:
        self._clock, self._start = clock, clock()
        self.ungraded = UngradedTrend(alarm_above=ungraded_alarm)
        self.reward = RewardSoFar()
        self.scores: dict[str, ScoreSoFar] = {}
        self.errors: Counter[ErrorKey] = Counter()
        self.n_done = self.n_earlier = self.turns = self.tokens_in = self.tokens_out = 0
        self.cost: float | None = None
        self.recent: deque[RolloutRecord] = deque(maxlen=6)

    def add_earlier(self, records: Iterable[RolloutRecord]) -> None:
        """Rollouts that were finished before this part of the run."""
        for record in records:
            self._count(record)
            self.n_earlier += 1

    def add(self, record: RolloutRecord) -> None:
        self._count(record)
        self.recent.append(record)

    def _count(self, record: RolloutRecord) -> None:
        self.n_done += 1
        self.turns += len(record.turns)
        if record.reward is not None:
            self.reward.add(record.example_id, record.reward)
        if record.status in GRADED:
            self.ungraded.add(record.status != "scored")
        for score in record.scores:
            so_far = self.scores.setdefault(score.name, ScoreSoFar(score.weight))
            if score.value is not None:
                so_far.total += score.value
                so_far.n += 1
        self.errors.update((side, kind) for side, kind, _ in failures_of(record))
        self.tokens_in += record.usage.prompt or 0
        self.tokens_out += record.usage.completion or 0
        if record.usage.cost is not None:
            self.cost = (self.cost or 0.0) + record.usage.cost

    @property
    def seconds(self) -> float:
        return self._clock() - self._start

    def rate(self) -> float | None:
        """Rollouts a second in this part of the run; `None` before the first."""
        fresh = self.n_done - self.n_earlier
        return fresh / self.seconds if fresh and self.seconds > 0 else None

    def seconds_left(self, total: int) -> float | None:
        rate = self.rate()
        return None if rate is None else max(0, total - self.n_done) / rate


def failures_of(record: RolloutRecord) -> list[tuple[str, str, str]]:
    """Side, type and message of all that failed in a rollout, its reward functions included."""
    found = [(failure.side, failure.type, failure.message) for failure in record.errors]
    faults = [score for score in record.scores if score.status == "fault"]
    known = {message for _, _, message in found}
    for score in faults:
        reason = score.reason or "no reason given"
        if not any(reason in message or message in reason for message in known if message):
            found.append((score.side or "reward", score.name, reason))
    return found
