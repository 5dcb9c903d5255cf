"""`maybe_retry`: an async function that is tried again when a rollout ended with an error that may pass."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from verifiers.errors import InfraError, InvalidModelResponseError


def maybe_retry(
    func: Callable[..., Coroutine[Any, Any, Any]],
    max_retries: int = 0,
    initial: float = 1.0,
    max_wait: float = 60.0,
    error_types: tuple[type[Exception], ...] = (InfraError, InvalidModelResponseError),
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """`func`, tried up to `max_retries` times more when it raises one of `error_types`, or when a state that it returns
    holds one in `error`. The last try's result or error is the caller's. Waits about `initial` s, then twice as long.
    """
    if max_retries <= 0:
        return func

    @functools.wraps(func)
    async def tried(*args: Any, **kwargs: Any) -> Any:
        for number in range(max_retries):
            try:
                result = await func(*args, **kwargs)
                if not _has_failed(result, error_types):
                    return result
            except error_types:
                pass
            await asyncio.sleep(min(max_wait, initial * 2**number) * random.uniform(0.5, 1.0))
        return await func(*args, **kwargs)

    return tried


def _has_failed(result: Any, error_types: tuple[type[Exception], ...]) -> bool:
    states = result if isinstance(result, list) else [result]
    return any(isinstance(state, Mapping) and isinstance(state.get("error"), error_types) for state in states)
