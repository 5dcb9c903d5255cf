"""`LineFile`: a file of lines that is only ever appended to, by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from verifiers.errors import ResultsError

_BLOCK = 1 << 16

T = TypeVar("T")


class LineFile:
    """An append returns when the operating system has the whole line: a process killed afterwards loses nothing.

    What a *machine* loses when it dies is bounded by calls of `sync`. Appends must come from one thread at a time.
    """

    def __init__(self, path: Path, *, lock: bool = False) -> None:
        """Opens, creating it if need be. With `lock`, BlockingIOError if another process has locked it."""
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._unsynced = False
        try:
            if lock:
                _flock(self._fd, fcntl.LOCK_EX)
            self.size = os.fstat(self._fd).st_size
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, line: bytes) -> None:
        """`line` comes without its newline. On OSError (disk full) the file ends in its last whole line again."""
        rest = line + b"\n"
        whole = len(rest)
        try:
            while (written := os.write(self._fd, rest)) < len(rest):
                rest = rest[written:]  # a short write: the next one says why, or goes on
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += whole
        self._unsynced = True

    def cut_torn_line(self) -> int:
        """Removes what follows the last newline, which a killed writer left; returns how many bytes that was."""
        end = self.size
        while end > 0:
            start = max(0, end - _BLOCK)
            newline = os.pread(self._fd, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        torn = self.size - end
        if torn:
            os.ftruncate(self._fd, end)
            self.size = end
        return torn

    def clear(self) -> None:
        os.ftruncate(self._fd, 0)
        self.size = 0

    def sync(self) -> None:
        """To the disk itself. May run in another thread than `append`, but not beside `close`."""
        if self._unsynced:
            self._unsynced = False  # before the call: a line appended meanwhile is left for the next one
            os.fsync(self._fd)

    def close(self) -> None:
        try:
            self.sync()
        finally:
            os.close(self._fd)


def read_lines(
    path: Path, decode: Callable[[bytes], T], on_damage: Callable[[ResultsError], None] | None = None
) -> Iterator[T]:
    """Whole lines, decoded. A damaged one goes to `on_damage` or raises ResultsError with its number."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") or not line.strip():
                continue
            try:
                value = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                damage = ResultsError(f"{path}, line {number} cannot be read ({error})")
                if on_damage is None:
                    raise ResultsError(
                        f"{damage}. Restore the file, or delete that line to run its rollout again"
                    ) from error
                on_damage(damage)
            else:
                yield value


def is_locked(path: Path) -> bool:
    """Whether another `LineFile` holds the lock of `path` now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        _flock(fd, fcntl.LOCK_SH)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _flock(fd: int, kind: int) -> None:
    """The lock goes with the open file, so a killed process leaves none behind."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # a file system without locks: better unguarded than unusable
