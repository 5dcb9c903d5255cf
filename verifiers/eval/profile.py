"""`Profile`: where the time of a saved run's rollouts went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import fmean, median, quantiles

import msgspec

from verifiers.records import RolloutRecord
from verifiers.viewer.wording import count, number, seconds

PARTS = {
    "queue": "waiting for a place at the server",
    "model": "the server's replies",
    "tools": "tools and answers of the environment",
    "sandbox": "sandboxes, where not part of a tool",
    "other": "everything else until the last turn",
    "scoring": "reward functions and judges",
}


class Part(msgspec.Struct, frozen=True):
    """Seconds of one part over all rollouts, and of one rollout."""

    name: str
    total_s: float
    share: float  # of the time of all rollouts together
    median_s: float
    p95_s: float
    longest_s: float


class Slow(msgspec.Struct, frozen=True):
    example_id: int
    rollout_index: int
    total_s: float
    most: str  # the part that took most of it
    most_s: float
    turns: int


class Profile(msgspec.Struct, frozen=True):
    """Of the rollouts that have times; older results have none."""

    n_rollouts: int
    n_untimed: int
    rollout_s: float  # of all rollouts together
    wall_s: float | None  # from the first start to the last end; None: not known
    in_flight: float | None  # rollouts at the same time, on average
    turns_per_rollout: float
    tokens_per_s: float | None  # made by the model, a second of its work
    parts: tuple[Part, ...]
    slowest: tuple[Slow, ...]

    def lines(self) -> list[str]:
        """For people."""
        if not self.n_rollouts:
            return [f"no times in {count(self.n_untimed, 'rollout')}: an older version saved them"]
        about = [f"{count(self.n_rollouts, 'rollout')}, {seconds(self.rollout_s)} of rollouts"]
        if self.wall_s is not None and self.in_flight is not None:
            about.append(f"{seconds(self.wall_s)} from first to last, {number(self.in_flight, 1)} at the same time")
        about.append(f"{number(self.turns_per_rollout, 1)} turns a rollout")
        if self.tokens_per_s is not None:
            about.append(f"{number(self.tokens_per_s, 0)} tokens/s while the model works")
        found = [" \u00b7 ".join(about), "", "part      share     total    median       p95   longest"]
        for part in self.parts:
            figures = (part.total_s, part.median_s, part.p95_s, part.longest_s)
            shown = "".join(f"{seconds(value):>10}" for value in figures)
            found.append(f"{part.name:<8}{part.share:>7.1%}{shown}   {PARTS[part.name]}")
        found += ["", "slowest   example  try     total   turns  most of it"]
        for slow in self.slowest:
            found.append(
                f"{'':<8}{slow.example_id:>9}{slow.rollout_index:>5}{seconds(slow.total_s):>10}{slow.turns:>8}  "
                f"{slow.most} {seconds(slow.most_s)}"
            )
        if self.n_untimed:
            found += ["", f"note: {count(self.n_untimed, 'rollout')} without times left out"]
        return found


def profile(records: Iterable[RolloutRecord], *, slowest: int = 5) -> Profile:
    """Reads each record once and keeps its times alone."""
    rows: list[tuple[dict[str, float], Slow]] = []
    spans: list[tuple[float, float]] = []
    tokens = n_untimed = 0
    for record in records:
        timing = record.timing
        if timing.total_s <= 0:
            n_untimed += 1
            continue
        parts = timing.parts()
        most = max(parts, key=lambda name: parts[name])
        slow = Slow(record.example_id, record.rollout_index, sum(parts.values()), most, parts[most], len(record.turns))
        rows.append((parts, slow))
        tokens += record.usage.completion or 0
        if timing.started:
            began = datetime.fromisoformat(timing.started).timestamp()
            spans.append((began, began + sum(parts.values())))
    together = sum(slow.total_s for _, slow in rows)
    wall = max(end for _, end in spans) - min(start for start, _ in spans) if len(spans) == len(rows) > 0 else None
    model_s = sum(parts["model"] for parts, _ in rows)
    return Profile(
        n_rollouts=len(rows),
        n_untimed=n_untimed,
        rollout_s=together,
        wall_s=wall,
        in_flight=together / wall if wall else None,
        turns_per_rollout=fmean(slow.turns for _, slow in rows) if rows else 0.0,
        tokens_per_s=tokens / model_s if tokens and model_s else None,
        parts=tuple(_part(name, [parts[name] for parts, _ in rows], together) for name in PARTS) if rows else (),
        slowest=tuple(sorted((slow for _, slow in rows), key=lambda slow: -slow.total_s)[:slowest]),
    )


def _part(name: str, values: Sequence[float], together: float) -> Part:
    p95 = quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]
    return Part(name, sum(values), sum(values) / together if together else 0.0, median(values), p95, max(values))
