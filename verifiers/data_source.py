"""`DataSource`: one split of a public data set, the reader's own copy, or a few rows shipped with an environment."""

from __future__ import annotations

import gzip
import json
import logging
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from verifiers.errors import DatasetError, one_line

logger = logging.getLogger("verifiers")

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")
Row = dict[str, Any]
_said: set[str] = set()  # data sets of which it was said that they cannot be reached: once for all their splits


class DataSource(msgspec.Struct, frozen=True):
    """Where an environment's rows come from. Making one reads nothing.

    test = vf.DataSource("openai/gsm8k", split="test", config="main", columns=("question", "answer"))
    rows = test.rows(data=data, own=OWN_ROWS, num=100, seed=0)
    """

    name: str  # as `datasets.load_dataset` takes it
    split: str = "train"
    config: str | None = None
    revision: str | None = None  # a commit or tag of the data set; `None`: its newest
    columns: tuple[str, ...] = ()  # that every row must have

    def rows(
        self,
        data: str | Path | None = None,
        own: Sequence[Mapping[str, Any]] = (),
        num: int = -1,
        seed: int | None = None,
    ) -> list[Row]:
        """Rows as they are published, each with one key more, `source`: where it came from.

        `data` is a file in the same schema (.jsonl, .jsonl.gz, .json, .parquet) and is taken instead of the public
        split. `own` serves, with a warning, where the public split cannot be reached and is not cached. `seed`
        shuffles, then the first `num` are taken (-1: all).

        Raises DatasetError naming the row that lacks a column, the file that cannot be read, what the public data set
        wants (terms accepted, a token), or that it cannot be reached and there are no rows in its place; ValueError
        for a `data` of another kind.
        """
        table: Any = None
        if data is not None:
            path = check_data(data)
            table, source = read_rows(path), path.name
        else:
            table, source = self._public(bool(own)), str(self)
            if table is None:
                table, source = own, f"own rows, not {self.name}"
        order: Sequence[int] = range(len(table))
        if seed is not None:
            order = random.Random(seed).sample(order, len(order))
        chosen = order if num < 0 else order[:num]
        rows = table.select(chosen) if hasattr(table, "select") else (table[number] for number in chosen)
        return [self._checked(row, source, number) for number, row in zip(chosen, rows, strict=True)]

    def __str__(self) -> str:
        return " ".join(part for part in (self.name, self.config, self.split) if part)

    def _public(self, is_replaceable: bool) -> Any:
        """The split as a `datasets.Dataset`; `None` where it can neither be fetched nor is cached."""
        from datasets import load_dataset
        from datasets.exceptions import DatasetNotFoundError

        try:
            return load_dataset(self.name, self.config, split=self.split, revision=self.revision)
        except ConnectionError as error:
            if not is_replaceable:
                raise DatasetError(
                    f"{self} cannot be reached and there is no cached copy ({one_line(error)}). Connect once, or pass "
                    "data=PATH"
                ) from error
            if self.name not in _said:
                _said.add(self.name)
                logger.warning(
                    "%s cannot be reached and there is no cached copy (%s). A few rows of the environment's own serve "
                    "instead: THEIR SCORES ARE NOT %s SCORES. For the real thing connect once, or pass data=PATH.",
                    self, one_line(error), self.name,
                )  # fmt: skip
            return None
        except DatasetNotFoundError as error:
            raise DatasetError(
                f"{self}: {one_line(error)}. If it is gated, accept its terms on its page and set HF_TOKEN; or pass "
                "data=PATH"
            ) from error

    def _checked(self, row: Any, source: str, number: int) -> Row:
        if not isinstance(row, Mapping):
            raise DatasetError(f"{source}, row {number + 1}: a row is an object, got {row!r:.80}")
        missing = [column for column in self.columns if column not in row]
        if missing:
            raise DatasetError(
                f"{source}, row {number + 1}: no column {', '.join(map(repr, missing))}; it has "
                f"{sorted(map(str, row))}. The rows are to be those of {self}"
            )
        return {**row, "source": source}


def check_data(path: Any, argument: str = "data") -> Path:
    """The file that an argument of `load_environment` names. Raises ValueError saying what is wrong with it."""
    if not isinstance(path, str | Path) or not Path(path).name.endswith(SUFFIXES):
        raise ValueError(f"{argument}={str(path)!r}: give the path of a file that ends in {', '.join(SUFFIXES)}")
    if not Path(path).is_file():
        raise ValueError(f"{argument}={str(path)!r}: there is no such file")
    return Path(path)


def read_rows(path: Path) -> list[Any]:
    """Every row of a file that `check_data` passed. Raises DatasetError naming the line that cannot be read."""
    if path.suffix == ".parquet":
        return _read_parquet(path)
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path.name} cannot be read: {one_line(error)}") from None
    return _read_json(path, text) if path.suffix == ".json" else _read_lines(path, text)


def _read_json(path: Path, text: str) -> list[Any]:
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise DatasetError(f"{path.name} is no JSON: {error}") from None
    if not isinstance(rows, list):
        raise DatasetError(f"{path.name} is to hold a list of rows, it holds a {type(rows).__name__}")
    return rows


def _read_lines(path: Path, text: str) -> list[Any]:
    rows: list[Any] = []
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: a text may hold U+2028
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise DatasetError(f"{path.name}, line {number} is no JSON ({error}): {line[:80]!r}") from None
    return rows


def _read_parquet(path: Path) -> list[Any]:
    from pyarrow import ArrowInvalid, parquet

    try:
        return parquet.read_table(path).to_pylist()
    except ArrowInvalid as error:
        raise DatasetError(f"{path.name} is no parquet file: {error}") from None
