"""`@vf.stop`, `@vf.cleanup`, `@vf.teardown`: methods that the rollout loop finds by their mark.

    class MyEnv(vf.MultiTurnEnv):
        @vf.stop(priority=10)
        async def solved(self, state):
            return state["guess"] == state["answer"]

Higher priority first, then by name. Both `@vf.stop` and `@vf.stop(priority=…)` work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


def _marker(kind: str) -> Callable[..., Any]:
    def decorate(func: Any = None, *, priority: int = 0) -> Any:
        def mark(method: Any) -> Any:
            setattr(method, kind, True)
            setattr(method, f"{kind}_priority", priority)
            return method

        return mark if func is None else mark(func)

    decorate.__name__ = kind
    return decorate


@overload
def stop(func: F) -> F: ...
@overload
def stop(*, priority: int = 0) -> Callable[[F], F]: ...
def stop(func: Any = None, *, priority: int = 0) -> Any:
    """Marks a method `(self, state) -> bool` as a stop condition; its name becomes `state["stop_condition"]`."""
    return _marker("stop")(func, priority=priority)


@overload
def cleanup(func: F) -> F: ...
@overload
def cleanup(*, priority: int = 0) -> Callable[[F], F]: ...
def cleanup(func: Any = None, *, priority: int = 0) -> Any:
    """Marks a method `(self, state)` to be run once when a rollout has ended, also on error and cancel."""
    return _marker("cleanup")(func, priority=priority)


@overload
def teardown(func: F) -> F: ...
@overload
def teardown(*, priority: int = 0) -> Callable[[F], F]: ...
def teardown(func: Any = None, *, priority: int = 0) -> Any:
    """Marks a method `(self)` to be run once when the environment itself is closed."""
    return _marker("teardown")(func, priority=priority)


def marked(owner: Any, kind: str) -> list[Callable[..., Any]]:
    """The bound methods of `owner` that carry the mark, highest priority first, ties by name.

    The class is searched, not the instance: reading an instance's properties could run author code.
    """
    return [getattr(owner, name) for name in marked_names(type(owner), kind)]


@lru_cache(256)
def marked_names(owner: type, kind: str) -> tuple[str, ...]:
    """The names of these methods. A class is searched once: marks are set where it is defined."""
    found = []
    for name in dir(owner):
        plain = getattr(owner, name, None)
        if callable(plain) and getattr(plain, kind, False) is True:
            found.append((-getattr(plain, f"{kind}_priority", 0), name))
    return tuple(name for _, name in sorted(found))
