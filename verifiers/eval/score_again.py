"""`score_again`: saved completions under the rubric of today; asks no model for another reply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from verifiers.recording import scored, state_of
from verifiers.records import RolloutRecord
from verifiers.rubrics.rubric_group import as_of_today


def rows_of(env: Any) -> list[dict[int, dict[str, Any]]]:
    """Rows by example_id, of the evaluation split and of the training split."""
    kinds = [kind for kind in ("eval", "train") if env.row_splits.has(kind)]
    read = {"eval": env.eval_rows, "train": env.train_rows}
    return [{row["example_id"]: row for row in read[kind](-1)} for kind in kinds]


def row_for(record: RolloutRecord, splits: Sequence[Mapping[int, dict[str, Any]]]) -> dict[str, Any] | None:
    """The row that was answered: of this number and, where the record tells its prompt, with this prompt."""
    for rows in splits:
        row = rows.get(record.example_id)
        if row is not None and (not record.prompt or as_text(row["prompt"]) == as_text(record.prompt)):
            return row
    return None


def as_text(prompt: Any) -> list[Any]:
    if isinstance(prompt, str):
        return [prompt]
    return [json.loads(json.dumps(message["content"], default=str)) for message in prompt]


async def score_again(
    env: Any, tries: Sequence[RolloutRecord], row: Mapping[str, Any], *, with_state: bool = False
) -> list[RolloutRecord]:
    """The tries of one example that did not fail, with the scores they get today.

    Prompt, answer and info are the row's. `with_state` gives reward functions the keys of the state that the record
    has saved, which is for records of one's own alone.
    """
    given = [record for record in tries if record.status != "failed"]
    bare = [msgspec.structs.replace(record, prompt=row["prompt"], answer=None, info=None) for record in given]
    states = [state_of(record, record.state_columns if with_state else {}, None, row) for record in bare]
    if states:
        await as_of_today(env.rubric).score_group(states)
    return [scored(record, state) for record, state in zip(given, states, strict=True)]
