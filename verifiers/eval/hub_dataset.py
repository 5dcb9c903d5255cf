"""Saving a run as a data set on the Hugging Face hub (`-H`): only when asked, with the user's own token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verifiers.errors import SetupError, one_line
from verifiers.records import RolloutRecord, encode_json
from verifiers.results import load_results


def check_token() -> None:
    """Raises SetupError when there is no token to push with: better now than after the run."""
    from huggingface_hub import get_token

    if get_token() is None:
        raise SetupError("-H pushes to the Hugging Face hub, and there is no token. Try: export HF_TOKEN=…, or drop -H")


def push(folder: Path, name: str) -> None:
    """Pushes one row a rollout of the saved run in `folder` to the data set `name`, private when it is new.

    What is pushed is what was saved, so that nothing redacted there comes back here. Raises SetupError when the hub
    cannot be reached or refuses.
    """
    from datasets import Dataset

    rows = Dataset.from_list([_row(record) for record in load_results(folder)])
    try:
        rows.push_to_hub(name, private=True)
    except Exception as error:  # whatever the hub's client raises: network, rights, name
        raise SetupError(f"the run is saved, but was not pushed to '{name}': {one_line(error, 200)}") from error


def _row(record: RolloutRecord) -> dict[str, Any]:
    """Flat columns of one type each; what has no fixed shape is JSON text."""
    return {
        "example_id": record.example_id,
        "rollout_index": record.rollout_index,
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
        "input_tokens": record.usage.prompt,
        "output_tokens": record.usage.completion,
    }


def _text(value: Any) -> str:
    return json.dumps(json.loads(encode_json(value)), ensure_ascii=False)
