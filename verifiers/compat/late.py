"""`LateResults`: what `generate` and `evaluate` return. Awaited they are coroutines, as since 0.1.8; before, they gave
the results at once, so reading a column of one that nobody awaited runs it to its end."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from verifiers.calls import run_sync

# Only these: whatever looks at a coroutine from outside (asyncio, debuggers) must not start it.
_COLUMNS = frozenset(
    {
        "answer", "completion", "example_id", "id", "info", "is_truncated", "metadata", "metrics", "outputs", "prompt",
        "records", "reward", "state", "stop_conditions", "task",
    }
)  # fmt: skip


class LateResults(Coroutine[Any, Any, Any]):
    __slots__ = ("_coroutine", "_results")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._results: Any = None

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        if name not in _COLUMNS:
            raise AttributeError(f"'{name}': these results are still to come; await them")
        return getattr(self._now(), name)

    def __getitem__(self, key: str) -> Any:
        return self._now()[key]

    def _now(self) -> Any:
        if self._results is None:
            self._results = run_sync(self._coroutine)
        return self._results


def also_plain(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Makes an async method's results readable without `await`."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> LateResults:
        return LateResults(method(*args, **kwargs))

    mark = getattr(inspect, "markcoroutinefunction", None)  # Python 3.12
    return mark(call) if mark is not None else call
