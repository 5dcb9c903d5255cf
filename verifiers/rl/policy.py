"""`Policy`: the model that is trained, as an orchestrator meets it: servers that sample it, and news of its weights.

An `InferencePool` is a `Policy`. What tells of new weights is a `WeightFeed`: a folder that is watched, or the trainer
in the same process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from verifiers.clients import Endpoint


class Policy(Protocol):
    @property
    def version(self) -> int:
        """Which weights new requests meet. Counts weight updates from 0."""
        ...

    def group(self, problem: str, rollouts: int = 1) -> AbstractContextManager[Endpoint]:
        """Where the rollouts of a problem go, counted as in flight there until the block ends.

        Equal problems may be kept on one server. Raises ModelUnavailableError while there is no server.
        """
        ...

    def sampling(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`given` with all that training depends on."""
        ...

    async def update(self, version: int, source: Any) -> Any:
        """Gives the servers new weights, in flight. Raises UpdateError when none took them."""
        ...


@dataclass(frozen=True)
class NewWeights:
    """Weights after `version` updates, and where a policy gets them."""

    version: int
    source: Any


class WeightFeed(Protocol):
    async def newer_than(self, version: int) -> NewWeights:
        """The newest weights, as soon as there are some of a version above `version`. Safe to cancel."""
        ...


class MemoryFeed:
    """News of weights within one process."""

    def __init__(self) -> None:
        self._newest: NewWeights | None = None
        self._changed = asyncio.Condition()

    async def announce(self, version: int, source: Any = None) -> None:
        async with self._changed:
            self._newest = NewWeights(version, source)
            self._changed.notify_all()

    async def newer_than(self, version: int) -> NewWeights:
        async with self._changed:
            await self._changed.wait_for(lambda: self._newest is not None and self._newest.version > version)
            assert self._newest is not None
            return self._newest
