"""`format_dataset`: the rows of a `datasets.Dataset` with the prompts that an environment makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.dataset import RowFormat, Rows, as_hf_dataset, formatted
from verifiers.types import as_messages


def format_dataset(
    dataset: Any,
    system_prompt: str | None = None,
    few_shot: Sequence[Any] | None = None,
    question_key: str = "question",
    answer_key: str = "answer",
    map_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """A `datasets.Dataset` with the columns `prompt`, `answer` and `example_id`; `map_kwargs` has no effect."""
    for key, name in ((question_key, "question"), (answer_key, "answer")):
        if key != name and key in dataset.column_names:
            dataset = dataset.remove_columns(name) if name in dataset.column_names else dataset
            dataset = dataset.add_column(name, list(dataset[key]))
    form = RowFormat(system_prompt, as_messages(few_shot) if few_shot else [])
    rows = Rows(dataset)
    form.check(rows)
    return as_hf_dataset(formatted(rows, form))
