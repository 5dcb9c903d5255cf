#!/usr/bin/env python
"""A training run of a cluster's size in simulated time: the real orchestrator, servers and trainer that only take time.

    python benchmarks/rl_simulate.py                    44 nodes, 4,096 rollouts in flight, a long tail of lengths
    python benchmarks/rl_simulate.py --compare          asynchronous beside synchronous, at three ratios
    python benchmarks/rl_simulate.py --compare --require 2.0    fails when 1:3 is not so many times faster

What is real: curriculum, scheduler, staleness, samples, packing, transport. What is not: a server decodes all of its
requests at once, each at `FASTEST` tokens a second when alone and slower the more there are; lengths are log-normal,
cut at `LONGEST`; an update stops every server for `UPDATE_S`; a trainer's step takes as long as it is told.

Reported are the simulated time of a step, the share of places that stand idle (of rollouts that have ended and wait
for the rest of their group, and while weights are exchanged or the trainer is waited for), how old what is trained on
is, what was thrown away, and the CPU time of orchestrator and simulation together for a simulated hour.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from virtual_time import virtually

from verifiers.clients import Endpoint
from verifiers.executor.request import EnvSpec, GroupRequest
from verifiers.records import EnvInfo, ModelInfo, RolloutRecord, TokenTrace, Turn
from verifiers.rl.orchestrator import Orchestrator
from verifiers.rl.pack import pack
from verifiers.rl.policy import MemoryFeed
from verifiers.rl.samples import samples_of_group
from verifiers.rl.schedule_settings import ScheduleSettings
from verifiers.rl.source import Source
from verifiers.rl.transports.memory import MemoryTransport

NODES, TRIES, GROUPS = 44, 16, 256
FASTEST, HALF = 60.0, 90.0  # tokens a second of a request alone; requests at which each is half as fast
MEDIAN, SPREAD, LONGEST = 6_000.0, 0.9, 48_000  # tokens
UPDATE_S = 4.0
TRIVIAL = 0.25  # of the groups


@dataclass(frozen=True)
class Plan:
    """One run."""

    in_flight: int  # rollouts
    groups: int
    steps: int
    train_s: float
    level: int = 1
    off_policy: int = 8
    nodes: int = NODES
    scored_together: bool = False


@dataclass
class Outcome:
    step_s: list[float]
    idle: float  # of the places
    ages: list[float]
    oldest: float
    thrown_away: float  # of all groups that were started
    shorter: float  # of seconds in flight, what was cancelled for its age over what was kept
    cpu_s: float
    hours: float
    lag_max: float

    @property
    def mean_step_s(self) -> float:
        settled = self.step_s[len(self.step_s) // 3 :]  # the first steps fill the pipeline, with what is short
        return fmean(settled)


class Node:
    """A server: all its requests advance together, so that one clock of tokens per request tells when each ends."""

    def __init__(self) -> None:
        self._done = 0.0  # tokens that a request which was there from the start would have by now
        self._at_s = 0.0
        self._ends: list[tuple[float, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._number = 0
        self.running = 0
        self.busy_s = 0.0  # seconds of all rollouts together, in which they advanced
        self.is_paused = False

    @property
    def rate(self) -> float:
        return 0.0 if self.is_paused else FASTEST / (1 + self.running / HALF)

    async def generate(self, tokens: int) -> None:
        self._advance()
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._ends, (self._done + tokens, self._number, ended))
        self._number += 1
        self.running += 1
        self._wait()
        try:
            await ended
        finally:
            self._advance()
            self.running -= 1
            self._wait()

    def pause(self, is_paused: bool) -> None:
        self._advance()
        self.is_paused = is_paused
        self._wait()

    def _advance(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._done += (now_s - self._at_s) * self.rate
        if not self.is_paused:
            self.busy_s += (now_s - self._at_s) * self.running
        self._at_s = now_s

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._ends and self._ends[0][2].done():  # cancelled
            heapq.heappop(self._ends)
        if self._ends and self.rate:
            due_s = max(0.0, self._ends[0][0] - self._done) / self.rate
            self._timer = asyncio.get_running_loop().call_later(due_s, self._end)

    def _end(self) -> None:
        self._advance()
        while self._ends and self._ends[0][0] <= self._done + 1e-6:
            _, _, ended = heapq.heappop(self._ends)
            if not ended.done():
                ended.set_result(None)
        self._wait()


class Cluster:
    """The policy: the least loaded node takes the next group, an update stops all of them for a while."""

    def __init__(self, nodes: int) -> None:
        self.version = 0
        self.nodes = [Node() for _ in range(nodes)]
        self._groups = dict.fromkeys(range(nodes), 0)

    @contextmanager
    def group(self, problem: str, rollouts: int = 1):
        node = min(self._groups, key=self._groups.__getitem__)
        self._groups[node] += rollouts
        try:
            yield Endpoint(f"http://127.0.0.1:{node + 1}/v1")
        finally:
            self._groups[node] -= rollouts

    def sampling(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return dict(given)

    async def update(self, version: int, source: Any) -> None:
        for node in self.nodes:
            node.pause(True)
        await asyncio.sleep(UPDATE_S)
        for node in self.nodes:
            node.pause(False)
        self.version = version


class Rollouts:
    """An executor whose rollouts are as long as the seed of their group says."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def run_group(self, request: GroupRequest) -> list[RolloutRecord]:
        node = self._cluster.nodes[int(request.endpoint.base_url.split(":")[2].split("/")[0]) - 1]
        numbers = range(request.first_try, request.first_try + request.tries)
        lengths = [length_of(request.seed, number) for number in numbers]
        is_trivial = random.Random(request.seed).random() < TRIVIAL
        async with asyncio.TaskGroup() as tries:
            for length in lengths:
                tries.create_task(node.generate(length))
        return [
            RolloutRecord(
                env=EnvInfo(name="simulated"),
                example_id=request.row["example_id"],
                rollout_index=number,
                model=ModelInfo(name="m"),
                prompt=[],
                messages=[],
                reward=0.5 if is_trivial else float(number % 2),
                status="scored",
                turns=[Turn(start=0, end=1, tokens=TokenTrace.of([1, 2], [3, 4], [-0.5, -0.5]))],
            )
            for number in numbers
        ]

    async def close(self) -> None: ...


def length_of(seed: int, number: int) -> int:
    """Tokens of a try."""
    return min(LONGEST, int(random.Random(f"{seed} {number}").lognormvariate(0.0, SPREAD) * MEDIAN))


def simulate(plan: Plan) -> Outcome:
    return virtually(_simulated(plan))


async def _simulated(plan: Plan) -> Outcome:
    loop = asyncio.get_running_loop()
    cluster, transport, feed = Cluster(plan.nodes), MemoryTransport(), MemoryFeed()
    rows = [{"example_id": n, "prompt": []} for n in range(20_000)]
    seen: list[dict[str, float]] = []
    times_s: list[float] = []

    def on_step(step: int, metrics: dict[str, float]) -> None:
        seen.append(metrics)
        times_s.append(loop.time())

    def packed(samples: Sequence[Any], step: int, metrics: Mapping[str, float]) -> Any:
        return pack(samples, 65_536, 1, step, metrics=metrics)

    source = Source(
        name="simulated",
        spec=EnvSpec(env_id="simulated"),
        rows=rows,
        model="m",
        tries=TRIES,
        scored_together=plan.scored_together,
    )
    orchestrator = Orchestrator(
        [source],
        executor=Rollouts(cluster),
        policy=cluster,
        feed=feed,
        sender=transport,
        samples_of=samples_of_group,
        pack=packed,
        settings=ScheduleSettings(
            groups_per_step=plan.groups,
            max_in_flight=plan.in_flight,
            max_async_level=plan.level,
            max_off_policy_steps=plan.off_policy,
            group_timeout_s=None,
        ),
        silence_s=1e9,
        on_step=on_step,
    )
    trained_s: list[float] = []

    async def train() -> None:
        receiver = transport.receiver(0)
        for step in range(plan.steps):
            await receiver.receive(step)
            await asyncio.sleep(plan.train_s)
            await receiver.release(step)
            await feed.announce(step + 1)
            trained_s.append(loop.time())

    cpu = time.process_time()
    trainer = asyncio.create_task(train())
    await orchestrator.run(plan.steps)
    await trainer
    cpu = time.process_time() - cpu
    last_s = times_s[-1]
    last = seen[-1]
    return Outcome(
        step_s=[later - sooner for sooner, later in zip([0.0, *trained_s], trained_s)],
        idle=1 - sum(node.busy_s for node in cluster.nodes) / (plan.in_flight * last_s),
        ages=[metrics["off_policy/mean"] for metrics in seen],
        oldest=max(metrics["off_policy/max"] for metrics in seen),
        thrown_away=(last["run/stale"] + last["run/expired"]) / last["run/started"],
        shorter=last["length/stale_s"] / max(1e-9, last["length/kept_s"]),
        cpu_s=cpu,
        hours=last_s / 3600,
        lag_max=max(metrics["run/loop_lag_max_s"] for metrics in seen),
    )


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--steps", type=int, default=30)
    asked.add_argument("--compare", action="store_true", help="asynchronous beside synchronous")
    asked.add_argument("--require", type=float, default=0.0, help="at 1:3, at least so many times faster")
    args = asked.parse_args()
    if args.compare:
        compare(args.steps, args.require)
    else:
        scale(args.steps)


def scale(steps: int) -> None:
    for together in (False, True):
        plan = Plan(in_flight=4_096, groups=GROUPS, steps=steps, train_s=400.0, scored_together=together)
        found = simulate(plan)
        print(
            f"{NODES} nodes, {plan.in_flight} rollouts in flight, {GROUPS} groups of {TRIES} a step, "
            f"scored {'together' if together else 'one by one'}: "
            f"{found.mean_step_s:.0f} s a step, {100 * found.idle:.0f} % of the places idle, off-policy by "
            f"{fmean(found.ages):.1f} steps (at most {found.oldest:.0f}), {100 * found.thrown_away:.1f} % thrown away "
            f"for its age, {found.cpu_s / found.hours:.1f} s CPU for a simulated hour"
        )


def compare(steps: int, required: float) -> None:
    """The trainer's step is a share of the time in which one batch is generated alone, as a synchronous run does."""
    nodes, groups = 2, 12
    places = groups * TRIES
    alone = simulate(Plan(places, groups, 8, 0.0, level=0, off_policy=0, nodes=nodes)).mean_step_s
    for parts in (1, 3, 6):
        train_s = alone / parts
        slow = simulate(Plan(places, groups, steps, train_s, level=0, off_policy=0, nodes=nodes))
        print(f"train : generate = 1 : {parts}: synchronous {slow.mean_step_s:.0f} s a step")
        for more in (1, 2):
            fast = simulate(Plan(more * places, groups, steps, train_s, nodes=nodes))
            times = slow.mean_step_s / fast.mean_step_s
            print(
                f"    asynchronous, {more} x as many in flight: {fast.mean_step_s:.0f} s a step, {times:.2f} times "
                f"faster; off-policy by {fmean(fast.ages):.1f} steps (at most {fast.oldest:.0f}), "
                f"{100 * fast.thrown_away:.1f} % thrown away for its age"
            )
            if parts == 3 and times < required:
                raise SystemExit(f"{times:.2f} times faster at 1:3; at least {required:g} are required")


if __name__ == "__main__":
    main()
