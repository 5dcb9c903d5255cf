"""Two evaluations of one environment, example by example: the paired difference, and which examples changed sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hub_server.errors import BadRequest, Unprocessable
from hub_server.hub import Hub
from hub_server.principal import Principal
from hub_server.services import evaluations, samples
from hub_server.services.evaluations import EvaluationView
from verifiers.statistics import PairedDifference
from verifiers.viewer import Comparison, ExamplePair, compare_rows

MOST_SAMPLES = 300_000  # of both together: their rows are in memory while they are compared
BUCKETS = ("gained", "lost", "both_pass", "both_fail", "not_comparable", "changed")


@dataclass(frozen=True, slots=True)
class Compared:
    baseline: EvaluationView
    candidate: EvaluationView
    comparison: Comparison
    cautions: Sequence[str]  # why the difference may not be the model's, a sentence each


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    baseline: str  # ids of evaluations
    candidate: str
    difference: PairedDifference
    counts: dict[str, int]  # examples in each bucket
    pass_threshold: float
    cautions: Sequence[str]
    examples: Sequence[ExamplePair]  # the largest difference first
    next_offset: int | None  # None: this is the last page


def page_of(compared: Compared, bucket: str | None, offset: int, limit: int) -> ComparisonPage:
    """Of the examples in `bucket`, or of all."""
    found = compared.comparison
    pairs = found.in_order(bucket)
    return ComparisonPage(
        baseline=compared.baseline.id,
        candidate=compared.candidate.id,
        difference=found.difference,
        counts={str(name): n for name, n in found.counts.items()},
        pass_threshold=found.pass_threshold,
        cautions=compared.cautions,
        examples=pairs[offset : offset + limit],
        next_offset=offset + limit if len(pairs) > offset + limit else None,
    )


def compare(hub: Hub, who: Principal, baseline_id: str, candidate_id: str) -> Compared:
    """Raises Unprocessable for evaluations of two environments, and for more samples than fit."""
    baseline, candidate = (evaluations.get(hub, who, id) for id in (baseline_id, candidate_id))
    if (baseline.owner, baseline.project) != (candidate.owner, candidate.project):
        raise Unprocessable(
            f"{baseline.owner}/{baseline.project} and {candidate.owner}/{candidate.project} are two environments: "
            "only evaluations of one can be compared",
            code="not_comparable",
        )
    if baseline.n_samples + candidate.n_samples > MOST_SAMPLES:
        raise Unprocessable(
            f"{baseline.n_samples + candidate.n_samples} samples; up to {MOST_SAMPLES} are compared",
            code="too_many_samples",
        )
    threshold = candidate.summary.get("pass_threshold", 0.5)
    found = compare_rows(
        samples.rows(hub, who, baseline_id), samples.rows(hub, who, candidate_id), pass_threshold=threshold
    )
    return Compared(baseline, candidate, found, _cautions(baseline, candidate, found))


def check_bucket(bucket: str | None) -> None:
    if bucket is not None and bucket not in BUCKETS:
        raise BadRequest(f"bucket is one of {', '.join(BUCKETS)}, not '{bucket[:40]}'", code="bad_bucket")


def _cautions(a: EvaluationView, b: EvaluationView, found: Comparison) -> list[str]:
    said: list[str] = []
    if a.version != b.version:
        said.append(f"The versions of the environment differ: {a.version or 'none'} and {b.version or 'none'}.")
    if a.setup != b.setup:
        said.append("The environments were loaded with different arguments.")
    if found.n_other_questions:
        said.append(f"{found.n_other_questions} examples of equal number begin with different questions.")
    if a.run.get("sampling_args") != b.run.get("sampling_args"):
        said.append("The sampling arguments differ.")
    for view in (a, b):
        if view.dirty:
            said.append(f"{view.id} was run on an edited copy of the environment.")
        if view.state == "open":
            said.append(f"{view.id} is still being pushed.")
    return said
