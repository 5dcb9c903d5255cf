"""What becomes of a group that ran to its end: pure decisions on its records and the samples made of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from verifiers.records import RolloutRecord
from verifiers.rl.samples import SampleSet


class Verdict(Enum):
    KEPT = "kept"  # there is something to learn
    TRIVIAL = "trivial"  # all tries earned the same
    BROKEN = "broken"  # too few tries can be trained on, and another time may be no better
    UNLUCKY = "unlucky"  # too few tries have a reward, for reasons that may have passed: a server, a sandbox, a judge


# The failures that another start may not meet, by the names that records keep. Whoever runs the rollouts has already
# tried again as often as it was told; these are left after that.
_PASSING_TYPES = frozenset(
    {"EmptyModelResponseError", "InvalidModelResponseError", "ModelTimeoutError", "ModelUnavailableError"}
)
_PASSING_SIDES = frozenset({"sandbox", "judge"})


def verdict_on(records: Sequence[RolloutRecord], made: SampleSet) -> Verdict:
    """A group with samples is kept, with as many tries as its policy wants (`min_group`); none is ever made up."""
    if made.samples:
        return Verdict.KEPT
    if made.counts.trivial_groups:
        return Verdict.TRIVIAL
    if made.counts.short_groups and any(failed_in_passing(record) for record in records):
        return Verdict.UNLUCKY
    return Verdict.BROKEN


def rewards_of(records: Sequence[RolloutRecord]) -> list[float]:
    """A try without a reward takes no part: it is no try that earned nothing."""
    return [record.reward for record in records if record.reward is not None]


def failed_in_passing(record: RolloutRecord) -> bool:
    if record.reward is not None:
        return False
    if record.errors:
        return any(error.type in _PASSING_TYPES or error.side in _PASSING_SIDES for error in record.errors)
    return any(score.value is None and score.side in _PASSING_SIDES for score in record.scores)
