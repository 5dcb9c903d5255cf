"""`AuthorCall`: one function of an environment's author, and how it is called.

What it takes and whether it is async is found out once. A synchronous function runs in the event loop until one call
takes longer than 20 ms; from then on it runs in a bounded thread pool, and the log names it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

logger = logging.getLogger("verifiers")

SLOW_CALL_S = 0.020
POOL_THREADS = 32

_pool: ThreadPoolExecutor | None = None


def pool() -> ThreadPoolExecutor:
    """The threads for author code that blocks, started on first use."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="vf-author")
    return _pool


class AuthorCall:
    """Calls `func` with those of the offered values that it names (all of them if it takes `**kwargs`).

    >>> import asyncio
    >>> call = AuthorCall(lambda answer, state: (answer, state))
    >>> asyncio.run(call({"answer": "4", "state": {}, "info": None}))
    ('4', {})
    """

    __slots__ = ("func", "is_async", "is_pinned", "is_threaded", "name", "names", "takes_all")

    def __init__(self, func: Callable[..., Any], name: str | None = None) -> None:
        self.func = func
        self.name = name or name_of(func)
        parameters = parameters_of(func)
        self.takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.names = frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        self.is_async = is_async(func)
        self.is_threaded = False
        self.is_pinned = False  # needs the main thread (signals): never moved away again

    def selected(self, offered: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.takes_all:
            return offered
        return {name: offered[name] for name in self.names if name in offered}

    async def __call__(self, offered: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        """Raises what the function raises, and TimeoutError after `timeout_s` (a thread runs on, unwatched)."""
        if timeout_s is None:
            return await self.invoke((), self.selected(offered))
        async with asyncio.timeout(timeout_s):
            return await self.invoke((), self.selected(offered), may_block=False)

    async def invoke(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], may_block: bool = True) -> Any:
        if self.is_async:
            return await self.func(*args, **kwargs)
        if (self.is_threaded or not may_block) and not self.is_pinned:
            result = await self._in_thread(args, kwargs)
        else:
            began = time.perf_counter()
            result = self.func(*args, **kwargs)
            took = time.perf_counter() - began
            if took > SLOW_CALL_S and not self.is_pinned:
                self.is_threaded = True
                logger.info(
                    "%s held up the event loop for %.0f ms; it runs in threads from now on", self.name, 1000 * took
                )
        return await result if inspect.isawaitable(result) else result

    async def _in_thread(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        work = functools.partial(copy_context().run, self.func, *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(pool(), work)
        except ValueError as error:
            if "main thread" not in str(error):
                raise
            self.is_pinned = True
            logger.info("%s uses signals, which need the main thread; it stays in the event loop", self.name)
            return self.func(*args, **kwargs)


def parameters_of(func: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of any callable; a built-in that does not tell takes everything."""
    try:
        return list(inspect.signature(func).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)]


def is_async(func: Callable[..., Any]) -> bool:
    func = inspect.unwrap(func)
    while isinstance(func, functools.partial):
        func = func.func
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))


def name_of(func: Callable[..., Any]) -> str:
    """The name that metrics and tool schemas use."""
    while isinstance(func, functools.partial):
        func = func.func
    return getattr(func, "__name__", None) or type(func).__name__


async def maybe_await(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a sync or async function."""
    result = func(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result
