"""The journal of a run: rollouts that have ended and wait for the rest of their group to be scored."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from verifiers.errors import ResultsError
from verifiers.line_file import read_lines
from verifiers.records import RolloutRecord, TokenTrace, decode_record, encode_json
from verifiers.redaction import Redactor


class Pending(msgspec.Struct, frozen=True):
    """A rollout that has ended and waits for its group: score it, no model call is needed."""

    record: RolloutRecord
    extra: dict[str, Any]  # the author's own state keys


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the journal."""

    record: msgspec.Raw
    traces: list[TokenTrace | None] = []  # one a turn, when tokens are saved
    extra: dict[str, Any] = {}
    resumable: bool = True
    lost: list[str] = []  # keys of the author's state that could not be kept


def journal_line(
    record: bytes, traces: list[TokenTrace | None], extra: dict[str, Any], *, exact: bool, redactor: Redactor
) -> bytes:
    """`record` is encoded already; `exact` is whether that kept all of the record."""
    kept = {key: value for key, value in extra.items() if type(key) is str and _survives_json(value)}
    lost = sorted(str(key) for key in extra if key not in kept)
    entry = JournalEntry(
        record=msgspec.Raw(record),
        traces=traces,
        extra=kept,
        resumable=exact and not lost,
        lost=lost,
    )
    encoded = encode_json(entry)
    redacted = redactor.data(encoded)
    if redacted != encoded and entry.resumable:  # a scorer would no longer see what the rollout wrote
        redacted = redactor.data(encode_json(msgspec.structs.replace(entry, resumable=False)))
    return redacted


def read_journal(path: Path, answered: set[tuple[int, int]]) -> tuple[dict[tuple[int, int], Pending], list[str]]:
    """The rollouts that can still be scored, and notes on those that cannot. The last entry of a rollout counts.

    The rollouts of `answered` have their record in the results already.
    """
    found: dict[tuple[int, int], Pending] = {}
    unusable: set[tuple[int, int]] = set()
    notes: list[str] = []

    def skip(damage: ResultsError) -> None:
        notes.append(f"{damage}; its rollout is run again")

    for entry, record in read_lines(path, _decode, skip):
        if record.key in answered:
            continue
        found.pop(record.key, None)
        unusable.discard(record.key)
        if entry.resumable:
            found[record.key] = Pending(record, entry.extra)
        else:
            unusable.add(record.key)
    if unusable:
        notes.append(
            f"run again, since JSON cannot hold their state or it has a secret in it: {len(unusable)} rollouts"
        )
    return found, notes


def _decode(line: bytes) -> tuple[JournalEntry, RolloutRecord]:
    entry = msgspec.json.decode(line, type=JournalEntry)
    record = decode_record(bytes(entry.record))
    return entry, with_traces(record, entry.traces) if entry.traces else record


def with_traces(record: RolloutRecord, traces: list[TokenTrace | None]) -> RolloutRecord:
    """The record with its turns' tokens put back in; unchanged when they belong to another number of turns."""
    if len(traces) != len(record.turns):
        return record
    turns = [msgspec.structs.replace(turn, tokens=trace) for turn, trace in zip(record.turns, traces, strict=True)]
    return msgspec.structs.replace(record, turns=turns)


def _survives_json(value: Any) -> bool:
    """Whether JSON gives `value` back the same: types too, since author code may depend on them."""
    try:
        return _is_plain(value)
    except RecursionError:
        return False


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if value is None or kind is bool:
        return True
    if kind is str:
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if kind is int:
        return -(2**63) <= value < 2**64
    if kind is float:
        return math.isfinite(value)
    if kind is list:
        return all(map(_is_plain, value))
    if kind is dict:
        return all(type(key) is str and _is_plain(key) and _is_plain(item) for key, item in value.items())
    return False
