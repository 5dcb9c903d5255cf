"""`Deadlines`: time limits for thousands of requests at once, kept by one timer.

A timer for each request, set and cancelled again, would cost more than the rest of our work on it. So the limits are
looked through once in a while, and a request may run over its own by a twentieth.
"""

from __future__ import annotations

import asyncio
import time

LONGEST_PAUSE_S = 1.0


class Deadlines:
    """Cancels the tasks of one event loop whose time is up.

    >>> task = deadlines.start(timeout_s)
    >>> try: ...
    >>> except asyncio.CancelledError:
    ...     if deadlines.is_up(task): raise TimeoutError from None
    ...     raise
    >>> finally: deadlines.end(task)
    """

    def __init__(self) -> None:
        self._due: dict[asyncio.Task[object], float] = {}
        self._up: set[asyncio.Task[object]] = set()
        self._pause_s = LONGEST_PAUSE_S
        self._timer: asyncio.TimerHandle | None = None

    def start(self, timeout_s: float) -> asyncio.Task[object]:
        """Limit what the running task does from now on, until `end`."""
        task = asyncio.current_task()
        assert task is not None
        self._due[task] = time.monotonic() + timeout_s
        pause_s = timeout_s / 20
        if self._timer is None or pause_s < self._pause_s:
            if self._timer is not None:
                self._timer.cancel()
            self._pause_s = min(pause_s, LONGEST_PAUSE_S)
            self._timer = task.get_loop().call_later(self._pause_s, self._look)
        return task

    def is_up(self, task: asyncio.Task[object]) -> bool:
        """Whether the cancellation that just reached `task` was for its time alone, and not also from elsewhere."""
        if task not in self._up:
            return False
        self._up.discard(task)
        return task.uncancel() == 0

    def end(self, task: asyncio.Task[object]) -> None:
        self._due.pop(task, None)
        if task in self._up:  # it finished in the very pass in which its time ran out
            self._up.discard(task)
            task.uncancel()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = time.monotonic()
        for task in [task for task, due in self._due.items() if due <= now]:
            del self._due[task]
            self._up.add(task)
            task.cancel()
        self._timer = None
        if self._due:
            self._timer = next(iter(self._due)).get_loop().call_later(self._pause_s, self._look)
        else:
            self._pause_s = LONGEST_PAUSE_S
