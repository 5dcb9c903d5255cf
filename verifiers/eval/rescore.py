"""Scores saved completions again with the environment's own rubric; asks no model.

Reads `order.json` (environment, arguments) and `records.ndjson`, prints one line a rollout: example_id, rollout_index,
reward, status, problem. Questions and answers are taken from the package's own rows, never from the record: whoever
pushed it could have written them there.
"""

import asyncio
import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from verifiers.loading import load_environment
from verifiers.recording import scored, state_of
from verifiers.records import RolloutRecord, decode_record
from verifiers.rubrics.rubric_group import as_of_today


def rows_of(env: Any) -> list[dict[int, dict[str, Any]]]:
    """Rows by example_id, of the evaluation split and of the training split."""
    kinds = [kind for kind in ("eval", "train") if env.row_splits.has(kind)]
    read = {"eval": env.eval_rows, "train": env.train_rows}
    return [{row["example_id"]: row for row in read[kind](-1)} for kind in kinds]


def row_for(record: RolloutRecord, splits: list[dict[int, dict[str, Any]]]) -> dict[str, Any] | None:
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


async def score_again(env: Any, tries: list[RolloutRecord], row: dict[str, Any]) -> list[RolloutRecord]:
    given = [record for record in tries if record.status != "failed"]
    bare = [msgspec.structs.replace(record, prompt=row["prompt"], answer=None, info=None) for record in given]
    states = [state_of(record, {}, None, row) for record in bare]
    if states:
        await as_of_today(env.rubric).score_group(states)
    return [scored(record, state) for record, state in zip(given, states, strict=True)]


def told(record: RolloutRecord, problem: str = "") -> None:
    line = {
        "example_id": record.example_id,
        "rollout_index": record.rollout_index,
        "reward": None if problem else record.reward,
        "status": record.status,
        "problem": problem or next((score.reason for score in record.scores if score.value is None), None) or "",
    }
    OUT.write(json.dumps(line) + "\n")


async def main() -> None:
    order = json.loads(Path("order.json").read_text())
    env = load_environment(order["environment"], **order["env_args"])
    splits = rows_of(env)
    lines = Path("records.ndjson").read_bytes().splitlines()
    records = sorted((decode_record(line) for line in lines), key=lambda record: record.key)
    for _, group in groupby(records, key=lambda record: record.example_id):
        tries = list(group)
        row = row_for(tries[0], splits)
        if row is None:
            for record in tries:
                told(record, "the package has no such row")
            continue
        try:
            for record in await score_again(env, tries, row):
                told(record)
        except Exception as error:
            for record in tries:
                told(record, f"{type(error).__name__}: {error}"[:300])


OUT, sys.stdout = sys.stdout, sys.stderr  # what the environment prints does not come between
asyncio.run(main())
