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

from verifiers.eval.score_again import row_for, rows_of, score_again
from verifiers.loading import load_environment
from verifiers.records import RolloutRecord, decode_record


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
