"""LiveCodeBench's problems: which release, of which days.

The public set is JSON lines beside a loading script, and today's `datasets` runs no scripts: so the lines are fetched
as they are, and read one at a time, since all files together have several gigabytes of packed tests.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import verifiers as vf
from i3_code.own_problems import livecodebench_rows
from i3_code.sources import made_row

logger = logging.getLogger("verifiers")
Row = dict[str, Any]

NAME = "livecodebench/code_generation_lite"
COLUMNS = "question_content question_id contest_date starter_code public_test_cases private_test_cases metadata"
DATA = vf.DataSource(NAME, split="test", columns=tuple(COLUMNS.split()))
_FILES = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl")
RELEASES = {
    **{f"release_v{number}": _FILES[:number] for number in range(1, 7)},  # with all before it
    **{f"v{number}": _FILES[number - 1 : number] for number in range(1, 7)},  # what it added
}


def rows(
    release: str, start: date | None, end: date | None, path: str | None = None, num: int = -1, seed: int | None = None
) -> list[Row]:
    """At most `num` problems of contests from `start` to `end`, both days included; a seed shuffles first.

    Raises DatasetError naming a row outside the schema.
    """
    published = DATA.rows(path) if path is not None else _published(RELEASES[release])
    looked, kept = 0, list[Row]()
    for looked, row in enumerate(published, start=1):
        try:
            day = _day(row["contest_date"])
            if (start is None or start <= day) and (end is None or day <= end):
                kept.append(_read(row, day))
        except (LookupError, TypeError, ValueError) as error:
            raise vf.DatasetError(
                f"{row.get('source', NAME)}, row {looked}: not in the schema of {NAME} "
                f"({type(error).__name__}: {error}): {row!r:.200}"
            ) from None
    logger.info("%s: %d of %d problems are of %s to %s", NAME, len(kept), looked, start or "…", end or "…")
    if not kept:
        raise vf.DatasetError(f"none of {looked} problems is of a contest from {start or '…'} to {end or '…'}")
    if seed is not None:
        kept = random.Random(seed).sample(kept, len(kept))
    return kept if num < 0 else kept[:num]


def _read(row: Row, day: date) -> Row:
    """The tests stay packed: the rubric unpacks those of the row that it grades, without running a pickle."""
    metadata = json.loads(row["metadata"]) if isinstance(row["metadata"], str) else row["metadata"] or {}
    tests = {name: row[name] for name in ("public_test_cases", "private_test_cases")}
    for name, value in tests.items():
        if not isinstance(value, str):
            raise TypeError(f"{name!r} is {type(value).__name__}, not a text")
    function = metadata.get("func_name")
    info = {name: row[name] for name in ("question_id", "difficulty", "platform") if row.get(name) is not None}
    problem = {**tests, "metadata": {"func_name": function}}
    made = made_row(row["question_content"], problem, function, row["starter_code"], contest_date=str(day), **info)
    made["info"]["source"] = row["source"]
    return made


def _day(value: Any) -> date:
    return value.date() if isinstance(value, datetime) else datetime.fromisoformat(value).date()


def _published(files: tuple[str, ...]) -> Iterable[Row]:
    """The lines of the public files; our own rows where they cannot be reached and are not cached."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        paths = [Path(hf_hub_download(NAME, name, repo_type="dataset")) for name in files]
    except (LocalEntryNotFoundError, ConnectionError) as error:
        logger.warning(
            "%s cannot be reached and there is no cached copy (%s). A few rows of the environment's own serve instead: "
            "THEIR SCORES ARE NOT %s SCORES. For the real thing connect once, or pass data=PATH.",
            NAME, " ".join(str(error).split())[:300], NAME,
        )  # fmt: skip
        return [{**row, "source": f"own rows, not {NAME}"} for row in livecodebench_rows()]
    except HfHubHTTPError as error:
        raise vf.DatasetError(f"{NAME}: {error}. Pass data=PATH for a copy of your own") from error
    return _lines(paths)


def _lines(paths: list[Path]) -> Iterator[Row]:
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield {**json.loads(line), "source": f"{NAME} {path.name}"}
