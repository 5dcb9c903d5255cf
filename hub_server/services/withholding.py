"""What a project with `publish_answers = false` keeps at home: the questions and answers of its test set.

The client leaves them out before it sends anything; the hub leaves them out again of whatever arrives, and of whatever
was stored before the project said so.
"""

from __future__ import annotations

import msgspec

from verifiers.records import RolloutRecord, without_answers
from verifiers.viewer import SampleRow


def has_answers(record: RolloutRecord) -> bool:
    """Whether there is anything that `without_answers` takes away."""
    return without_answers(record) != record


def row_without_answers(row: SampleRow) -> SampleRow:
    return msgspec.structs.replace(row, title="") if row.title else row
