"""`WarmSandboxes`: sandboxes that are made before anybody asks, of the shape that is asked for most."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from dataclasses import dataclass

from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import Sandbox, SandboxBackend, SandboxSpec

logger = logging.getLogger("verifiers")

_REMEMBERED = 32  # creations, from which the shape is chosen
_REST_S = 30.0  # after one that could not be made
_AT_ONCE = 4
_SPARE_S = 3600.0  # longer than any client's may live: a warm one is thrown away when it has waited as long


@dataclass(frozen=True, slots=True)
class Shape:
    """What cannot be changed once a sandbox is made."""

    image: str | None
    user: str | None
    memory_mb: int
    processes: int
    file_mb: int
    network: bool

    @classmethod
    def of(cls, spec: SandboxSpec) -> Shape:
        limits = spec.limits
        return cls(spec.image, spec.user, limits.memory_mb, limits.processes, limits.file_mb, limits.network)

    def spec(self, lifetime_s: float) -> SandboxSpec:
        limits = SandboxLimits(
            memory_mb=self.memory_mb, processes=self.processes, file_mb=self.file_mb, network=self.network
        )
        return SandboxSpec(image=self.image, user=self.user, limits=limits, lifetime_s=lifetime_s)


class WarmSandboxes:
    """Belongs to one event loop."""

    def __init__(self, backend: SandboxBackend, size: int, max_lifetime_s: float) -> None:
        self._backend, self._size = backend, size
        self._lifetime_s = max_lifetime_s + _SPARE_S
        self._asked: deque[Shape] = deque([Shape.of(SandboxSpec())], maxlen=_REMEMBERED)
        self._ready: deque[tuple[float, Shape, Sandbox]] = deque()
        self._work: set[asyncio.Task[None]] = set()
        self._making = 0
        self._rests_until = 0.0
        self._is_closed = False

    @property
    def ready(self) -> int:
        return len(self._ready)

    def take(self, spec: SandboxSpec) -> Sandbox | None:
        """One that fits, and another is made in its place."""
        if not self._size:
            return None
        shape = Shape.of(spec)
        self._asked.append(shape)
        found = next((one for one in self._ready if one[1] == shape and not one[2].is_closed), None)
        if found is not None:
            self._ready.remove(found)
        self.fill()
        return None if found is None else found[2]

    def fill(self) -> None:
        """Makes what is missing, and throws away what no longer fits; waits for neither."""
        if self._is_closed or not self._size:
            return
        shape = Counter(self._asked).most_common(1)[0][0]
        now = time.monotonic()
        for one in list(self._ready):
            if one[1] != shape or one[2].is_closed or now > one[0] + _SPARE_S:
                self._ready.remove(one)
                self._start(one[2].close())
        while now >= self._rests_until and self._making < min(_AT_ONCE, self._size - len(self._ready)):
            self._making += 1
            self._start(self._make(shape))

    def _start(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[arg-type]
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._rests_until = time.monotonic() + _REST_S
            logger.warning("a sandbox could not be kept warm: %s", error)

    async def _make(self, shape: Shape) -> None:
        try:
            sandbox = await self._backend.create(shape.spec(self._lifetime_s))
        finally:
            self._making -= 1
        if self._is_closed:
            await sandbox.close()
            return
        self._ready.append((time.monotonic(), shape, sandbox))
        self.fill()

    async def close(self) -> None:
        self._is_closed = True
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await asyncio.gather(*(sandbox.close() for _, _, sandbox in self._ready), return_exceptions=True)
        self._ready.clear()
