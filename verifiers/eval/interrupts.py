"""Ctrl-C and SIGTERM: the first asks the run to stop, the second leaves at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 130


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """While the body runs, SIGTERM raises KeyboardInterrupt where no run has taken it over."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruptible(stop: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
    """While the body runs, the first SIGINT or SIGTERM calls `stop`, any later SIGINT calls `leave`.

    The handlers are plain Python ones rather than the event loop's: they also run while author code blocks the loop.
    A second SIGTERM is not an emergency (supervisors repeat it), so only a second Ctrl-C leaves.
    """
    seen = 0

    def handle(number: int, frame: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            stop()
        elif number == signal.SIGINT:
            leave()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
