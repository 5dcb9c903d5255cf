"""`until` and `steady`: tests of what takes time, on a machine that is slow and at times stands still."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

TRIES = 10  # of a `steady` test


async def until(holds: Callable[[], Any], by: asyncio.Future[Any] | None = None, limit_s: float = 60.0) -> Any:
    """What `holds()` gives, once it is true; it may give an awaitable. The limit tells what takes long from what never
    comes. `by` is to make it so: when that ends before, its error is raised here."""
    deadline = time.monotonic() + limit_s
    while not (found := await _value(holds())):
        if by is not None and by.done() and not await _value(holds()):
            raise AssertionError(f"it ended, and it has not come true: {by.result()!r}")
        assert time.monotonic() < deadline, f"it did not come true within {limit_s:g} s"
        await asyncio.sleep(0.01)
    return found


async def _value(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def is_running(pid: int) -> bool:
    """Whether there is such a process; one that has ended, and whose exit status nobody has asked for, is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        pass
    if Path("/proc/self").exists():
        return False
    try:  # a system without /proc
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Standstill:
    """`with` it: `longest_s` is the longest time for which this process was not let run meanwhile.

    Its thread wants to run every few milliseconds, and says how much later than that it was let.
    """

    _BEAT_S = 0.005

    def __enter__(self) -> Self:
        self.longest_s = 0.0
        self._has_ended = threading.Event()
        self._seen = time.monotonic()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._has_ended.wait(self._BEAT_S):
            self._look()
        self._look()

    def _look(self) -> None:
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - self._seen - self._BEAT_S)
        self._seen = now


def steady(longest_s: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For a test whose promise is one about times so short that a busy machine may well stand still for longer.

    A failure says nothing when the machine stood still for more than `longest_s` while the test ran: it is tried again,
    with the same fixtures. Where a longer time or a wait for an event makes a test true, that is to be preferred.
    """

    def wrap(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        async def wrapped(*args: Any, **kwargs: Any) -> None:
            for number in range(TRIES):
                with _says_something(longest_s, is_last=number == TRIES - 1):
                    return await test(*args, **kwargs)

        @functools.wraps(test)
        def wrapped_plain(*args: Any, **kwargs: Any) -> None:
            for number in range(TRIES):
                with _says_something(longest_s, is_last=number == TRIES - 1):
                    return test(*args, **kwargs)

        return wrapped if inspect.iscoroutinefunction(test) else wrapped_plain

    return wrap


@contextmanager
def _says_something(longest_s: float, *, is_last: bool) -> Iterator[None]:
    """Passes over a failure that says nothing."""
    standstill = Standstill()
    try:
        with standstill:
            yield
    except (Exception, pytest.fail.Exception) as error:  # the second by `pytest.raises`
        if is_last or standstill.longest_s <= longest_s or "pytest-timeout" in str(error):
            raise
