"""What an evaluation amounts to, computed from its stored samples; what a client claims is held against that."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from hub_server.errors import Unprocessable
from hub_server.hub import Hub
from hub_server.services.sample_chunks import current_lines
from verifiers.statistics import Summary, summarise

MOST_NAMES = 200  # of reward functions, stop conditions, kinds of error: what is beyond is counted together
OTHER = "(other)"
MOST_CLAIMS = 1_000
EXACT = 1e-6  # relative


class _Score(msgspec.Struct, frozen=True, gc=False):
    name: str
    weight: float
    value: float | None = None
    status: str = "scored"


class _Failure(msgspec.Struct, frozen=True, gc=False):
    side: str
    type: str


class _Turn(msgspec.Struct, frozen=True, gc=False):
    pass


class _Usage(msgspec.Struct, frozen=True, gc=False):
    prompt: int | None = None
    completion: int | None = None
    reasoning: int | None = None
    cost: float | None = None


class _Timing(msgspec.Struct, frozen=True, gc=False):
    total_s: float = 0.0


class _Figures(msgspec.Struct, frozen=True, gc=False):
    """The part of a record that figures are made of: the conversation, which is most of it, is skipped."""

    example_id: int
    rollout_index: int
    reward: float | None
    status: str
    scores: list[_Score] = []
    stop_condition: str | None = None
    is_truncated: bool = False
    errors: list[_Failure] = []
    turns: list[_Turn] = []
    usage: _Usage = _Usage()
    timing: _Timing = _Timing()


_decoder = msgspec.json.Decoder(_Figures)


@dataclass(frozen=True, slots=True)
class Recomputed:
    stats: Summary
    summary: dict[str, Any]  # for programs and pages; docs/hub-results.md names its keys
    rollouts_per_example: int  # the most that any example has
    rates: list[dict[str, Any]]  # a row of `ExampleRate` each, without its keys


class _Tally:
    """Sums over the samples. What it keeps of each sample is its reward alone."""

    def __init__(self) -> None:
        self.rewards: list[tuple[int, float | None]] = []
        self.statuses: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.scores: dict[str, _ScoreTally] = {}
        self.usage = {name: _Sum() for name in _Usage.__struct_fields__}
        self.n_truncated = self.n_with_errors = self.n_turns = self.n_reward_differs = 0
        self.duration_s = 0.0

    def add(self, sample: _Figures) -> None:
        self.rewards.append((sample.example_id, sample.reward))
        self.statuses[sample.status] += 1
        _count(self.stops, sample.stop_condition or "none", OTHER)
        self.n_truncated += sample.is_truncated
        self.n_with_errors += bool(sample.errors)
        self.n_turns += len(sample.turns)
        self.duration_s += sample.timing.total_s
        for error in sample.errors:
            _count(self.errors, (error.side, error.type), (OTHER, OTHER))
        for score in sample.scores:
            name = score.name if score.name in self.scores or len(self.scores) < MOST_NAMES else OTHER
            self.scores.setdefault(name, _ScoreTally()).add(score)
        if sample.turns:  # a rollout that called no model used nothing, known or unknown
            for name, total in self.usage.items():
                total.add(getattr(sample.usage, name))
        self.n_reward_differs += _differs(sample)


class _ScoreTally:
    def __init__(self) -> None:
        self.weight = 0.0
        self.n: Counter[str] = Counter()
        self.values = array("d")

    def add(self, score: _Score) -> None:
        self.weight = score.weight
        self.n[score.status] += 1
        if score.value is not None:
            self.values.append(score.value)

    def as_json(self, name: str) -> dict[str, Any]:
        mean = math.fsum(self.values) / len(self.values) if self.values else None
        return {
            "name": name,
            "weight": self.weight,
            "mean": mean,
            "contribution": None if mean is None else mean * self.weight,
            "n_total": self.n.total(),
            "n_scored": len(self.values),
            "n_undecided": self.n["undecided"],
            "n_fault": self.n["fault"],
        }


class _Sum:
    """A sum that is unknown as soon as one of its parts is."""

    def __init__(self) -> None:
        self.value: float | None = 0

    def add(self, part: float | None) -> None:
        self.value = None if part is None or self.value is None else self.value + part


def recompute(hub: Hub, evaluation_id: str, *, pass_threshold: float) -> Recomputed:
    """Reads every sample once. Memory grows by about 100 bytes a sample."""
    tally = _Tally()
    for line in current_lines(hub, evaluation_id):
        tally.add(_decoder.decode(line))
    tally.rewards.sort(key=lambda row: row[0])
    low, high = _reward_range(tally)
    stats = summarise(tally.rewards, pass_threshold=pass_threshold, reward_range=(low, high))
    rates = list(_rates(tally.rewards, pass_threshold))
    return Recomputed(stats, _as_json(tally, stats), max((rate["n"] for rate in rates), default=0), rates)


def _as_json(tally: _Tally, stats: Summary) -> dict[str, Any]:
    n = stats.n_total
    return {
        "n_samples": n,
        "n_scored": stats.n_scored,
        "n_unscored": stats.n_unscored,
        "n_examples": stats.n_examples,
        "n_examples_scored": stats.n_examples_scored,
        "statuses": dict(tally.statuses.most_common()),
        "reward": {
            "mean": stats.mean,
            "standard_error": stats.standard_error,
            "interval": None if stats.interval is None else [stats.interval.low, stats.interval.high],
            "bounds": None if stats.bounds is None else [stats.bounds.lower, stats.bounds.upper],
        },
        "scores": [score.as_json(name) for name, score in tally.scores.items()],
        "at_k": [msgspec.structs.asdict(at) for at in stats.at_k],
        "pass_threshold": stats.pass_threshold,
        "stop_conditions": dict(tally.stops.most_common()),
        "truncated": tally.n_truncated / n if n else None,
        "errors": [{"side": side, "type": kind, "count": c} for (side, kind), c in tally.errors.most_common()],
        "with_errors": tally.n_with_errors / n if n else None,
        "turns": tally.n_turns / n if n else None,
        "duration_s": tally.duration_s / n if n else None,
        "usage": {name: total.value for name, total in tally.usage.items()},
        # Rewards that are not the sum of weight times score, as a rubric of its own kind may give.
        "n_reward_differs": tally.n_reward_differs,
    }


def _differs(sample: _Figures) -> bool:
    weighing = [score for score in sample.scores if score.weight]
    if sample.reward is None or not weighing or any(score.value is None for score in weighing):
        return False
    total = math.fsum(score.weight * (score.value or 0.0) for score in weighing)
    return not math.isclose(total, sample.reward, rel_tol=EXACT, abs_tol=EXACT)


def _reward_range(tally: _Tally) -> tuple[float, float]:
    """The least and the most reward while every function gives 0 to 1; what was seen beyond widens it."""
    weights = [score.weight for score in tally.scores.values() if score.weight]
    if not weights:
        return 0.0, 1.0
    return sum(w for w in weights if w < 0), sum(w for w in weights if w > 0)


def _rates(rewards: list[tuple[int, float | None]], threshold: float) -> Iterator[dict[str, Any]]:
    tries: dict[int, list[float | None]] = {}
    for example_id, reward in rewards:
        tries.setdefault(example_id, []).append(reward)
    for example_id, found in tries.items():
        scored = [reward for reward in found if reward is not None]
        yield {
            "example_id": example_id,
            "n": len(found),
            "n_scored": len(scored),
            "n_passed": sum(reward >= threshold for reward in scored),
            "mean_reward": math.fsum(scored) / len(scored) if scored else None,
        }


def _count(counter: Counter[Any], name: Any, other: Any) -> None:
    counter[name if name in counter or len(counter) < MOST_NAMES else other] += 1


# Claims


def check_claims(claims: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    """Raises Unprocessable (code `metrics_disagree`) naming every claim that is not what the samples say."""
    known = checkable(summary)
    told = list(_flat(claims))
    if len(told) > MOST_CLAIMS:
        raise Unprocessable(f"{len(told)} claimed metrics; up to {MOST_CLAIMS} are checked", code="metrics_disagree")
    wrong = [f"{name[:100]}: cannot be checked" for name, _ in told if name not in known]
    wrong += [
        f"{name[:100]}: claimed {_shown(value)}, computed {_shown(known[name])}"
        for name, value in told
        if name in known and not _equal(value, known[name])
    ]
    if wrong:
        more = f"; and {len(wrong) - 20} more" if len(wrong) > 20 else ""
        raise Unprocessable(
            f"the samples do not bear out what is claimed of them: {'; '.join(wrong[:20])}{more}",
            code="metrics_disagree",
        )


def checkable(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What may be claimed, by the names of a run's metadata.json."""
    reward = summary["reward"]
    return {
        "n_samples": summary["n_samples"],
        "n_finished": summary["n_samples"],
        "n_scored": summary["n_scored"],
        "n_examples": summary["n_examples"],
        "avg_reward": reward["mean"],
        "avg_error": summary["with_errors"],
        "standard_error": reward["standard_error"],
        "truncated": summary["truncated"],
        "turns": summary["turns"],
        "pass_threshold": summary["pass_threshold"],
        **{f"avg_metrics.{score['name']}": score["mean"] for score in summary["scores"]},
        **{f"pass_at_k.{at['k']}": at["pass_at_k"] for at in summary["at_k"]},
        **{f"pass_all_k.{at['k']}": at["pass_hat_k"] for at in summary["at_k"]},
    }


def _flat(claims: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in claims.items():
        if isinstance(value, Mapping) and not prefix:
            yield from _flat(value, f"{name}.")
        else:
            yield f"{prefix}{name}", value


def _equal(claimed: Any, computed: Any) -> bool:
    if claimed is None or computed is None:
        return claimed is computed
    if isinstance(claimed, bool) or not isinstance(claimed, int | float):
        return False
    return math.isclose(claimed, computed, rel_tol=EXACT, abs_tol=1e-9)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"no number ({type(value).__name__})"
    return f"{value:.6g}"
