"""`Capture`: reads what a program writes, up to a limit for stdout and stderr together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_CHUNK = 65536


class Capture:
    """Belongs to the running event loop. `fds` are the writing ends; close them once they are passed on."""

    def __init__(self, limit_bytes: int, on_overflow: Callable[[], None], owner: int | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = limit_bytes
        self._on_overflow = on_overflow
        self._kept: tuple[list[bytes], list[bytes]] = ([], [])
        self._open: dict[int, int] = {}  # reading end → 0 for stdout, 1 for stderr
        self.is_cut = [False, False]
        self.fds: list[int] = []
        for stream in (0, 1):
            ours, theirs = os.pipe()
            os.set_blocking(ours, False)
            if owner is not None:
                os.fchown(theirs, owner, owner)  # else the program could not open /dev/stdout
            self._open[ours] = stream
            self.fds.append(theirs)

    def start(self) -> None:
        """Once the program has been asked for."""
        self.close_theirs()
        for fd in self._open:
            self._loop.add_reader(fd, self._read, fd)

    def close_theirs(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()

    def finish(self) -> tuple[bytes, bytes]:
        """When the program has ended: takes what is in the pipes still, and waits for no more."""
        for fd in list(self._open):
            while fd in self._open and self._read(fd):
                pass
        self.close()
        return b"".join(self._kept[0]), b"".join(self._kept[1])

    def close(self) -> None:
        self.close_theirs()
        for fd in list(self._open):
            self._drop(fd)

    def _read(self, fd: int) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        stream = self._open[fd]
        if not data:
            self._drop(fd)
            return False
        kept = data[: self._left]
        if kept:
            self._kept[stream].append(kept)
            self._left -= len(kept)
        if len(kept) < len(data):
            was_whole = not any(self.is_cut)
            self.is_cut[stream] = True
            if was_whole:
                self._on_overflow()
        return len(kept) == len(data)

    def _drop(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        del self._open[fd]
        os.close(fd)
