"""`in_checking_thread`: archives are checked a few at a time, whatever else the worker's threads do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

AT_ONCE = 4  # each may use a core for a while, and some megabytes

P = ParamSpec("P")
R = TypeVar("R")

_limiter: RunVar[CapacityLimiter] = RunVar("hub_checking")  # one for each event loop


async def in_checking_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The function's result. It runs to its end even if whoever waits goes away: nothing stops half-way."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(AT_ONCE)
        _limiter.set(limiter)
    return await to_thread.run_sync(partial(function, *args, **kwargs), limiter=limiter)
