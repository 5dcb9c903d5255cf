"""`Comparison`: two evaluations of the same examples: the paired difference, and which examples changed sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, cast

import msgspec

from verifiers.statistics import PairedDifference, paired_difference
from verifiers.viewer.rows import Example, SampleRow, group_examples

Bucket = Literal["gained", "lost", "both_pass", "both_fail", "not_comparable"]
PASS_THRESHOLD = 0.5


class ExamplePair(msgspec.Struct, frozen=True, gc=False):
    """One example in both runs. A run that does not have it is `None`."""

    example_id: int
    baseline: Example | None
    candidate: Example | None
    difference: float | None  # candidate's mean reward less the baseline's; None: one of them has no scored try
    bucket: Bucket

    @property
    def title(self) -> str:
        example = self.baseline or self.candidate
        return "" if example is None else example.title


class Comparison(msgspec.Struct, frozen=True):
    """Candidate against baseline. An example passes with a mean reward of at least `pass_threshold`."""

    difference: PairedDifference
    examples: tuple[ExamplePair, ...]  # by example id
    pass_threshold: float
    n_other_questions: int  # examples of equal id whose questions begin differently: two runs over other rows

    @property
    def counts(self) -> dict[Bucket, int]:
        """Examples in each bucket, every bucket named."""
        found = Counter(pair.bucket for pair in self.examples)
        names: tuple[Bucket, ...] = ("gained", "lost", "both_pass", "both_fail", "not_comparable")
        return {name: found[name] for name in names}

    def in_order(self, bucket: str | None = None) -> list[ExamplePair]:
        """The pairs of a bucket (`changed`: gained and lost), the largest difference first."""
        wanted = {"gained", "lost"} if bucket == "changed" else {bucket}
        kept = [pair for pair in self.examples if not bucket or pair.bucket in wanted]
        return sorted(kept, key=lambda pair: (-abs(pair.difference or 0.0), pair.example_id))


def compare_rows(
    rows_a: Iterable[SampleRow], rows_b: Iterable[SampleRow], *, pass_threshold: float = PASS_THRESHOLD
) -> Comparison:
    """`rows_a` is the baseline, `rows_b` the candidate; examples are matched by id.

    >>> def row(example_id, reward):
    ...     return SampleRow(example_id=example_id, rollout_index=0, reward=reward, status="scored")
    >>> comparison = compare_rows([row(0, 0.0), row(1, 1.0)], [row(0, 1.0), row(1, 1.0)])
    >>> comparison.difference.mean, comparison.counts["gained"]
    (0.5, 1)
    """
    of_a = {example.example_id: example for example in group_examples(rows_a)}
    of_b = {example.example_id: example for example in group_examples(rows_b)}
    pairs = [_pair(id_, of_a.get(id_), of_b.get(id_), pass_threshold) for id_ in sorted(of_a.keys() | of_b.keys())]
    return Comparison(
        difference=paired_difference(_flat(of_a.values()), _flat(of_b.values())),
        examples=tuple(pairs),
        pass_threshold=pass_threshold,
        n_other_questions=sum(
            pair.baseline is not None and pair.candidate is not None and pair.baseline.title != pair.candidate.title
            for pair in pairs
        ),
    )


def _flat(examples: Iterable[Example]) -> list[tuple[int, float | None]]:
    return [(row.example_id, row.reward) for example in examples for row in example.tries]


def _pair(example_id: int, baseline: Example | None, candidate: Example | None, threshold: float) -> ExamplePair:
    before = None if baseline is None else baseline.mean
    after = None if candidate is None else candidate.mean
    if before is None or after is None:
        return ExamplePair(example_id, baseline, candidate, None, "not_comparable")
    passed = before >= threshold, after >= threshold
    bucket = {(False, True): "gained", (True, False): "lost", (True, True): "both_pass"}.get(passed, "both_fail")
    return ExamplePair(example_id, baseline, candidate, after - before, cast(Bucket, bucket))
