"""Records as rows of a table: flat columns of one type each; what has no fixed shape is JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from verifiers.records import RolloutRecord, encode_json


def flat_row(record: RolloutRecord) -> dict[str, Any]:
    return {
        "example_id": record.example_id,
        "rollout_index": record.rollout_index,
        "env": record.env.name,
        "env_version": record.env.version,
        "model": record.model.name,
        "task": record.task,
        "reward": record.reward,
        "status": record.status,
        "stop_condition": record.stop_condition,
        "is_truncated": record.is_truncated,
        "prompt": _text(record.prompt),
        "completion": _text(record.messages),
        "answer": _text(record.answer),
        "info": _text(record.info),
        "metrics": _text(record.metrics),
        "errors": _text(record.errors),
        "turns": len(record.turns),
        "input_tokens": record.usage.prompt,
        "output_tokens": record.usage.completion,
        "cost": record.usage.cost,
        "total_s": record.timing.total_s,
        "scoring_s": record.timing.score_s,
    }


def table(records: Iterable[RolloutRecord]) -> list[dict[str, Any]]:
    """Flat rows with a column `metric.NAME` for every reward function and metric; `None` where a rollout has none."""
    kept = list(records)
    names = list(dict.fromkeys(name for record in kept for name in record.metrics))
    rows: list[dict[str, Any]] = []
    for record in kept:
        row, metrics = flat_row(record), record.metrics
        del row["metrics"]
        rows.append(row | {f"metric.{name}": metrics.get(name) for name in names})
    return rows


def _text(value: Any) -> str:
    return json.dumps(json.loads(encode_json(value)), ensure_ascii=False)
