"""`Scheduler`: keeps as many groups of rollouts in flight as there are places, and what they give until it is shipped.

As soon as a group ends another one starts; a group knows nothing of trainer steps, and outlives them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from verifiers.errors import ModelUnavailableError
from verifiers.executor.request import RolloutExecutor
from verifiers.records import RolloutRecord
from verifiers.rl.curriculum import Curriculum, CurriculumState, Draw
from verifiers.rl.flights import Flight, Flights
from verifiers.rl.outage import Outage
from verifiers.rl.policy import Policy
from verifiers.rl.samples import SampleCounts, SampleSet, is_truncated
from verifiers.rl.schedule_settings import ScheduleSettings
from verifiers.rl.source import Source, by_name
from verifiers.rl.staleness import off_policy_steps
from verifiers.rl.tally import End, Tally
from verifiers.rl.types import PolicyRollout, RolloutGroup, TrainSample
from verifiers.rl.verdict import rewards_of, verdict_on

logger = logging.getLogger("verifiers")


class NoProgress(Exception):
    """The run would go on for ever without training anything; the message has the counts."""


class ReadyGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group with something to learn in it, until its batch is shipped."""

    draw: Draw
    version: int  # of the policy that it was begun under
    finished_version: int
    rewards: list[float]  # of the tries that have one
    tries: int
    truncated: int  # tries
    samples: list[TrainSample]
    counts: SampleCounts
    seconds: float  # in flight


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """`Scheduler` as saved, its curriculum included."""

    step: int
    drawn: list[Draw]  # and come to no end, in the order of the draws
    ready: list[ReadyGroup]
    tally: Tally
    fruitless: int
    curriculum: CurriculumState


class Scheduler:
    """Runs groups, tells the curriculum what came of them, and holds those that are worth training on.

    `samples_of` turns a group into training samples: `samples_of_group` with a policy. `on_group` sees every group that
    ran to its end, kept or not. All of it happens in the event loop that `fill` is called in. What fails in a way that
    concerns every group is in `failure`; `changed` is set after every change.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        *,
        curriculum: Curriculum,
        executor: RolloutExecutor,
        policy: Policy,
        samples_of: Callable[[RolloutGroup], SampleSet],
        settings: ScheduleSettings,
        on_group: Callable[[RolloutGroup, End], None] | None = None,
    ) -> None:
        self.sources = by_name(sources)
        self.curriculum, self.executor, self.policy, self.settings = curriculum, executor, policy, settings
        self._samples_of, self._on_group = samples_of, on_group
        self._fewest_tries = min(source.tries for source in self.sources.values())
        self.step = 0  # whose batch is being gathered
        self.tally = Tally()
        self.flights = Flights(limit_s=settings.group_timeout_s, grace_s=settings.cancel_grace_s, on_end=self._ended)
        self.ready: list[ReadyGroup] = []
        self.waiting: deque[Draw] = deque()  # drawn by an earlier part of the run and never trained on: they go first
        self.fruitless = 0  # groups in a row that gave nothing
        self.outage = Outage()
        self.failure: BaseException | None = None
        self.changed = asyncio.Event()
        self._is_open = True

    # ---- starting ----

    def fill(self) -> None:
        """Starts groups while there are places. None start while a whole batch waits: it would only grow older."""
        while self._may_start():
            draw = self.waiting.popleft() if self.waiting else self.curriculum.draw()
            if draw is None:
                return
            source = self.sources[draw.env]
            if not self._has_places(source.tries):
                self.waiting.appendleft(draw)
                return
            self.flights.launch(draw, source.tries, self.policy.version, self._rolled_out(draw, source))
            self.tally.started += 1

    def _may_start(self) -> bool:
        """An example is drawn when there is a place for it, so that the curriculum knows as much as it can by then."""
        return (
            self._is_open
            and self.failure is None
            and len(self.ready) < self.settings.groups_per_step
            and not self.outage.is_resting
            and not self._is_stale(self.policy.version)  # the servers are behind: it would be too old from the start
            and self._has_places(self._fewest_tries)
        )

    def _has_places(self, tries: int) -> bool:
        return not self.flights or self.flights.rollouts + tries <= self.settings.max_in_flight

    async def _rolled_out(self, draw: Draw, source: Source) -> list[RolloutRecord]:
        if source.scored_together:
            return await self._run(draw, source, 0, source.tries)
        try:
            async with asyncio.TaskGroup() as tries:
                tasks = [tries.create_task(self._try(draw, source, number)) for number in range(source.tries)]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # one is enough to end the group, and they are mostly the same
        return [record for task in tasks for record in task.result()]

    async def _try(self, draw: Draw, source: Source, number: int) -> list[RolloutRecord]:
        records = await self._run(draw, source, number, 1)
        self.flights.try_ended(draw)
        self.fill()
        return records

    async def _run(self, draw: Draw, source: Source, first_try: int, tries: int) -> list[RolloutRecord]:
        with self.policy.group(source.problem(draw.example_id), tries) as endpoint:
            request = source.request(
                draw.example_id,
                draw.group_id,
                endpoint=endpoint,
                sampling=self.policy.sampling(source.sampling),
                seed=group_seed(self.settings.seed, draw.group_id),
            )
            return await self.executor.run_group(msgspec.structs.replace(request, first_try=first_try, tries=tries))

    # ---- ending ----

    def _ended(self, flight: Flight) -> None:
        try:
            end = self._end_of(flight)
        except Exception as error:  # in the callback of a task nobody would hear of it
            self._fail(error)
            end = End.STOPPED
        self.tally.end(end, flight.seconds)
        self._learn(flight.draw, end)
        self.fill()
        self.changed.set()

    def _end_of(self, flight: Flight) -> End:
        if flight.cut is not None:  # it may have come to its end just then; late is late
            if flight.run.done() and not flight.run.cancelled():
                flight.run.exception()
            return flight.cut
        try:
            records = flight.run.result()
        except asyncio.CancelledError:
            raise RuntimeError(f"{flight} was cancelled by whoever ran it") from None
        except ModelUnavailableError as error:  # no server at all
            logger.warning("%s: %s", flight, error)
            return End.UNLUCKY
        return self._judge(flight, records)

    def _judge(self, flight: Flight, records: list[RolloutRecord]) -> End:
        draw, tries = flight.draw, flight.tries
        if len(records) != tries:
            raise RuntimeError(f"{draw.group_id}: {len(records)} records came back of {tries} tries")
        rollouts = [
            PolicyRollout(
                record=record,
                rollout_id=f"{draw.group_id}/{number}",
                dispatched_version=flight.version,
                finished_version=self.policy.version,
            )
            for number, record in enumerate(records)
        ]
        group = RolloutGroup(env=draw.env, example_id=draw.example_id, group_id=draw.group_id, rollouts=rollouts)
        made = self._samples_of(group)
        end = End(verdict_on(records, made).value)
        if end is End.KEPT:
            self.ready.append(self._ready(flight, records, made))
        if not made.counts.short_groups:
            self.curriculum.settle(draw, rewards_of(records))
        if self._on_group is not None:
            self._on_group(group, end)
        return end

    def _ready(self, flight: Flight, records: list[RolloutRecord], made: SampleSet) -> ReadyGroup:
        return ReadyGroup(
            draw=flight.draw,
            version=flight.version,
            finished_version=self.policy.version,
            rewards=rewards_of(records),
            tries=len(records),
            truncated=sum(map(is_truncated, records)),
            samples=made.samples,
            counts=made.counts,
            seconds=flight.seconds,
        )

    def _learn(self, draw: Draw, end: End) -> None:
        """What an end means for the example, and for the run."""
        match end:
            case End.KEPT:
                self.fruitless = 0
            case End.STOPPED:
                self.waiting.append(draw)
            case End.UNLUCKY:  # these end a run by the time they take, not by their number
                self._give_back(draw, counts=not self.outage.is_on)
                self._rest()
            case End.BROKEN:
                self.fruitless += 1
                self._give_back(draw, this_round=False)
            case End.STALE | End.STALLED:
                self.fruitless += 1
                self._give_back(draw)
            case End.TRIVIAL:
                self.fruitless += 1
        if end in (End.KEPT, End.TRIVIAL, End.BROKEN):
            self.outage = Outage()

    def _give_back(self, draw: Draw, *, this_round: bool = True, counts: bool = True) -> None:
        self.tally.returned += 1
        if self.curriculum.give_back(draw, this_round=this_round, counts=counts):
            self.tally.set_aside += 1
            logger.warning("example %s of %s came to nothing too often and is set aside", draw.example_id, draw.env)

    def _rest(self) -> None:
        loop, outage = asyncio.get_running_loop(), self.outage
        rest_s = outage.unlucky(loop.time())
        if rest_s:
            loop.call_later(rest_s, self._rested, outage)

    def _rested(self, outage: Outage) -> None:
        outage.is_resting = False
        self.fill()
        self.changed.set()

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.changed.set()

    # ---- ageing ----

    def _is_stale(self, version: int) -> bool:
        return off_policy_steps(self.step, version) > self.settings.max_off_policy_steps

    def sweep(self) -> None:
        """Lets go of what is too old for the batch that is being gathered: it can only become older."""
        for flight in self.flights:
            if self._is_stale(flight.version):
                self.flights.cut(flight, End.STALE)
        old = [group for group in self.ready if self._is_stale(group.version)]
        if old:
            self.ready = [group for group in self.ready if not self._is_stale(group.version)]
        for group in old:
            self.tally.expired += 1
            self.tally.expired_tokens += group.counts.tokens
            self._give_back(group.draw)
        self.fill()

    # ---- handing on ----

    @property
    def has_batch(self) -> bool:
        return len(self.ready) >= self.settings.groups_per_step

    def take(self) -> list[ReadyGroup]:
        """The batch of the current step, of the oldest policies first; the next step begins. None of it is stale.

        Call it when there is one (`has_batch`).
        """
        self.ready.sort(key=lambda group: (group.version, group.draw.number))
        wanted = self.settings.groups_per_step
        batch, self.ready = self.ready[:wanted], self.ready[wanted:]
        assert len(batch) == wanted and not any(self._is_stale(group.version) for group in batch)
        self.tally.shipped += wanted
        self.tally.shipped_tokens += sum(group.counts.tokens for group in batch)
        self.step += 1
        self.sweep()
        return batch

    def check(self) -> None:
        """Raises what has ended the run, or NoProgress when it cannot get anywhere."""
        if self.failure is not None:
            raise self.failure
        if self.fruitless >= self.settings.no_progress_batches * self.settings.groups_per_step:
            raise NoProgress(
                f"{self.fruitless} groups in a row gave nothing to train on ({self.tally}; {self.pools()}). "
                "Are the problems too easy or too hard for this policy, or do their rewards fail?"
            )
        outage_s = self.outage.seconds(asyncio.get_running_loop().time())
        if outage_s > self.settings.max_outage_s:
            raise NoProgress(
                f"for {outage_s:.0f} s every group failed at a model server, a sandbox or a judge ({self.tally})"
            )
        if not self.flights and self._may_start():
            raise NoProgress(f"no example is left to train on ({self.tally}; {self.pools()})")

    def pools(self) -> str:
        """The sizes of the pools in words."""
        sizes = self.curriculum.sizes().items()
        return "; ".join(f"{env}: {', '.join(f'{n} {pool}' for pool, n in pools.items() if n)}" for env, pools in sizes)

    async def close(self) -> None:
        """Cancels what is in flight; returns when its clean-up has ended, or its grace."""
        self._is_open = False
        for flight in self.flights:
            self.flights.cut(flight, End.STOPPED)
        while self.flights:
            self.changed.clear()
            await self.changed.wait()

    # ---- saving ----

    def state(self) -> ScheduleState:
        """All that is not lost when the process is: what is in flight will be rolled out anew."""
        drawn = [*self.waiting, *(flight.draw for flight in self.flights)]
        return ScheduleState(
            step=self.step,
            drawn=sorted(drawn, key=lambda draw: draw.number),
            ready=list(self.ready),
            tally=msgspec.structs.replace(
                self.tally,
                started=self.tally.started - len(self.flights),  # they will be started again
                ended=dict(self.tally.ended),
                seconds=dict(self.tally.seconds),
            ),
            fruitless=self.fruitless,
            curriculum=self.curriculum.state(),
        )

    def restore(self, state: ScheduleState) -> None:
        """Goes on where `state` was saved; call it before `fill`. What was drawn and not trained on goes first.

        Examples that are in no source any more are forgotten.
        """
        self.curriculum.restore(state.curriculum)
        self.step, self.fruitless = state.step, state.fruitless
        ended, seconds = dict(state.tally.ended), dict(state.tally.seconds)
        self.tally = msgspec.structs.replace(state.tally, ended=ended, seconds=seconds)
        self.waiting = deque(draw for draw in state.drawn if self._has(draw))
        self.ready = [group for group in state.ready if self._has(group.draw)]

    def _has(self, draw: Draw) -> bool:
        source = self.sources.get(draw.env)
        return source is not None and source.has(draw.example_id)


def group_seed(run_seed: int, group_id: str) -> int:
    """31 bits. No two groups of a run share a seed, not even of one example: an engine would give equal replies."""
    digest = hashlib.sha256(f"{run_seed}/{group_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF
