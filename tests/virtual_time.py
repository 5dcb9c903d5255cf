"""`virtually(coroutine)`: runs it in an event loop whose clock jumps to the next thing that is due.

An hour of waiting takes no time, and what happens is the same in every run: threads are called in the loop itself.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class Standstill(RuntimeError):
    """Nothing is due any more, and the coroutine still waits."""


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found:
            if timeout is None:
                raise Standstill("everything waits for something that nobody will do")
            self.now_s += max(0.0, timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def virtually(coroutine: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
