"""`ReleaseDiff`: what changed in the files between two releases of an environment."""

from __future__ import annotations

import difflib
import time
from collections import Counter
from dataclasses import dataclass
from typing import IO, Literal

from hub_server.hub import Hub
from hub_server.principal import Principal
from hub_server.services.sources import Source, SourceMember, as_text, content_of, opened, source

Change = Literal["added", "removed", "changed", "moved"]

MAX_TEXTS = 60  # files whose lines are compared; the others are listed only
MAX_FILE_BYTES = 200_000
MAX_FILE_LINES = 5_000  # a comparison's time grows with the product of the two sides
MAX_SHOWN_LINES = 1_000  # of one file's difference
MAX_ALIKE = 100_000  # pairs of equal lines in two files: what a comparison looks at again and again
COMPARE_S = 2.0  # after so long no other file is compared
# Every member of a tar is reached by unpacking all before it.
MAX_UNPACKED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class FileChange:
    path: str
    change: Change
    old_path: str | None  # of one that moved
    old_size_bytes: int | None  # None: was not there
    new_size_bytes: int | None  # None: is gone
    lines: tuple[str, ...]  # a unified diff, without its two header lines
    left_out: str | None  # why there are no lines, or not all of them


@dataclass(frozen=True, slots=True)
class ReleaseDiff:
    old_version: str
    new_version: str
    old_file: str
    new_file: str
    changes: tuple[FileChange, ...]  # by path
    n_unchanged: int


def release_diff(hub: Hub, who: Principal, owner: str, name: str, old: str, new: str) -> ReleaseDiff:
    """Raises NotFound; Forbidden while the project is quarantined."""
    before, after = source(hub, who, owner, name, old), source(hub, who, owner, name, new)
    changes, n_unchanged = changed_files(before.members, after.members)
    with opened(hub, before.sha256) as old_archive, opened(hub, after.sha256) as new_archive:
        reader = _Reader(before, after, old_archive, new_archive)
        found = tuple(reader.compared(change, *sides) for change, *sides in changes)
    return ReleaseDiff(old, new, before.filename, after.filename, found, n_unchanged)


Pair = tuple[Change, SourceMember | None, SourceMember | None]


def changed_files(old: tuple[SourceMember, ...], new: tuple[SourceMember, ...]) -> tuple[list[Pair], int]:
    """What differs, by path, and how many files do not. One that is gone while another with its content has come was
    moved."""
    before, after = ({member.path: member for member in members} for members in (old, new))
    gone = {path: member for path, member in before.items() if path not in after}
    come = {path: member for path, member in after.items() if path not in before}
    changes: list[Pair] = []
    for _, member in sorted(come.items()):
        origin = next((one for one in gone.values() if one.sha256 == member.sha256 and one.size_bytes > 0), None)
        if origin is not None:
            del gone[origin.path]
            changes.append(("moved", origin, member))
        else:
            changes.append(("added", None, member))
    for member in gone.values():
        changes.append(("removed", member, None))
    n_unchanged = 0
    for path in before.keys() & after.keys():
        one, other = before[path], after[path]
        if (one.sha256, one.executable) == (other.sha256, other.executable):
            n_unchanged += 1
        else:
            changes.append(("changed", one, other))
    return sorted(changes, key=lambda pair: (pair[2] or pair[1] or old[0]).path), n_unchanged


class _Reader:
    """Compares files until its budget is used up; then it says so."""

    def __init__(self, old: Source, new: Source, old_archive: IO[bytes], new_archive: IO[bytes]) -> None:
        self._sides = ((old, old_archive), (new, new_archive))
        self._costs = [_cost_of_a_look(one) for one in (old, new)]
        self._left_bytes = MAX_UNPACKED_BYTES
        self._left_texts = MAX_TEXTS
        self._until = time.monotonic() + COMPARE_S

    def compared(self, change: Change, old: SourceMember | None, new: SourceMember | None) -> FileChange:
        lines, left_out = ((), None) if change == "moved" else self._lines(old, new)
        shown = new or old
        assert shown is not None
        return FileChange(
            path=shown.path,
            change=change,
            old_path=old.path if change == "moved" and old else None,
            old_size_bytes=None if old is None else old.size_bytes,
            new_size_bytes=None if new is None else new.size_bytes,
            lines=lines,
            left_out=left_out,
        )

    def _lines(self, old: SourceMember | None, new: SourceMember | None) -> tuple[tuple[str, ...], str | None]:
        if max(member.size_bytes for member in (old, new) if member is not None) > MAX_FILE_BYTES:
            return (), f"larger than {MAX_FILE_BYTES:,} bytes"
        cost = sum(cost for cost, member in zip(self._costs, (old, new), strict=True) if member is not None)
        if self._left_texts == 0 or cost > self._left_bytes or time.monotonic() > self._until:
            return (), "too many changes to show all"
        self._left_texts -= 1
        self._left_bytes -= cost
        texts: list[list[str]] = []
        for (found, archive), member in zip(self._sides, (old, new), strict=True):
            text = "" if member is None else as_text(content_of(archive, found, member, MAX_FILE_BYTES + 1))
            if text is None:
                return (), "not a text"
            texts.append(text.splitlines())
        if max(map(len, texts)) > MAX_FILE_LINES:
            return (), f"more than {MAX_FILE_LINES:,} lines"
        if old is not None and new is not None and texts[0] == texts[1]:
            return (), "only line ends or the permission to execute changed"
        if _n_alike(*texts) > MAX_ALIKE:
            return (), "too many lines are alike"
        shown = list(difflib.unified_diff(texts[0], texts[1], lineterm=""))[2:]
        if len(shown) > MAX_SHOWN_LINES:
            return tuple(shown[:MAX_SHOWN_LINES]), f"{len(shown) - MAX_SHOWN_LINES:,} more lines"
        return tuple(shown), None


def _n_alike(old: list[str], new: list[str]) -> int:
    """Pairs of equal lines, without those that `difflib` takes for padding because they make up 1 % of the file."""
    before, after = Counter(old), Counter(new)
    popular = len(new) // 100 + 1 if len(new) >= 200 else len(new)
    return sum(n * before[line] for line, n in after.items() if n <= popular)


def _cost_of_a_look(found: Source) -> int:
    """Bytes that are unpacked to reach a member; a wheel's are reached at once."""
    return sum(member.size_bytes for member in found.members) if found.kind == "sdist" else MAX_FILE_BYTES
