"""What a finished run amounts to: `summarise_run` computes plain values, `render` writes them as a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from verifiers.eval import wording
from verifiers.eval.progress import GRADED, failures_of
from verifiers.records import RolloutRecord, Score
from verifiers.statistics import Interval, Summary, Ungraded, UngradedTrend, summarise

SHOWN_ERRORS = SHOWN_REASONS = 3
KEPT_REASONS = 10
MESSAGE_WIDTH = 240  # of an error: its end often holds the reason, so it may wrap
NOT_SCORED = ("failed", "fault", "undecided")  # what counts against --max-failed


def summarise_run(
    records: Sequence[RolloutRecord],
    *,
    total: int,
    time_s: float,
    pass_threshold: float = 0.5,
    ungraded_alarm: float = 0.05,
) -> dict[str, Any]:
    """Values that JSON can hold. `total` rollouts were asked for; fewer have a record when the run was interrupted.

    `avg_reward`, `avg_metrics`, `avg_error`, `pass_at_k`, `pass_all_k`, `pass_threshold`, `usage` and `time_ms` are
    the names that older tools read. Unknown is `None`, never 0.
    """
    rows = [(record.example_id, record.reward) for record in records]
    stats = summarise(rows, reward_range=_reward_range(records), pass_threshold=pass_threshold)
    scores = _scores(records)
    failed = [record for record in records if record.errors]
    return {
        "n_total": total,
        "n_finished": len(records),
        "n_scored": stats.n_scored,
        "n_failed": sum(record.status in NOT_SCORED for record in records),
        "statuses": dict(Counter(record.status for record in records).most_common()),
        "ungraded": {**msgspec.structs.asdict(_ungraded(records, ungraded_alarm)), "alarm_above": ungraded_alarm},
        "reward": _reward(stats),
        "scores": scores,
        "at_k": [msgspec.structs.asdict(at) for at in stats.at_k],
        "stop_conditions": dict(Counter(record.stop_condition or "none" for record in records).most_common()),
        "truncated": _share(record.is_truncated for record in records),
        "errors": _errors(records),
        "turns": _mean([len(record.turns) for record in records]),
        "usage": _usage(records),
        "time_s": round(time_s, 3),
        "time_ms": round(time_s * 1000, 1),
        "avg_reward": stats.mean,
        "avg_metrics": {score["name"]: score["mean"] for score in scores},
        "avg_error": len(failed) / len(records) if records else None,
        "pass_at_k": {str(at.k): at.pass_at_k for at in stats.at_k},
        "pass_all_k": {str(at.k): at.pass_hat_k for at in stats.at_k},
        "pass_threshold": stats.pass_threshold,
    }


def failed_share(summary: dict[str, Any]) -> float:
    """Of the rollouts asked for, the share that ended without the score it should have."""
    return summary["n_failed"] / summary["n_total"] if summary["n_total"] else 0.0


def _reward(stats: Summary) -> dict[str, Any]:
    return {
        "mean": stats.mean,
        "standard_error": stats.standard_error,
        "interval": [stats.interval.low, stats.interval.high] if stats.interval else None,
        "bounds": [stats.bounds.lower, stats.bounds.upper] if stats.bounds else None,
        "n_examples": stats.n_examples,
    }


def _reward_range(records: Sequence[RolloutRecord]) -> tuple[float, float]:
    """The smallest and largest reward if every function stays within 0 and 1; what was seen beyond widens it."""
    weights = {score.name: score.weight for record in records for score in record.scores}
    if not any(weights.values()):
        return 0.0, 1.0
    return sum(w for w in weights.values() if w < 0), sum(w for w in weights.values() if w > 0)


def _scores(records: Sequence[RolloutRecord]) -> list[dict[str, Any]]:
    """One entry for each reward function, in the rubric's order."""
    by_name: dict[str, list[Score]] = defaultdict(list)
    for record in records:
        for score in record.scores:
            by_name[score.name].append(score)
    entries = []
    for name, scores in by_name.items():
        values = [score.value for score in scores if score.value is not None]
        mean, weight = _mean(values), scores[0].weight
        entries.append(
            {
                "name": name,
                "weight": weight,
                "mean": mean,
                "contribution": None if mean is None else mean * weight,
                "n_scored": len(values),
                "n_total": len(scores),
                "n_undecided": sum(score.status == "undecided" for score in scores),
                "n_fault": sum(score.status == "fault" for score in scores),
                "reasons": _reasons(scores),
            }
        )
    return entries


def _reasons(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Why scores are what they are, where their functions say so: the most frequent first."""
    found = Counter((score.status, score.reason) for score in scores if score.reason)
    return [
        {"status": status, "reason": reason, "count": n}
        for (status, reason), n in sorted(found.items(), key=lambda item: -item[1])[:KEPT_REASONS]
    ]


def _ungraded(records: Sequence[RolloutRecord], alarm_above: float) -> Ungraded:
    trend = UngradedTrend(alarm_above=alarm_above)
    for record in sorted(records, key=lambda record: record.timing.started or ""):
        if record.status in GRADED:
            trend.add(record.status != "scored")
    return trend.now


def _errors(records: Sequence[RolloutRecord]) -> list[dict[str, Any]]:
    """Failures by side and type, the most frequent first, each with its most frequent message."""
    messages: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for record in records:
        for side, kind, message in failures_of(record):
            messages[side, kind][message] += 1
    ranked = sorted(messages.items(), key=lambda item: -item[1].total())
    return [
        {"side": side, "type": kind, "count": texts.total(), "message": texts.most_common(1)[0][0]}
        for (side, kind), texts in ranked
    ]


def _usage(records: Sequence[RolloutRecord]) -> dict[str, Any]:
    """Sums over the rollouts; `None` as soon as one rollout that called a model has no count."""
    called = [record for record in records if record.turns]
    return {
        "input_tokens": _sum([record.usage.prompt for record in called]),
        "output_tokens": _sum([record.usage.completion for record in called]),
        "reasoning_tokens": _sum([record.usage.reasoning for record in called]),
        "cost": _sum([record.usage.cost for record in called]),
    }


def _sum(values: Sequence[Any]) -> Any:
    return None if not values or any(value is None for value in values) else sum(values)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _share(flags: Any) -> float | None:
    flags = list(flags)
    return sum(flags) / len(flags) if flags else None


# The table


def render(summary: dict[str, Any], *, title: str = "", abbreviated: bool = False, width: int = 80) -> str:
    """The table that ends a run, without colour, at most `width` wide where the words allow it."""
    lines = [title] if title else []
    lines += _reward_lines(summary)
    lines += _score_lines(summary, width)
    if not abbreviated:
        lines += _at_k_lines(summary)
        lines += _how_lines(summary, width)
    lines += _error_lines(summary, width)
    return "\n".join(line.rstrip() for line in lines)


def _reward_lines(summary: dict[str, Any]) -> list[str]:
    reward = summary["reward"]
    if reward["mean"] is None:
        head = "reward         –"
    else:
        head = f"reward         {reward['mean']:.3f}"
        if reward["standard_error"] is not None:
            head += f" ± {reward['standard_error']:.3f}  {wording.interval(Interval(*reward['interval']))}"
    counts = f"{summary['n_scored']} of {summary['n_total']} scored"
    bounds = reward["bounds"]
    if bounds and reward["mean"] is not None and summary["n_scored"] < summary["n_finished"]:
        counts += f"; between {bounds[0]:.3f} and {bounds[1]:.3f} with the others"
    if summary["n_finished"] < summary["n_total"]:
        counts += f"; {summary['n_total'] - summary['n_finished']} not run"
    return [f"{head}   {counts}", *_ungraded_lines(summary)]


def _ungraded_lines(summary: dict[str, Any]) -> list[str]:
    found = msgspec.convert(summary["ungraded"], Ungraded)
    kinds = ", ".join(f"{n} {name}" for name in ("undecided", "fault") if (n := summary["statuses"].get(name)))
    return [f"               {wording.ungraded(found)}: {kinds}"] if found.n_ungraded else []


def _score_lines(summary: dict[str, Any], width: int) -> list[str]:
    scores = summary["scores"]
    if not scores:
        return []
    name_width = max(14, min(max(len(score["name"]) for score in scores), max(14, width - 42)))
    lines = ["", f"{'reward function':<{name_width}} {'mean':>8} {'weight':>8} {'adds':>8}"]
    for score in scores:
        adds = wording.number(score["contribution"]) if score["weight"] else ""
        some = "" if score["n_scored"] == score["n_total"] else f"  {_scored(score)}"
        name = wording.cut(score["name"], name_width)
        line = f"{name:<{name_width}} {wording.number(score['mean']):>8} {wording.weight(score['weight']):>8} {adds:>8}"
        lines.append(line + some)
        lines += [wording.cut(f"  {_reason(found)}", width) for found in _told(score["reasons"])]
    return lines


def _told(reasons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of wrong and undecided scores; faults are listed with the errors."""
    return [found for found in reasons if found["status"] != "fault"][:SHOWN_REASONS]


def _reason(found: dict[str, Any]) -> str:
    return f"{found['count']} × {'undecided: ' if found['status'] == 'undecided' else ''}{found['reason']}"


def _scored(score: dict[str, Any]) -> str:
    kinds = [f"{score[key]} {key[2:]}" for key in ("n_undecided", "n_fault") if score[key]]
    return f"{score['n_scored']} of {score['n_total']}" + (f" ({', '.join(kinds)})" if kinds else "")


def _at_k_lines(summary: dict[str, Any]) -> list[str]:
    known = [at for at in summary["at_k"] if at["k"] > 1 or len(summary["at_k"]) == 1]
    if not known or not any(at["n_examples"] for at in known):
        return []
    lines = ["", f"{'tries':<14} {'pass@k':>8} {'pass^k':>8} {'avg@k':>8}"]
    for at in summary["at_k"]:
        row = [wording.number(at[key]) for key in ("pass_at_k", "pass_hat_k", "avg_at_k")]
        lines.append(f"{'k = ' + str(at['k']):<14} {row[0]:>8} {row[1]:>8} {row[2]:>8}  {_examples(at['n_examples'])}")
    return lines


def _examples(n: int) -> str:
    return "1 example" if n == 1 else f"{n} examples"


def _how_lines(summary: dict[str, Any], width: int) -> list[str]:
    usage = summary["usage"]
    stops = ", ".join(f"{name} {n}" for name, n in summary["stop_conditions"].items())
    lines = ["", "stopped by     " + wording.cut(stops, width - 15)] if stops else [""]
    parts = [
        f"turns {wording.number(summary['turns'], 1)}",
        _tokens(usage),
        f"time {wording.seconds(summary['time_s'])}",
    ]
    if usage["cost"] is not None:
        parts.append(f"cost {wording.money(usage['cost'])}")
    if summary["truncated"]:
        parts.append(f"truncated {summary['truncated']:.0%}")
    return [*lines, "used           " + " · ".join(parts)]


def _tokens(usage: dict[str, Any]) -> str:
    if usage["input_tokens"] is None or usage["output_tokens"] is None:
        return "tokens not counted"
    return f"tokens {wording.count(usage['input_tokens'])} in {wording.count(usage['output_tokens'])} out"


def _error_lines(summary: dict[str, Any], width: int) -> list[str]:
    errors = summary["errors"]
    if not errors:
        return []
    lines = ["", "errors"]
    for error in errors[:SHOWN_ERRORS]:
        lines.append(f"  {error['count']} × {error['side']} · {error['type']}")
        lines.append("      " + wording.cut(error["message"], max(width, MESSAGE_WIDTH) - 6))
    more = len(errors) - SHOWN_ERRORS
    return [*lines, f"  and {more} more kinds"] if more > 0 else lines


def one_reason(summary: dict[str, Any]) -> str | None:
    """When nothing was scored and everything failed alike: that one failure, on one line."""
    errors = summary["errors"]
    if summary["n_scored"] or len(errors) != 1 or not summary["n_finished"]:
        return None
    error = errors[0]
    return f"every rollout failed ({error['side']}): {error['type']}: {wording.cut(error['message'], 300)}"
