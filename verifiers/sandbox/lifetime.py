"""`Lifetime`: when a sandbox ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from verifiers.sandbox.sandbox import SandboxSpec


class Lifetime:
    """Calls `end(why)` when `lifetime_s` are over from here, or when nothing was asked for `idle_s`."""

    def __init__(self, spec: SandboxSpec, end: Callable[[str], None]) -> None:
        self._idle_s, self._end = spec.idle_s, end
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.call_later(spec.lifetime_s, end, "its lifetime is over")
        self._idle: asyncio.TimerHandle | None = None
        self._busy = 0
        self._is_stopped = False
        self.touch()

    def touch(self) -> None:
        """The idle time is counted anew from here, unless something runs."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._idle_s is not None and self._busy == 0 and not self._is_stopped:
            self._idle = self._loop.call_later(self._idle_s, self._end, "it was idle for too long")

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While something runs, no idle time passes."""
        self._busy += 1
        self.touch()
        try:
            yield
        finally:
            self._busy -= 1
            self.touch()

    def stop(self) -> None:
        self._is_stopped = True
        self._ends.cancel()
        self.touch()
