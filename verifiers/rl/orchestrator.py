"""`Orchestrator`: gathers groups into batches and ships them, while new weights come in and rollouts go on.

    curriculum → scheduler ⇄ executor → batch → pack → state saved → transport → trainer → weights → policy

Trainer step s trains weights of version s, and makes version s + 1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from verifiers.errors import ConfigError
from verifiers.executor.request import RolloutExecutor
from verifiers.rl.curriculum import Curriculum
from verifiers.rl.evaluation import Evaluation, EvaluationResult, Evaluations
from verifiers.rl.inference import UpdateError
from verifiers.rl.policy import NewWeights, Policy, WeightFeed
from verifiers.rl.samples import SampleSet
from verifiers.rl.schedule_settings import ScheduleSettings
from verifiers.rl.scheduler import Scheduler
from verifiers.rl.source import Source, by_name
from verifiers.rl.state import Outbox, RunState, StateFolder, encode_state
from verifiers.rl.step_report import step_metrics
from verifiers.rl.tally import End
from verifiers.rl.transports.transport import BatchSender
from verifiers.rl.types import RankBatch, RolloutGroup, TrainSample, encode
from verifiers.rl.watchdog import Watchdog

logger = logging.getLogger("verifiers")

CALM_S = 5.0  # servers may still be busy with what was just cancelled; their weights are changed after that
LONGEST_RETRY_S = 30.0


class Pack(Protocol):
    """The samples of a step as the batches of each rank, with figures for the trainer's log."""

    def __call__(
        self, samples: Sequence[TrainSample], step: int, metrics: Mapping[str, float]
    ) -> Sequence[RankBatch]: ...


class Orchestrator:
    """Runs from where `states` was left, or from the start.

    `on_step` is told of each shipped batch (step, figures), `on_group` of each group that ran to its end.
    Raises what `run` meets: a failure that concerns every group, NoProgress, a transport that lost something.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        *,
        executor: RolloutExecutor,
        policy: Policy,
        feed: WeightFeed,
        sender: BatchSender,
        samples_of: Callable[[RolloutGroup], SampleSet],
        pack: Pack,
        settings: ScheduleSettings,
        states: StateFolder | None = None,  # None: nothing is saved
        save_every: int = 1,  # steps
        evaluations: Iterable[Evaluation] = (),
        evaluation_places: int = 64,  # rollouts
        silence_s: float = 600.0,  # without a sign of life, after which the log says what is waited for
        on_step: Callable[[int, dict[str, float]], None] | None = None,
        on_group: Callable[[RolloutGroup, End], None] | None = None,
        on_evaluation: Callable[[EvaluationResult], None] | None = None,
    ) -> None:
        named = by_name(sources)
        if save_every < 1:
            raise ConfigError(f"save_every is 1 or more; got {save_every}")
        self.policy, self.settings = policy, settings
        self.scheduler = Scheduler(
            named.values(),
            curriculum=Curriculum({name: source.share for name, source in named.items()}, seed=settings.seed),
            executor=executor,
            policy=policy,
            samples_of=samples_of,
            settings=settings,
            on_group=on_group,
        )
        self.evaluations = Evaluations(
            evaluations,
            executor=executor,
            policy=policy,
            places=evaluation_places,
            seed=settings.seed,
            on_result=on_evaluation,
            on_end=self.scheduler.changed.set,
        )
        self.watchdog = Watchdog(self._report, silence_s=silence_s)
        self._feed, self._sender, self._pack, self._on_step = feed, sender, pack, on_step
        self._states, self._save_every = states, save_every
        self._outbox: Outbox | None = None
        self._trained = 0  # the trainer's newest version
        self._beside: list[asyncio.Task[None]] = []

    async def run(self, steps: int, *, resume: bool = True, from_step: int | None = None) -> None:
        """Ships the batches of steps up to `steps`, and ends when the evaluations of the last weights have.

        With `resume` it goes on from the newest saved state, or from that of `from_step`.
        """
        state = self._states.read(from_step) if self._states is not None and resume else None
        self._begin(state)
        try:
            if self._outbox is not None:
                await self._sender.send(self._outbox.step, self._outbox.payloads)
            while self.scheduler.step < steps:
                await self._until(lambda: self.scheduler.has_batch and self._is_trainer_near)
                await self._ship()
            await self.scheduler.close()
            await self._watched(self._sender.flush())
            if self.evaluations.evaluations:
                await self._until(lambda: self.policy.version >= steps, gathering=False)
                await self._watched(self.evaluations.drain())
            await self._save()
        finally:
            await self._end()

    def _begin(self, state: RunState | None) -> None:
        if state is not None:
            self.scheduler.restore(state.schedule)
            self.evaluations.resume(state.evaluations)
            self._outbox = state.outbox
            logger.info("resumed at step %d: %s", state.step, self.scheduler.tally)
        self._trained = self.policy.version
        if self._trained > self.scheduler.step:
            raise ConfigError(
                f"the servers have the weights of version {self._trained}, and the run is at step "
                f"{self.scheduler.step}: resume from the state of step {self._trained}, or a later one"
            )
        self._beside = [
            asyncio.create_task(self._follow_weights(), name="new weights"),
            asyncio.create_task(self.watchdog.watch(), name="watchdog"),
        ]
        for task in self._beside:
            task.add_done_callback(lambda _: self.scheduler.changed.set())
        self.watchdog.seen()
        self.evaluations.start_due(self.policy.version)
        self.scheduler.sweep()

    async def _end(self) -> None:
        for task in self._beside:
            task.cancel()
        await asyncio.wait(self._beside)
        await self.evaluations.close()
        await self.scheduler.close()

    @property
    def _is_trainer_near(self) -> bool:
        """Whether the batch of this step would be no further ahead of the trainer than it may."""
        return self.scheduler.step - self._trained <= self.settings.max_async_level

    async def _until(self, holds: Callable[[], bool], *, gathering: bool = True) -> None:
        while True:
            if gathering:
                self.scheduler.check()
            self._raise_failure()
            if holds():
                return
            self.scheduler.changed.clear()
            await self.scheduler.changed.wait()
            self.watchdog.seen()

    async def _watched(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Waits, and raises what fails meanwhile elsewhere."""
        task = asyncio.ensure_future(waiting)
        task.add_done_callback(lambda _: self.scheduler.changed.set())
        try:
            await self._until(task.done, gathering=False)
            task.result()
        finally:
            task.cancel()

    def _raise_failure(self) -> None:
        if self.evaluations.failure is not None:
            raise self.evaluations.failure
        for task in self._beside:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    # ---- shipping ----

    async def _ship(self) -> None:
        """The state is saved before the batch is sent: whenever this process is killed, either the batch is in a saved
        state and will be sent again, or its groups are."""
        step = self.scheduler.step
        batch = self.scheduler.take()
        metrics = step_metrics(step, batch, self.scheduler)
        metrics["run/loop_lag_max_s"] = self.watchdog.max_lag_s()
        metrics["run/evaluations_skipped"] = float(self.evaluations.skipped)
        samples = [sample for group in batch for sample in group.samples]
        payloads = await asyncio.to_thread(self._packed, samples, step, metrics)
        self._outbox = Outbox(step=step, payloads=payloads)
        if self.scheduler.step % self._save_every == 0:
            await self._save()
        await self._sender.send(step, payloads)
        self.watchdog.seen()
        if self._on_step is not None:
            self._on_step(step, metrics)

    async def _save(self) -> None:
        if self._states is not None:
            schedule, finished = self.scheduler.state(), dict(self.evaluations.finished)
            state = RunState(schedule=schedule, outbox=self._outbox, evaluations=finished)
            await asyncio.to_thread(_write, self._states, state)

    def _packed(self, samples: Sequence[TrainSample], step: int, metrics: Mapping[str, float]) -> list[bytes]:
        return [encode(batch) for batch in self._pack(samples, step, metrics)]

    # ---- weights ----

    async def _follow_weights(self) -> None:
        new = await self._feed.newer_than(self._trained)
        while True:
            self._trained = new.version
            self.scheduler.sweep()
            self.scheduler.changed.set()
            await self.scheduler.flights.settle(CALM_S)  # aborts that race a pause have hurt engines before
            new = await self._updated(new)
            self.scheduler.sweep()  # groups may start again that had to wait for these weights
            self.evaluations.start_due(self.policy.version)
            self.scheduler.changed.set()
            new = await self._feed.newer_than(self._trained)

    async def _updated(self, new: NewWeights) -> NewWeights:
        """Gives the policy the weights, or newer ones that come meanwhile, until it has taken some."""
        loop, retry_s = asyncio.get_running_loop(), 1.0
        began_s = loop.time()
        while True:
            try:
                await self.policy.update(new.version, new.source)
                return new
            except UpdateError as error:
                if loop.time() - began_s > self.settings.max_outage_s:
                    raise
                logger.warning("%s. Tried again in %g s at the latest", error, retry_s)
            try:
                new = await asyncio.wait_for(self._feed.newer_than(new.version), retry_s)
                self._trained = new.version
                self.scheduler.changed.set()
            except TimeoutError:
                pass
            retry_s = min(2 * retry_s, LONGEST_RETRY_S)

    def _report(self) -> str:
        scheduler = self.scheduler
        near = "near enough" if self._is_trainer_near else "too far behind: its weights are waited for"
        return (
            f"step {scheduler.step}: {len(scheduler.ready)} of {self.settings.groups_per_step} groups are ready; "
            f"the trainer is at version {self._trained}, {near}; {scheduler.tally}\n{scheduler.flights.report()}"
        )


def _write(states: StateFolder, state: RunState) -> None:
    states.write(state.step, encode_state(state))
