"""`AuthorCall`: one function of an environment's author, and how it is called.

What it takes and whether it is async is found out once. A synchronous function runs in the event loop until one call
takes longer than 20 ms; from then on it runs in threads, a bounded number at a time, and the log names it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any
from weakref import WeakKeyDictionary

logger = logging.getLogger("verifiers")

SLOW_CALL_S = 0.020
NOTICEABLE_S = 0.002
MAX_THREADS = 32  # of author code that blocks, at the same time


class AuthorCall:
    """Calls `func` with those of the offered values that it names (all of them if it takes `**kwargs`).

    >>> import asyncio
    >>> call = AuthorCall(lambda answer, state: (answer, state))
    >>> asyncio.run(call({"answer": "4", "state": {}, "info": None}))
    ('4', {})
    """

    __slots__ = ("func", "is_async", "is_noticeable", "is_pinned", "is_threaded", "name", "names", "takes_all")

    def __init__(self, func: Callable[..., Any], name: str | None = None) -> None:
        self.func = func
        self.name = name or name_of(func)
        parameters = parameters_of(func)
        self.takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.names = frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        self.is_async = is_async(func)
        self.is_noticeable = False  # the last call took a while: one such call in a pass of the event loop
        self.is_threaded = False
        self.is_pinned = False  # needs the main thread (signals): never moved away again

    def selected(self, offered: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.takes_all:
            return offered
        return {name: offered[name] for name in self.names if name in offered}

    async def __call__(self, offered: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        """Raises what the function raises, and TimeoutError after `timeout_s` (a thread runs on, unwatched)."""
        return await self.invoke((), self.selected(offered), timeout_s)

    async def invoke(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], timeout_s: float | None = None) -> Any:
        if self.is_async:
            if timeout_s is None:
                return await self.func(*args, **kwargs)
            async with time_limit(timeout_s, self.name):
                return await self.func(*args, **kwargs)
        if (self.is_threaded or timeout_s is not None) and not self.is_pinned:
            result = await self._in_thread(args, kwargs, timeout_s)
        elif self.is_noticeable:
            async with _turn():
                result = self._inline(args, kwargs)
                await asyncio.sleep(0)  # the turn lasts until the loop has seen to the others
        else:
            result = self._inline(args, kwargs)
        return await result if inspect.isawaitable(result) else result

    def _inline(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        began = time.perf_counter()
        result = self.func(*args, **kwargs)
        took = time.perf_counter() - began
        self.is_noticeable = took > NOTICEABLE_S
        if took > SLOW_CALL_S and not self.is_pinned:
            self.is_threaded = True
            logger.info("%s held up the event loop for %.0f ms; it runs in threads from now on", self.name, 1000 * took)
        return result

    async def _in_thread(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], timeout_s: float | None) -> Any:
        work = functools.partial(copy_context().run, self.func, *args, **kwargs)
        # waiting for a place is not timed, and a thread that hangs gives its place back
        async with _places(), time_limit(timeout_s, self.name):
            value, error, wants_signals = await _threaded(work)
        if wants_signals:  # whatever it made of their failure is not its real result
            self.is_pinned = True
            logger.info("%s uses signals, which need the main thread; it stays in the event loop", self.name)
            return self.func(*args, **kwargs)
        if error is not None:
            raise error
        return value


@asynccontextmanager
async def time_limit(limit_s: float | None, what: str) -> AsyncIterator[None]:
    """Raises TimeoutError, naming `what` took too long; one that the code inside raises of its own passes through."""
    timer = asyncio.timeout(limit_s)
    token = _limits.set((*_limits.get(), _Limit(timer)))
    try:
        async with timer:
            yield
    except TimeoutError:
        if timer.expired():
            raise TimeoutError(f"{what} took longer than {limit_s:.3g} s") from None
        raise
    finally:
        _limits.reset(token)


class _Limit:
    """A running time limit that can be halted, by several tasks at once."""

    __slots__ = ("halts", "left_s", "timer")

    def __init__(self, timer: asyncio.Timeout) -> None:
        self.timer, self.halts = timer, 0
        self.left_s: float | None = None  # None: there is no limit

    def halt(self) -> None:
        if not self.halts:
            due = self.timer.when()
            self.left_s = None if due is None else due - asyncio.get_running_loop().time()
            self._set(None)
        self.halts += 1

    def go_on(self) -> None:
        self.halts -= 1
        if not self.halts and self.left_s is not None:
            self._set(asyncio.get_running_loop().time() + self.left_s)

    def _set(self, due: float | None) -> None:
        with suppress(RuntimeError):  # its time is up, or what it limited has ended
            self.timer.reschedule(due)


_limits: ContextVar[tuple[_Limit, ...]] = ContextVar("time_limits", default=())  # those the running code is under


@contextmanager
def uncounted() -> Iterator[None]:
    """What is waited for inside, such as a place in a queue, counts against no `time_limit` around it."""
    limits = _limits.get()
    for limit in limits:
        limit.halt()
    try:
        yield
    finally:
        for limit in limits:
            limit.go_on()


_turns_of: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_places_of: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
_here = threading.local()


def _places() -> asyncio.Semaphore:
    """Bounds the threads of the running event loop."""
    loop = asyncio.get_running_loop()
    places = _places_of.get(loop)
    if places is None:
        places = _places_of[loop] = asyncio.Semaphore(MAX_THREADS)
    return places


def _turn() -> asyncio.Lock:
    """Lets one noticeable call into each pass of the event loop.

    A hundred rollouts that are scored at the same time, 10 ms each, would hold it up for a second; so it is 10 ms.
    """
    loop = asyncio.get_running_loop()
    turn = _turns_of.get(loop)
    if turn is None:
        turn = _turns_of[loop] = asyncio.Lock()
    return turn


async def _threaded(work: Callable[[], Any]) -> tuple[Any, BaseException | None, bool]:
    """(result, exception, whether signals were asked for) of `work`, done in a thread of its own.

    A daemon thread: author code that hangs must not keep the process from ending.
    """
    _watch_signals()
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None, bool]] = loop.create_future()

    def run() -> None:
        _here.wants_signals = False
        value, error = None, None
        try:
            value = work()
        except BaseException as raised:
            error = raised
        outcome = (value, error, _here.wants_signals)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(lambda: done.cancelled() or done.set_result(outcome))

    threading.Thread(target=run, name="vf-author", daemon=True).start()
    return await done


def _watch_signals() -> None:
    """Notes which of our threads ask for a signal handler.

    Python refuses them outside the main thread. A reward with a time limit of its own by `signal.alarm` often catches
    that refusal with everything else and returns 0.0: seen from outside, a wrong answer.
    """
    plain = signal.signal
    if getattr(plain, "is_watched", False):
        return

    @functools.wraps(plain)
    def watched(*args: Any) -> Any:
        _here.wants_signals = True
        return plain(*args)

    watched.is_watched = True  # type: ignore[attr-defined]
    signal.signal = watched


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
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(type(func), "__call__", None))  # noqa: B004


def name_of(func: Callable[..., Any]) -> str:
    """The name that metrics and tool schemas use."""
    while isinstance(func, functools.partial):
        func = func.func
    return getattr(func, "__name__", None) or type(func).__name__


async def maybe_await(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a sync or async function."""
    result = func(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def run_sync(coroutine: Any) -> Any:
    """Runs a coroutine to its end from ordinary code, also inside a notebook's running loop (in a thread)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
