"""`until`: waits for what a test expects to come true, and ends with the reason when it cannot any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any


async def until(holds: Callable[[], Any], by: asyncio.Future[Any] | None = None, limit_s: float = 60.0) -> Any:
    """What `holds()` gives, once it is true. `by` is to make it so: when that ends before, its error is raised here."""
    deadline = time.monotonic() + limit_s
    while not (found := holds()):
        if by is not None and by.done() and not holds():
            raise AssertionError(f"it ended, and it has not come true: {by.result()!r}")
        assert time.monotonic() < deadline, f"it did not come true within {limit_s:g} s"
        await asyncio.sleep(0.01)
    return found
