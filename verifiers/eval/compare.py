"""`RunComparison`: two saved runs over the same examples, for a terminal and for the gate of a CI job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from verifiers.errors import ConfigError
from verifiers.statistics import PairedDifference, paired_difference
from verifiers.viewer import SampleRow, compare_rows, verdict
from verifiers.viewer.comparison import ExamplePair
from verifiers.viewer.runs import Run, run_at
from verifiers.viewer.wording import count, number, signed

# A true difference of so many standard errors is found in four comparisons of five (1.96 and 0.84 of them).
DETECTABLE = 2.8


class RunComparison:
    """Baseline and candidate, and what changed between them. Raises ConfigError for a path that is not one run."""

    def __init__(self, baseline: Path, candidate: Path) -> None:
        self.baseline, self.candidate = run_at(baseline), run_at(candidate)
        self.of_baseline, self.of_candidate = (_rows(run) for run in (self.baseline, self.candidate))
        self.examples = compare_rows(self.of_baseline, self.of_candidate)

    @property
    def difference(self) -> PairedDifference:
        return self.examples.difference

    @property
    def detectable(self) -> float | None:
        """The smallest true difference that as many examples would show in four comparisons of five."""
        error = self.difference.standard_error
        return None if error is None else DETECTABLE * error

    def metrics(self) -> dict[str, PairedDifference]:
        """The same for every reward function and metric that both runs have."""
        names = [
            name
            for name in dict.fromkeys(name for row in self.of_candidate for name in row.scores)
            if any(name in row.scores for row in self.of_baseline)
        ]
        return {
            name: paired_difference(_values(self.of_baseline, name), _values(self.of_candidate, name)) for name in names
        }

    def is_worse(self, allowed: float) -> bool:
        """Whether the candidate is worse by more than `allowed`, beyond what chance explains (95 %)."""
        interval = self.difference.interval
        return interval is not None and interval.high < -allowed

    def may_be_worse(self, allowed: float) -> bool:
        """Whether chance leaves room for that, or there is no interval to tell by."""
        interval = self.difference.interval
        return interval is None or interval.low < -allowed

    def as_json(self) -> dict[str, Any]:
        return {
            "baseline": str(self.baseline.path),
            "candidate": str(self.candidate.path),
            "verdict": verdict(self.difference),
            "difference": msgspec.to_builtins(self.difference),
            "detectable": self.detectable,
            "metrics": msgspec.to_builtins(self.metrics()),
            "counts": self.examples.counts,
            "pass_threshold": self.examples.pass_threshold,
            "n_other_questions": self.examples.n_other_questions,
            "examples": [
                {"example_id": pair.example_id, "difference": pair.difference, "bucket": pair.bucket}
                for pair in self.examples.examples
            ],
        }

    def lines(self, most: int, width: int) -> list[str]:
        """For people: the two runs, the verdict, each metric, and up to `most` examples that changed sides."""
        found = [*self._runs(), "", verdict(self.difference), *self._cautions()]
        counts = self.examples.counts
        found += [
            "",
            f"{counts['gained']} gained · {counts['lost']} lost · {counts['both_pass']} both pass · "
            f"{counts['both_fail']} both fail · {counts['not_comparable']} not comparable",
        ]
        found += self._metric_lines()
        changed = self.examples.in_order("changed")
        if changed and most:
            found += ["", *_example_lines(changed[:most], width)]
            if len(changed) > most:
                found.append(f"and {len(changed) - most} more that changed sides (-n)")
        return found

    def _runs(self) -> list[str]:
        sides = (
            ("baseline", self.baseline, self.difference.baseline_mean, self.of_baseline),
            ("candidate", self.candidate, self.difference.candidate_mean, self.of_candidate),
        )
        return [
            f"{name:<10} {number(mean):>7}   {_title(run)} · {count(len(rows), 'rollout')}"
            for name, run, mean, rows in sides
        ]

    def _cautions(self) -> list[str]:
        found: list[str] = []
        difference, other = self.difference, self.examples.n_other_questions
        interval = difference.interval
        if interval is not None and interval.low <= 0 <= interval.high and self.detectable:
            found.append(
                f"With these {difference.n_examples} examples a true difference below {number(self.detectable)} is "
                "missed more often than once in five comparisons: more examples tell more than more tries."
            )
        if other:
            found.append(f"warning: {count(other, 'example')} of equal id ask something else in the two runs")
        left_out = difference.n_only_baseline + difference.n_only_candidate
        if left_out:
            found.append(f"note: {count(left_out, 'example')} scored in one run alone left out")
        return found

    def _metric_lines(self) -> list[str]:
        metrics = self.metrics()
        if not metrics:
            return []
        wide = max(len("metric"), *map(len, metrics))
        found = ["", f"{'metric':<{wide}}  baseline  candidate  difference  95 % interval"]
        for name, one in metrics.items():
            low_high = f"{signed(one.interval.low)} to {signed(one.interval.high)}" if one.interval else "–"
            found.append(
                f"{name:<{wide}}  {number(one.baseline_mean):>8}  {number(one.candidate_mean):>9}  "
                f"{signed(one.mean):>10}  {low_high}"
            )
        return found


def _rows(run: Run) -> Sequence[SampleRow]:
    run.file.refresh()
    if not run.file.rows:
        raise ConfigError(f"{run.path} has no rollouts yet")
    return run.file.rows


def _values(rows: Sequence[SampleRow], name: str) -> list[tuple[int, float | None]]:
    return [(row.example_id, row.scores.get(name)) for row in rows]


def _title(run: Run) -> str:
    metadata = run.metadata
    known = [str(metadata[key]) for key in ("env_id", "model") if metadata.get(key)]
    return " · ".join([*known, str(run.path.parent)])


def _example_lines(pairs: Sequence[ExamplePair], width: int) -> list[str]:
    found = ["example  baseline  candidate  question"]
    for pair in pairs:
        before, after = (None if side is None else side.mean for side in (pair.baseline, pair.candidate))
        line = f"{pair.example_id:>7}  {number(before):>8}  {number(after):>9}  {pair.title}"
        found.append(line if len(line) <= width else line[: width - 1] + "…")
    return found
