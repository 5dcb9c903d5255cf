"""`Deaths`: what becomes of a group whose worker died, for executors that have workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from verifiers.executor.request import GroupRequest
from verifiers.records import DataInfo, EnvInfo, Failure, ModelInfo, RolloutRecord, content_hash
from verifiers.run import rollout_seed

SHARED_TRIES = 2  # beside other groups, any of which may have been the one that killed the worker


class WorkerDied(Exception):
    """The worker of a group ended before the group had."""


class Deaths:
    """The tries of one group: beside others, then by itself, then no more."""

    def __init__(self, request: GroupRequest) -> None:
        self.request = request

    async def survive(self, run: Callable[[GroupRequest, bool], Awaitable[list[RolloutRecord]]]) -> list[RolloutRecord]:
        """`run(request, alone)` until it returns. Failed records when the group brings down a worker of its own."""
        for _ in range(SHARED_TRIES):
            try:
                return await run(self.request, False)
            except WorkerDied:
                continue
        try:
            return await run(self.request, True)
        except WorkerDied as death:
            return [self._failed(index, death) for index in range(self.request.tries)]

    def _failed(self, number: int, death: WorkerDied) -> RolloutRecord:
        request = self.request
        row, index = request.row, request.first_try + number
        example_id = int(row["example_id"])
        return RolloutRecord(
            env=EnvInfo(name=request.spec.env_id, version=request.spec.version),
            data=DataInfo(rows_hash=request.rows_hash),
            example_id=example_id,
            rollout_index=index,
            seed=rollout_seed(request.seed, content_hash(row), example_id, index),
            model=ModelInfo(name=request.model),
            sampling=request.sampling,
            prompt=row["prompt"] if isinstance(row.get("prompt"), list) else [],
            messages=[],
            reward=None,
            status="failed",
            answer=row.get("answer"),
            task=row.get("task"),
            attempt=SHARED_TRIES,
            stop_condition="has_error",
            errors=[Failure(side="environment", type="WorkerDied", message=str(death))],
        )
