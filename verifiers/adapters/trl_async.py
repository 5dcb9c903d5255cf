"""TRL's `AsyncGRPOTrainer`: an environment as its `rollout_worker`, which rolls out while the trainer trains.

>>> rollouts = EnvRollouts("reverse-letters")
>>> worker = EnvironmentWorker(rollouts, "http://127.0.0.1:8000/v1", "policy")
>>> AsyncGRPOTrainer(model, args=AsyncGRPOConfig(...), train_dataset=rollouts.dataset(), rollout_worker=worker)
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from queue import Queue
from typing import Any

from verifiers.adapters.trl_engine import BackgroundLoop
from verifiers.adapters.trl_sample import RolloutSample, group_metrics, rollout_samples
from verifiers.errors import ConfigError, SetupError
from verifiers.rl.rollouts import EnvRollouts
from verifiers.rl.sample_policy import DEFAULT_POLICY, SamplePolicy
from verifiers.rl.samples import samples_of_group
from verifiers.rl.sampling import training_sampling
from verifiers.rl.types import PolicyRollout, RolloutGroup

POLL_S = 0.05
IN_VAIN = 100  # groups in a row without one to train on, after which it gives up


class EnvironmentWorker:
    """Has the queues and the methods of TRL's `RolloutWorkerProtocol`.

    `endpoint` and `model` are the server that samples, whose weights the trainer keeps up to date, also in the middle
    of a rollout: tokens keep the log-probabilities that they were sampled with, and a sample the version that its group
    began under. `sampling`: say the temperature of the trainer's configuration there. No group is begun while `ahead`
    samples wait for the trainer; `groups_in_flight` come on top. `policy` says what becomes of long and cut rollouts.
    """

    def __init__(
        self,
        rollouts: EnvRollouts,
        endpoint: Any,
        model: str,
        *,
        group_size: int = 8,
        groups_in_flight: int = 8,
        ahead: int = 64,
        sampling: Mapping[str, Any] | None = None,
        policy: SamplePolicy = DEFAULT_POLICY,
    ) -> None:
        if policy.turn_reward_weight:
            raise ConfigError("turn_reward_weight: TRL has one advantage for a whole sample; leave it at 0")
        self.rollouts, self.endpoint, self.model, self.policy = rollouts, endpoint, model, policy
        self.group_size, self.groups_in_flight, self.ahead = group_size, groups_in_flight, ahead
        self.sampling = dict(sampling or {})
        self.rollout_buffer: Queue[RolloutSample] = Queue()
        self.metrics_queue: Queue[dict[str, Any]] = Queue()
        self._version = self._in_vain = 0
        self._loop = BackgroundLoop()
        self._work: asyncio.Task[None] | None = None  # None: not started, or stopped
        self._last_end = time.monotonic()  # of a group

    def start(self) -> None:
        self._loop.submit(self._begin()).result()

    def stop(self) -> None:
        """Cancels what is in flight; returns when it has cleaned up."""
        self._loop.submit(self._end()).result()

    def update_model_version(self, model_version: int) -> None:
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raises what ended the rollouts, or TimeoutError when no group has come to its end for so long."""
        if self._work is not None and self._work.done():
            self._work.result()
        waited_s = time.monotonic() - self._last_end
        if waited_s > stale_after_s:
            raise TimeoutError(
                f"no group of {self.rollouts.name} came to its end for {waited_s:.0f} s. Do its rollouts take longer "
                f"than heartbeat_stale_after_s = {stale_after_s:g}? Else look at the model's server"
            )

    async def _begin(self) -> None:
        self._last_end, self._work = time.monotonic(), asyncio.create_task(self._run())

    async def _end(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
            await asyncio.wait([work])

    async def _run(self) -> None:
        """Rolls out row after row and again from the first. Raises what concerns every rollout."""
        places = asyncio.Semaphore(self.groups_in_flight)
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in itertools.count():
                    await places.acquire()
                    while self.rollout_buffer.qsize() >= self.ahead:
                        await asyncio.sleep(POLL_S)
                    tasks.create_task(self._group(number)).add_done_callback(lambda _: places.release())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _group(self, number: int) -> None:
        row, version = self.rollouts.rows[number % len(self.rollouts.rows)], self._version
        sampling = training_sampling(self.sampling, version)
        records_G = await self.rollouts.run([row] * self.group_size, self.endpoint, model=self.model, sampling=sampling)
        rollouts_G = [
            PolicyRollout(record=r, rollout_id=str(n), dispatched_version=version, finished_version=self._version)
            for n, r in enumerate(records_G)
        ]
        name, example_id = self.rollouts.name, row["example_id"]
        group = RolloutGroup(env=name, example_id=example_id, group_id=str(number), rollouts=rollouts_G)
        made = samples_of_group(group, self.policy)
        self._last_end = time.monotonic()
        self.metrics_queue.put(group_metrics(made, records_G))
        self._in_vain = 0 if made.samples else self._in_vain + 1
        if self._in_vain >= IN_VAIN:
            raise SetupError(
                f"the last {self._in_vain} groups of {name} taught nothing: all tries of each earned the same, or had "
                "no reward. Look at some with vf-eval"
            )
        for sample in rollout_samples(made, records_G, group_id=number, model_version=version):
            self.rollout_buffer.put(sample)
