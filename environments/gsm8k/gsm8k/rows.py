"""Rows in the public schema, `question` and `answer` with the number after `####`, and what becomes of them."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import verifiers as vf

SUFFIXES = (".jsonl", ".parquet")
NUMBER = re.compile(r"-?\d+(\.\d+)?")


def formatted(rows: list[dict[str, Any]], count: int, seed: int | None) -> list[dict[str, Any]]:
    """The first `count` rows (-1: all) in the form an environment takes; a seed shuffles first."""
    if seed is not None:
        rows = random.Random(seed).sample(rows, len(rows))
    chosen = rows if count < 0 else rows[:count]
    return [
        {"question": row["question"], "answer": final_number(row["answer"]), "info": {"source": row["source"]}}
        for row in chosen
    ]


def final_number(solution: str) -> str:
    """The number after `####`, without the commas of the thousands.

    >>> final_number("He pays 3 * 400 = 1,200 dollars. #### 1,200")
    '1200'
    """
    return vf.extract_hash_answer(solution).replace(",", "")


def read_file(path: Path) -> list[dict[str, Any]]:
    """Raises DatasetError naming the row that is not in the schema: with a broken reference every answer is wrong."""
    rows = _read_parquet(path) if path.suffix == ".parquet" else _read_jsonl(path)
    for number, row in enumerate(rows, start=1):
        _check_row(row, f"{path.name}, row {number}")
    return [{**row, "source": path.name} for row in rows]


def _check_row(row: Any, where: str) -> None:
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("question", "answer")):
        raise vf.DatasetError(f"{where}: a row has the texts 'question' and 'answer', got {row!r:.80}")
    solution = row["answer"]
    if "####" not in solution or not NUMBER.fullmatch(final_number(solution)):
        raise vf.DatasetError(f"{where}: 'answer' must end in '#### ' and a number, it ends in {solution[-40:]!r}")


def _read_jsonl(path: Path) -> list[Any]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise vf.DatasetError(f"{path.name}, line {number} is no JSON ({error}): {line[:80]!r}") from None
    return rows


def _read_parquet(path: Path) -> list[Any]:
    from pyarrow import ArrowInvalid, parquet

    try:
        return parquet.read_table(path).to_pylist()
    except ArrowInvalid as error:
        raise vf.DatasetError(f"{path.name} is no parquet file: {error}") from None
