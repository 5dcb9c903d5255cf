"""`Evaluations`: held-out rows, rolled out now and then beside the training, in places of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from verifiers.errors import ConfigError, ModelUnavailableError
from verifiers.executor.request import RolloutExecutor
from verifiers.records import RolloutRecord
from verifiers.rl.policy import Policy
from verifiers.rl.source import Source, by_name
from verifiers.statistics import mean_scored

logger = logging.getLogger("verifiers")

RETRY_S = 5.0


@dataclass(frozen=True)
class Evaluation:
    """`source`'s rows are rolled out at every `every`-th policy version, `source.tries` times each."""

    source: Source
    every: int
    at_start: bool = True  # of the version that the run begins with, too

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"every of evaluation {self.source.name!r} is 1 or more; got {self.every}")


class EvaluationResult(msgspec.Struct, frozen=True, kw_only=True):
    """Weights are exchanged in flight, so an evaluation may end under newer ones than it began with."""

    name: str
    version: int  # that it began under
    last_version: int
    records: list[RolloutRecord]
    seconds: float

    @property
    def reward(self) -> float | None:
        """Mean of the tries that have one; None when none has."""
        return mean_scored(record.reward for record in self.records)


class Evaluations:
    """Starts what is due, and keeps at most `places` rollouts of it in flight; training is never waited for, nor waits.

    An evaluation that is still running when it is due again is not started a second time; `skipped` counts those.
    """

    def __init__(
        self,
        evaluations: Iterable[Evaluation],
        *,
        executor: RolloutExecutor,
        policy: Policy,
        places: int,
        seed: int = 0,
        on_result: Callable[[EvaluationResult], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.evaluations = list(evaluations)
        by_name(evaluation.source for evaluation in self.evaluations)
        for evaluation in self.evaluations:
            if evaluation.source.tries > places:
                raise ConfigError(
                    f"evaluation {evaluation.source.name!r} rolls out {evaluation.source.tries} tries together, "
                    f"and there are {places} places for evaluations"
                )
        self._executor, self._policy, self._seed = executor, policy, seed
        self._on_result, self._on_end = on_result, on_end
        self._places = asyncio.Semaphore(places)
        self._turn = asyncio.Lock()  # of one group at a time to take its places: two with half of theirs would wait
        self.started: dict[str, int] = {}  # the version of each one's last start
        self.finished: dict[str, int] = {}  # the version of each one's last result
        self.skipped = 0
        self.failure: BaseException | None = None
        self._running: dict[str, asyncio.Task[None]] = {}

    def start_due(self, version: int) -> None:
        """Starts what is due at `version`, which has just been loaded, or is what the run begins with."""
        for evaluation in self.evaluations:
            name, last = evaluation.source.name, self.started.get(evaluation.source.name)
            if not _is_due(evaluation, version, last):
                continue
            if name in self._running:
                self.skipped += 1
                logger.warning("evaluation %s of version %d still runs: version %d is skipped", name, last, version)
                continue
            self.started[name] = version
            task = asyncio.get_running_loop().create_task(
                self._evaluate(evaluation, version), name=f"evaluation {name}"
            )
            self._running[name] = task
            task.add_done_callback(lambda done, name=name: self._ended(name, done))

    async def drain(self) -> None:
        """Returns when all that was started has ended."""
        while self._running:
            await asyncio.wait(list(self._running.values()))
            await asyncio.sleep(0)  # their callbacks run after this wait has been woken

    async def close(self) -> None:
        for task in self._running.values():
            task.cancel()
        await self.drain()

    def resume(self, finished: dict[str, int]) -> None:
        """Goes on after an earlier part of the run, whose `finished` this was. What was cut off is due again."""
        self.started, self.finished = dict(finished), dict(finished)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._running[name]
        if not task.cancelled() and task.exception() is not None:
            self.failure = self.failure or task.exception()
        if self._on_end is not None:
            self._on_end()

    async def _evaluate(self, evaluation: Evaluation, version: int) -> None:
        source, loop = evaluation.source, asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.TaskGroup() as groups:
                tasks = [groups.create_task(self._group(source, row["example_id"])) for row in source.rows]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # one is enough to end the run, and they are mostly the same
        records = [record for task in tasks for record in task.result()]
        self.finished[source.name] = version
        if self._on_result is not None:
            self._on_result(
                EvaluationResult(
                    name=source.name,
                    version=version,
                    last_version=self._policy.version,
                    records=records,
                    seconds=loop.time() - began_s,
                )
            )

    async def _group(self, source: Source, example_id: int) -> list[RolloutRecord]:
        async with self._turn:
            for _ in range(source.tries):
                await self._places.acquire()
        try:
            return await self._rolled_out(source, example_id)
        finally:
            for _ in range(source.tries):
                self._places.release()

    async def _rolled_out(self, source: Source, example_id: int) -> list[RolloutRecord]:
        while True:
            try:
                with self._policy.group(source.problem(example_id), source.tries) as endpoint:
                    request = source.request(
                        example_id,
                        f"{source.name}-{example_id}",
                        endpoint=endpoint,
                        sampling=_salted(source.sampling, self._policy.version),
                        seed=self._seed,  # the run's own: the tries of an example have the same one at every version
                    )
                    return await self._executor.run_group(request)
            except ModelUnavailableError as error:  # no server at all; if that lasts, training ends the run
                logger.info("evaluation %s waits: %s", source.name, error)
                await asyncio.sleep(RETRY_S)


def _is_due(evaluation: Evaluation, version: int, last: int | None) -> bool:
    """Versions may be skipped where the trainer is fast, so a multiple that was passed counts as met."""
    if last is None:
        return evaluation.at_start or version >= evaluation.every
    return version // evaluation.every > last // evaluation.every


def _salted(sampling: Mapping[str, Any], version: int) -> dict[str, Any]:
    """As it was given, top_p or temperature 0 included; only what older weights have cached is shut out."""
    extra: dict[str, Any] = {**(sampling.get("extra_body") or {}), "cache_salt": str(version)}
    return {**sampling, "extra_body": extra}
