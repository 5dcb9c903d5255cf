"""`ExecutedRun`: a `Run` whose rollouts an executor makes. Saving, resuming and stopping are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from verifiers.clients.endpoint import Endpoint
from verifiers.errors import ConfigError, Error, SetupError
from verifiers.executor.request import EnvSpec, GroupRequest, RolloutExecutor
from verifiers.run import HOPELESS, Job, Run
from verifiers.types import RolloutInput


class ExecutedRun(Run):
    """As `Run`; `spec` is how the executor's workers make `env`, and `endpoint` how they reach the model.

    A request is one rollout, or all tries of an example where a reward function compares them.
    """

    def __init__(
        self,
        env: Any,
        rows: Sequence[RolloutInput],
        *,
        executor: RolloutExecutor,
        spec: EnvSpec,
        endpoint: Endpoint,
        seed: int = 0,
        rollouts_per_example: int = 1,
        max_concurrent: int = -1,
        rollout_timeout_s: float | None = None,
        **options: Any,
    ) -> None:
        self.executor, self.spec, self.endpoint = executor, spec, endpoint
        self.seed, self.rollout_timeout_s = seed, rollout_timeout_s
        super().__init__(
            env, rows, seed=seed, rollouts_per_example=rollouts_per_example, max_concurrent=max_concurrent,
            rollout_timeout_s=rollout_timeout_s, **options,
        )  # fmt: skip
        self.tries = 1
        if self.by_group:
            self.tries = rollouts_per_example
            self._ask_for_whole_groups(rows)

    def _ask_for_whole_groups(self, rows: Sequence[RolloutInput]) -> None:
        """Raises ConfigError for a group that is half done, or an example that is in several rows."""
        if len({row["example_id"] for row in rows}) < len(rows):
            raise ConfigError("an executor runs the tries of an example together: give each example one row")
        if any(group.missing < self.tries for group in self._groups.values()):
            raise ConfigError(
                "this run has examples of which some tries are done, and an executor scores all tries of an example "
                "together. Go on without --executor"
            )
        self._queue = _firsts(self._queue)
        self._left = len(self._groups)
        if self.max_concurrent > 0:  # it counts rollouts
            self.max_concurrent = max(1, self.max_concurrent // self.tries)

    async def _do(self, job: Job) -> None:
        try:
            records = await self.executor.run_group(self._request(job))
        except (*HOPELESS, SetupError) as error:
            self._give_up(error)
            return
        except Error as error:
            records = [self._record(job, self._broken_off(job, error), 0)]
        for record in records:
            self._keep(record)

    def _request(self, job: Job) -> GroupRequest:
        return GroupRequest(
            spec=self.spec,
            row=cast(dict[str, Any], job.row),
            group_id=str(job.example_id),
            tries=self.tries,
            first_try=job.rollout_index,
            endpoint=self.endpoint,
            model=self.model,
            sampling=self.sampling_args,
            seed=self.seed,
            max_retries=self.max_retries,
            rollout_timeout_s=self.rollout_timeout_s,
            score=self.score,
            state_columns=list(self.state_columns),
            rows_hash=self.origin.data.rows_hash,
            prices=self.origin.prices,
        )


def _firsts(jobs: Iterator[Job]) -> Iterator[Job]:
    """The first try of each example."""
    seen: set[int] = set()
    for job in jobs:
        if job.example_id not in seen:
            seen.add(job.example_id)
            yield job
