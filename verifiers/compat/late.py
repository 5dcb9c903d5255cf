"""Methods that were synchronous once: their results may be awaited or read at once.

`LateResults` is what `generate` and `evaluate` return, which gave the results at once before 0.1.8: reading a column of
one that nobody awaited runs it to its end. `LateAnswer` is that of `is_completed`, an `if` over which was enough up to
0.1.2.
"""

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


class LateAnswer(Coroutine[Any, Any, bool]):
    """Yes or no, by `await`, or by `if` as long as nothing has to be waited for."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, bool]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, bool]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __bool__(self) -> bool:
        try:
            self._coroutine.send(None)
        except StopIteration as answered:
            return bool(answered.value)
        self._coroutine.close()
        raise TypeError("a stop condition of this environment waits for something: await super().is_completed(…)")


def also_plain(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Makes an async method's results readable without `await`."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> LateResults:
        return LateResults(method(*args, **kwargs))

    mark = getattr(inspect, "markcoroutinefunction", None)  # Python 3.12
    return mark(call) if mark is not None else call
