"""`RunFile`: a `results.jsonl` read at random; rows of all rollouts in memory, their records on the disk.

The file is only read. It may be growing: `refresh` goes on from where the last one stopped, and an unfinished last
line waits for its newline.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from verifiers.errors import ResultsError
from verifiers.records import RolloutRecord, decode_record
from verifiers.viewer.rows import SampleRow, sample_row, searchable_text

MAX_LINE_BYTES = 64 << 20  # a longer line is passed over, with a note
MAX_NOTES = 20
_PLAIN = re.compile(r"[a-z0-9 .,;:_'()+*=-]+")
_HEAD_BYTES = 256  # by which a file is known again

Key = tuple[int, int]


class RunFile:
    """Raises ResultsError where the file cannot be read. Safe to use from several threads.

    >>> import tempfile
    >>> from verifiers.records import EnvInfo, ModelInfo, encode_record
    >>> record = RolloutRecord(env=EnvInfo(name="demo"), example_id=3, rollout_index=0, model=ModelInfo(name="m"),
    ...                        prompt=[], messages=[], reward=1.0, status="scored")
    >>> path = Path(tempfile.mkdtemp()) / "results.jsonl"
    >>> _ = path.write_bytes(encode_record(record) + b"\\n" + b'{"half a li')
    >>> file = RunFile(path)
    >>> file.refresh()
    True
    >>> [row.key for row in file.rows], file.record((3, 0)) == record
    ([(3, 0)], True)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()  # one refresh at a time; readers take snapshots
        self._forget()

    def _forget(self) -> None:
        self._spans: dict[Key, tuple[int, int]] = {}  # offset and length of the last record of each rollout
        self._found: dict[Key, SampleRow] = {}
        self._rows: tuple[SampleRow, ...] | None = None
        self._read = self._size = self._lines = 0
        self._head = b""
        self.version = getattr(self, "version", 0) + 1  # another number whenever the rows are others
        self.n_damaged = 0
        self.notes: list[str] = []  # why lines could not be read, the first few
        self.weights: dict[str, float] = {}  # of the reward functions

    @property
    def rows(self) -> tuple[SampleRow, ...]:
        """Sorted by example and try; of rollouts that were run again the last."""
        with self._lock:
            if self._rows is None:
                self._rows = tuple(self._found[key] for key in sorted(self._found))
            return self._rows

    @property
    def share_read(self) -> float:
        """How much of the file is in `rows`, from 0 to 1."""
        return self._read / self._size if self._size else 1.0

    def refresh(self, budget_s: float | None = None) -> bool:
        """Reads what is new, for at most `budget_s` seconds; whether it came to the end."""
        deadline = None if budget_s is None else time.monotonic() + budget_s
        try:
            with self._lock, self.path.open("rb") as file:
                return self._read_on(file, deadline)
        except OSError as error:
            raise ResultsError(f"no results to read: {self.path}: {error.strerror}") from error

    def record(self, key: Key) -> RolloutRecord:
        """Raises LookupError for a rollout that is not in the file."""
        return decode_record(self.line(key))

    def line(self, key: Key) -> bytes:
        """The record as it stands in the file. Raises LookupError."""
        with self._lock:
            span = self._spans.get(key)
        if span is None:
            raise LookupError(f"{self.path} has no try {key[1]} of example {key[0]}")
        try:
            with self.path.open("rb") as file:
                file.seek(span[0])
                return file.read(span[1])
        except OSError as error:
            raise ResultsError(f"no results to read: {self.path}: {error.strerror}") from error

    def text(self, key: Key, phrases: Sequence[str] = ()) -> str:
        """What a filter's phrase is looked for in. With `phrases` empty where the line shows that none is in it."""
        line = self.line(key)
        if phrases and _lacks(line, phrases):
            return ""
        return searchable_text(decode_record(line))

    def _read_on(self, file: BinaryIO, deadline: float | None) -> bool:
        self._size = os.fstat(file.fileno()).st_size
        head = file.read(_HEAD_BYTES)
        if self._size < self._read or not head.startswith(self._head):  # another file of the same name
            self._forget()
            self._size = os.fstat(file.fileno()).st_size
        self._head = head
        file.seek(self._read)
        while True:
            at = self._read
            line = file.readline(MAX_LINE_BYTES)
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                if not self._pass_over(file):
                    return True
                continue
            if not line.endswith(b"\n"):  # the end, or a line that is being written
                return True
            self._read = at + len(line)
            self._lines += 1
            if line.strip():
                self._take(line, at)
            if deadline is not None and self._lines % 32 == 0 and time.monotonic() > deadline:
                return self._read >= self._size

    def _pass_over(self, file: BinaryIO) -> bool:
        """Goes behind a line that is too long; `False` when it has no end yet."""
        while True:
            block = file.readline(MAX_LINE_BYTES)
            if not block:
                return False
            if block.endswith(b"\n"):
                self._read = file.tell()
                self._lines += 1
                self._damaged(f"line {self._lines} has more than {MAX_LINE_BYTES >> 20} MiB")
                return True

    def _take(self, line: bytes, at: int) -> None:
        try:
            record = decode_record(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._damaged(f"line {self._lines} cannot be read ({error})")
            return
        row = sample_row(record)
        self._found[row.key] = _interned(row)
        self._spans[row.key] = at, len(line)
        self._rows = None
        self.version += 1
        if not self.weights:
            self.weights = {score.name: score.weight for score in record.scores}

    def _damaged(self, note: str) -> None:
        self.n_damaged += 1
        if len(self.notes) < MAX_NOTES:
            self.notes.append(note)


def _lacks(line: bytes, phrases: Sequence[str]) -> bool:
    """Whether none can be in the record, told from its JSON alone: of phrases that JSON spells as they are."""
    if b"\\u" in line or not all(_PLAIN.fullmatch(phrase) for phrase in phrases):
        return False
    lowered = line.lower()
    return not any(phrase.encode() in lowered for phrase in phrases)


def _interned(row: SampleRow) -> SampleRow:
    """With one copy in memory of the texts that every row of a run repeats."""
    return msgspec.structs.replace(
        row,
        model=sys.intern(row.model),
        status=sys.intern(row.status),
        stop_condition=None if row.stop_condition is None else sys.intern(row.stop_condition),
        scores={sys.intern(name): value for name, value in row.scores.items()},
    )
