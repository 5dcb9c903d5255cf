"""Dataset rows: whatever an author hands over becomes a list of `RolloutInput`s.

Accepted: a `datasets.Dataset`, a list of dicts, or a callable without arguments that returns one of these (called on
first use). A row has `question` or `prompt`, and may have `answer`, `info`, `task`, `example_id` and anything else.
"""

from __future__ import annotations

import copy
import json
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verifiers.errors import DatasetError
from verifiers.types import Message, RolloutInput, SystemMessage, TextMessage, UserMessage, as_message, as_messages

logger = logging.getLogger("verifiers")

DatasetBuilder = Callable[[], Any]
_CHUNK = 1000  # rows read from Arrow at a time
_EMPTY = "the dataset is empty: it has no rows to roll out"


class Rows:
    """Raw rows in a fixed order, read in chunks from whatever holds them."""

    def __init__(self, source: Any, numbers: Sequence[int] | None = None) -> None:
        """`numbers` are those of the rows before they were shuffled.

        Raises DatasetError for an empty list, and for what holds no rows. A table without rows has columns at least.
        """
        if isinstance(source, Mapping) and not hasattr(source, "column_names"):
            raise DatasetError(
                f"a dataset is a list of rows or a datasets.Dataset, got a dict with {sorted(source)[:6]}"
            )
        if isinstance(source, Mapping):
            raise DatasetError(
                f"got a DatasetDict with splits {sorted(source)}: pass one of them, e.g. dataset['train']"
            )
        if not hasattr(source, "column_names"):
            if isinstance(source, (str, bytes)) or not hasattr(source, "__iter__"):
                raise DatasetError(f"a dataset is a list of rows or a datasets.Dataset, got {type(source).__name__}")
            source = list(source)
        elif not hasattr(source, "__len__"):
            raise DatasetError("a streaming dataset has no length; take a part of it, e.g. list(dataset.take(1000))")
        self.source = source
        if len(source) == 0 and not (self.is_arrow and source.column_names):
            raise DatasetError(_EMPTY)
        self.numbers = range(len(source)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self.source)

    @property
    def is_arrow(self) -> bool:
        return hasattr(self.source, "column_names")

    @property
    def columns(self) -> list[str]:
        if self.is_arrow:
            return list(self.source.column_names)
        first = self.source[0]
        if not isinstance(first, Mapping):
            raise DatasetError(
                f"a row is a dict with 'question' or 'prompt', got {type(first).__name__}: {first!r:.80}"
            )
        return list(first)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        if not self.is_arrow:
            yield from self.source
            return
        for start in range(0, len(self.source), _CHUNK):
            columns = self.source[start : start + _CHUNK]
            names = list(columns)
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(names, values, strict=True))

    def shuffled(self, seed: int) -> Rows:
        """Another order; every row keeps its number, and so the `example_id` that is made of it."""
        order = shuffled_order(len(self), seed)
        source = self.source.select(order) if self.is_arrow else [self.source[i] for i in order]
        return Rows(source, [self.numbers[i] for i in order])


def shuffled_order(length: int, seed: int) -> list[int]:
    order = list(range(length))
    random.Random(seed).shuffle(order)
    return order


@dataclass
class RowFormat:
    """How a raw row becomes a `RolloutInput`."""

    system_prompt: str | None = None
    few_shot: list[Message] = field(default_factory=list)
    message_type: str = "chat"
    default_task: str = "default"

    def check(self, rows: Rows) -> None:
        """Raises DatasetError when the columns, or the first row, cannot work."""
        columns = rows.columns
        if "prompt" not in columns and "question" not in columns:
            raise DatasetError(
                f"the dataset needs a column 'question' (text) or 'prompt' (messages); it has {columns}. "
                "Try: dataset.rename_column(…, 'question')"
            )
        if not rows.is_arrow:
            self.row(rows.source[0], 0)

    def row(self, row: Mapping[str, Any], index: int) -> RolloutInput:
        """Raises DatasetError naming the row and what is wrong with it."""
        if not isinstance(row, Mapping):
            raise DatasetError(f"row {index}: a row is a dict, got {type(row).__name__}: {row!r:.80}")
        made = dict(row)
        example_id = made.get("example_id")
        if type(example_id) is not int:
            if example_id is not None:
                made["src_id"] = example_id
            made["example_id"] = index
        made["prompt"] = self._prompt(made, index)
        if not made.get("task"):
            made["task"] = self.default_task
        return made

    def _prompt(self, row: dict[str, Any], index: int) -> list[Message]:
        prompt = row.get("prompt")
        if prompt is None:
            return self._from_question(row, index)
        if self.message_type == "completion":
            return [TextMessage(prompt)] if isinstance(prompt, str) else as_messages(prompt)
        try:
            messages: list[Message] = (
                [UserMessage(prompt)] if isinstance(prompt, str) else [as_message(m) for m in prompt]
            )
        except TypeError as error:
            raise DatasetError(f"row {index}: 'prompt' is no list of messages: {error}") from None
        if self.system_prompt and not (messages and messages[0].get("role") == "system"):
            messages.insert(0, SystemMessage(self.system_prompt))
        return messages

    def _from_question(self, row: dict[str, Any], index: int) -> list[Message]:
        question = row.get("question")
        if not isinstance(question, (str, list)):
            kind = "missing" if question is None else f"a {type(question).__name__}"
            raise DatasetError(f"row {index}: 'question' must be text, it is {kind}; the row has {sorted(row)}")
        if self.message_type == "completion":
            return [TextMessage(f"{self.system_prompt or ''}{question}")]
        messages: list[Message] = [SystemMessage(self.system_prompt)] if self.system_prompt else []
        messages += [m.copy() for m in self.few_shot]
        asked = as_message(UserMessage(question))
        row["question"] = asked["content"]  # images as text: a row is copied for each rollout
        messages.append(asked)
        return messages


def formatted(rows: Rows, form: RowFormat, n: int = -1) -> list[RolloutInput]:
    """The first `n` rows (all if negative; at most as many as there are)."""
    wanted = len(rows) if n < 0 else min(n, len(rows))
    made: list[RolloutInput] = []
    for number, row in zip(rows.numbers[:wanted], rows, strict=False):
        made.append(form.row(row, number))
    return made


class Splits:
    """The training and the evaluation rows of one environment; each is built, checked and formatted on first use."""

    def __init__(self, train: Any, evaluation: Any) -> None:
        self._sources = {"train": train, "eval": evaluation}
        self._rows: dict[str, Rows] = {}
        self._hf_datasets: dict[str, Any] = {}

    def has(self, split: str) -> bool:
        return self._sources[split] is not None

    def replace(self, split: str, source: Any) -> None:
        self._sources[split] = source
        self._rows.pop(split, None)
        self._hf_datasets.pop(split, None)

    def check(self, form: RowFormat) -> None:
        """Checks what can be checked without building anything. Raises DatasetError."""
        for split, source in self._sources.items():
            if source is not None and not callable(source):
                self._load(split, form)

    def rows(self, split: str, form: RowFormat, n: int = -1, seed: int | None = None) -> list[RolloutInput]:
        """The first `n` rows, formatted (-1: all); `seed` shuffles first."""
        rows = self._load(self._there(split), form)
        if not len(rows):  # a filter may leave a split with columns and nothing in them: an error only if it is used
            raise DatasetError(_EMPTY)
        return formatted(rows if seed is None else rows.shuffled(seed), form, n)

    def hf_dataset(self, split: str, form: RowFormat, n: int = -1, seed: int | None = None) -> Any:
        """The same as a `datasets.Dataset`; `seed` shuffles for good, as the classic `get_dataset` does."""
        split = self._there(split)
        if split not in self._hf_datasets:
            self._hf_datasets[split] = as_hf_dataset(formatted(self._load(split, form), form))
        if seed is not None:
            order = shuffled_order(len(self._hf_datasets[split]), seed)
            self._hf_datasets[split] = self._hf_datasets[split].select(order)
            self._rows[split] = self._rows[split].shuffled(seed)
        whole = self._hf_datasets[split]
        return whole if n <= 0 else whole.select(range(min(n, len(whole))))

    def _there(self, split: str) -> str:
        """`split`, or the other one when the environment has only that."""
        if self.has(split):
            return split
        return "train" if split == "eval" else "eval"

    def _load(self, split: str, form: RowFormat) -> Rows:
        if split not in self._rows:
            source = self._sources[split]
            rows = Rows(source() if callable(source) else source)
            form.check(rows)
            if form.few_shot and "prompt" in rows.columns:
                logger.warning("few_shot is ignored: the rows have prompts of their own")
            self._rows[split] = rows
        return self._rows[split]


def as_table(source: Any) -> Any:
    """Rows of any kind as a `datasets.Dataset`, as they are."""
    from datasets import Dataset

    rows: Any = source() if callable(source) else source
    return rows if hasattr(rows, "column_names") else Dataset.from_list(list(rows))


def as_hf_dataset(rows: Sequence[RolloutInput]) -> Any:
    """A `datasets.Dataset` of formatted rows, for trainers and authors who work on one.

    Raises DatasetError when the rows do not fit one Arrow schema.
    """
    from datasets import Dataset

    try:
        return Dataset.from_list([_without_types(row) for row in rows])
    except Exception as error:
        raise DatasetError(
            f"these rows cannot be held by one datasets.Dataset ({type(error).__name__}: {error}). Keep varying fields "
            "as JSON text, e.g. info=json.dumps({…}): it is decoded when the rollout starts"
        ) from error


def _without_types(row: RolloutInput) -> dict[str, Any]:
    return {**row, "prompt": [dict(m) for m in row["prompt"]]}


def own_copy(value: Any) -> Any:
    """A deep copy of a row, so that one rollout never writes into another's.

    Much faster than copy.deepcopy on JSON-like values; what else there is (images, objects) is deep-copied.
    """
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if kind is list:
        return [own_copy(v) for v in value]
    if kind is dict:
        return {k: own_copy(v) for k, v in value.items()}
    if isinstance(value, dict) and not hasattr(value, "__dict__"):
        made = dict.__new__(kind)
        dict.update(made, {k: own_copy(v) for k, v in value.items()})
        return made
    return copy.deepcopy(value)


_IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None)})


def decoded_info(info: Any) -> Any:
    """`info` as a dict: JSON text is decoded, absent is `{}`.

    Authors store JSON text because Arrow gives every row's dict the same keys and fills the gaps with None.
    """
    if info is None or info == "":
        return {}
    if isinstance(info, str):
        try:
            return json.loads(info)
        except ValueError as error:
            raise DatasetError(f"'info' is text but no JSON ({error}): {info[:80]!r}") from None
    return info
