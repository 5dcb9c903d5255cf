"""`PooledExecutor`: groups of rollouts shared out over workers that may die, be they processes or Ray actors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from verifiers.errors import EnvironmentLoadError
from verifiers.executor.deaths import Deaths, WorkerDied
from verifiers.executor.request import EnvRows, EnvSpec, GroupRequest, RowsRequest, sealed
from verifiers.executor.wire import Done
from verifiers.records import RolloutRecord

CANCEL_GRACE_S = 60.0  # for clean-up; an event loop that is held up longer belongs to a worker that is killed
CLOSE_GRACE_S = 30.0


class Worker(Protocol):
    """Answers requests about one spec. It is started by the first."""

    load: int  # requests in hand

    @property
    def is_dead(self) -> bool: ...

    async def ask(self, request: GroupRequest | RowsRequest) -> Done:
        """Raises WorkerDied when the worker ends before it has answered."""
        ...

    async def close(self) -> None: ...


class PooledExecutor:
    """At most `workers` of what `start` makes, for each spec. `deaths` counts the workers that had to be replaced."""

    def __init__(self, start: Callable[[EnvSpec], Worker], workers: int) -> None:
        self.start, self.workers = start, workers
        self.deaths = 0
        self._pools: dict[str, _Pool] = {}

    async def run_group(self, request: GroupRequest) -> list[RolloutRecord]:
        return await Deaths(sealed(request)).survive(self._pool(request.spec).run)

    async def rows(self, spec: EnvSpec, request: RowsRequest) -> EnvRows:
        try:
            found = (await self._pool(spec).ask(request)).rows
        except WorkerDied as death:
            raise EnvironmentLoadError(f"the rows of {spec.env_id} could not be read: {death}") from None
        assert found is not None, "rows are what was asked for"
        return found

    def _pool(self, spec: EnvSpec) -> _Pool:
        pool = self._pools.get(spec.hash)
        if pool is None:
            pool = self._pools[spec.hash] = _Pool(spec, self)
        return pool

    async def close(self) -> None:
        pools, self._pools = list(self._pools.values()), {}
        await asyncio.gather(*(pool.close() for pool in pools))


class _Pool:
    """The workers of one spec."""

    def __init__(self, spec: EnvSpec, owner: PooledExecutor) -> None:
        self.spec, self.owner = spec, owner
        self._workers: list[Worker] = []
        self._is_closed = False
        self._alone = asyncio.Semaphore(owner.workers)  # bounds the workers for groups that run by themselves

    async def run(self, request: GroupRequest, alone: bool) -> list[RolloutRecord]:
        if not alone:
            return (await self.ask(request)).records
        async with self._alone:
            worker = self.owner.start(self.spec)
            try:
                return (await worker.ask(request)).records
            finally:
                await worker.close()

    async def ask(self, request: GroupRequest | RowsRequest) -> Done:
        """Raises RuntimeError once it is closed: what dies then is not run again."""
        if self._is_closed:
            raise RuntimeError("the executor is closed")
        worker = self._least_loaded()
        try:
            return await worker.ask(request)
        finally:
            if worker.is_dead and worker in self._workers:
                self._workers.remove(worker)
                self.owner.deaths += 1
                await worker.close()

    def _least_loaded(self) -> Worker:
        found = min(self._workers, key=lambda worker: worker.load, default=None)
        if found is None or (found.load and len(self._workers) < self.owner.workers):
            found = self.owner.start(self.spec)
            self._workers.append(found)
        return found

    async def close(self) -> None:
        self._is_closed = True
        workers, self._workers = self._workers, []
        await asyncio.gather(*(worker.close() for worker in workers))
