"""`Watchdog`: says what a run waits for when nothing happens, and how late its event loop is."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

logger = logging.getLogger("verifiers")

LATE_S = 1.0  # an event loop held up for longer is worth a line in the log
BEAT_S = 0.25


class Watchdog:
    """Runs beside a run until it is cancelled. `seen` is called for each sign of life.

    After `silence_s` without one, `report()` and the places where the tasks of this event loop wait are logged, and
    again after each further silence. `max_lag_s` is how late the loop was at most since it was last asked for, without
    what it waited for a core that other programs had: code that blocks, like scoring in the loop itself, shows there
    before anything else goes wrong.
    """

    def __init__(self, report: Callable[[], str], *, silence_s: float = 600.0) -> None:
        self._report, self._silence_s = report, silence_s
        self._seen_s: float | None = None
        self._max_lag_s = 0.0
        self.alarms = 0

    def seen(self) -> None:
        self._seen_s = asyncio.get_running_loop().time()

    def max_lag_s(self) -> float:
        lag_s, self._max_lag_s = self._max_lag_s, 0.0
        return lag_s

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        self.seen()
        while True:
            due_s, waited_s = loop.time() + BEAT_S, waited_for_a_core_s()
            await asyncio.sleep(BEAT_S)
            lag_s = loop.time() - due_s - (waited_for_a_core_s() - waited_s)
            self._max_lag_s = max(self._max_lag_s, lag_s)
            if lag_s > LATE_S:
                logger.warning("the event loop stood still for %.1f s: does a reward function block it?", lag_s)
            assert self._seen_s is not None
            if loop.time() - self._seen_s > self._silence_s:
                self.alarms += 1
                self.seen()
                logger.warning("nothing has happened for %g s.\n%s\n%s", self._silence_s, self._report(), waiting())


def waited_for_a_core_s() -> float:
    """How long this thread was ready and other programs had the machine's cores; 0.0 where the system does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def waiting(most: int = 20) -> str:
    """Where the tasks of the running event loop wait, the most frequent places first."""
    places = Counter(waits_at(task) for task in asyncio.all_tasks())
    return "\n".join(f"  {n} tasks at {place}" for place, n in places.most_common(most))


def waits_at(task: asyncio.Task[Any]) -> str:
    """The innermost line that a task waits in, as file:line; asyncio's own lines say nothing and are passed over."""
    waiting_on: Any = task.get_coro()
    frame: FrameType | None = None
    while waiting_on is not None:
        inner = getattr(waiting_on, "cr_frame", None) or getattr(waiting_on, "gi_frame", None)
        if inner is not None and (frame is None or not inner.f_globals.get("__name__", "").startswith("asyncio.")):
            frame = inner
        waiting_on = getattr(waiting_on, "cr_await", None) or getattr(waiting_on, "gi_yieldfrom", None)
    return "its end" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
