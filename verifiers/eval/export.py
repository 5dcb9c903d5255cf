"""`export`: saved runs in the forms of other tools."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

from verifiers.dataset import as_table
from verifiers.errors import ConfigError, SetupError, one_line
from verifiers.eval.flat_rows import table
from verifiers.eval.markdown import report_of
from verifiers.records import RolloutRecord, encode_json
from verifiers.viewer.runs import Run
from verifiers.whole_file import replace_file

Form = Literal["rows", "parquet", "dataset", "chat", "markdown"]
FORMS: tuple[Form, ...] = get_args(Form)
_BY_SUFFIX: dict[str, Form] = {".jsonl": "rows", ".parquet": "parquet", ".md": "markdown", "": "dataset"}


def form_of(out: Path, asked: str | None) -> Form:
    """Raises ConfigError for a form there is not, and for a name that does not say which is meant."""
    if asked is not None:
        if asked not in FORMS:
            raise ConfigError(f"--as {asked}: there is no such form. There are: {', '.join(FORMS)}")
        return cast(Form, asked)
    if out.suffix not in _BY_SUFFIX:
        raise ConfigError(f"{out}: say which form is meant by --as ({', '.join(FORMS)}), or by .jsonl, .parquet or .md")
    return _BY_SUFFIX[out.suffix]


def export(
    runs: Sequence[Run],
    out: Path,
    form: Form,
    *,
    min_reward: float | None = None,
    best: bool = False,
    force: bool = False,
) -> int:
    """Writes `out`, all at once, and returns how many rows or conversations are in it (for a report: runs).

    `min_reward` leaves out rollouts that are below it or have no reward; `best` keeps of each example the rollout of
    the highest reward, of equals the shortest. Raises ConfigError when `out` exists and `force` is not given, when
    nothing is left, or when a report is asked for with a choice of rollouts; SetupError when it cannot be written.
    """
    if out.exists() and not force:
        raise ConfigError(f"{out} exists already: choose another name, or --force to replace it")
    if form == "markdown":
        if min_reward is not None or best:
            raise ConfigError("a report is of whole runs: leave out --min-reward and --best")
        reports = [report_of(run.records(), run.metadata) for run in runs]
        return _written(out, "\n".join(reports).encode(), len(runs))
    records = [record for run in runs for record in _chosen(run.records(), form, min_reward, best)]
    if not records:
        raise ConfigError(f"no rollout is left to be written: {_what_was_asked(form, min_reward)}")
    if form == "chat":
        return _written(out, _lines([chat_of(record) for record in records]), len(records))
    rows = table(records)
    if form == "rows":
        return _written(out, _lines(rows), len(rows))
    return _written_by_datasets(out, rows, form)


def chat_of(record: RolloutRecord) -> dict[str, Any]:
    """A conversation as trainers of chat models read it: `messages`, `tools` where they were saved, and `reward`."""
    found: dict[str, Any] = {"messages": [*record.prompt, *record.messages]}
    if tools := record.state_columns.get("tool_defs"):
        found["tools"] = tools
    return found | {"reward": record.reward, "example_id": record.example_id, "rollout_index": record.rollout_index}


def _chosen(
    records: Sequence[RolloutRecord], form: Form, min_reward: float | None, best: bool
) -> Sequence[RolloutRecord]:
    if form == "chat":  # what broke off or was cut short teaches to break off
        records = [one for one in records if one.reward is not None and not one.errors and not one.is_truncated]
    if min_reward is not None:
        records = [one for one in records if one.reward is not None and one.reward >= min_reward]
    if not best:
        return records
    of_example: dict[int, RolloutRecord] = {}
    for record in records:
        if record.reward is not None:
            before = of_example.get(record.example_id)
            if before is None or _rank(record) > _rank(before):
                of_example[record.example_id] = record
    return list(of_example.values())


def _rank(record: RolloutRecord) -> tuple[float, int]:
    assert record.reward is not None
    return record.reward, -(record.usage.completion or 0)


def _what_was_asked(form: Form, min_reward: float | None) -> str:
    whole = "scored, whole and without errors" if form == "chat" else "saved"
    return whole if min_reward is None else f"{whole}, with a reward of at least {min_reward:g}"


def _lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(json.loads(encode_json(row)), ensure_ascii=False).encode() + b"\n" for row in rows)


def _written(out: Path, content: bytes, count: int) -> int:
    try:
        replace_file(out, content)
    except OSError as error:
        raise SetupError(f"{out} cannot be written: {error.strerror or one_line(error)}") from error
    return count


def _written_by_datasets(out: Path, rows: list[dict[str, Any]], form: Form) -> int:
    """Under another name first: what is there under its own name is whole."""
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    new = out.with_name(f".{out.name}.new")
    try:
        made = as_table(rows)
        if form == "parquet":
            made.to_parquet(str(new))
        else:
            made.save_to_disk(str(new))
        if out.is_dir():
            shutil.rmtree(out)
        os.replace(new, out)
    except OSError as error:
        raise SetupError(f"{out} cannot be written: {error.strerror or one_line(error)}") from error
    finally:
        if new.is_dir():
            shutil.rmtree(new)
        else:
            new.unlink(missing_ok=True)
    return len(rows)
