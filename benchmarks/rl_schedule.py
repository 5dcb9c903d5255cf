#!/usr/bin/env python
"""What an orchestrator costs: rollouts a CPU second through schedule, merge, pack and encode, and its memory.

    python benchmarks/rl_schedule.py                       20,000 rollouts of 1,000 tokens
    python benchmarks/rl_schedule.py --rollouts 100000     is memory flat?
    python benchmarks/rl_schedule.py --require 200         fails below so many rollouts a CPU second

Real scheduler, curriculum, samples, packer and in-memory transport, in one thread; rollouts of three turns come ready
made after a moment, and the trainer only counts tokens. Groups of 8, batches of 32 groups, a quarter of the groups
trivial. `--save` writes the state of each step to the disk as well.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from verifiers.clients import Endpoint
from verifiers.executor.request import EnvSpec, GroupRequest
from verifiers.records import EnvInfo, ModelInfo, RolloutRecord, TokenTrace, Turn, VersionSpan
from verifiers.rl.orchestrator import Orchestrator
from verifiers.rl.pack import pack
from verifiers.rl.policy import MemoryFeed
from verifiers.rl.pools import PoolSettings
from verifiers.rl.samples import samples_of_group
from verifiers.rl.schedule_settings import ScheduleSettings
from verifiers.rl.source import Source
from verifiers.rl.state import StateFolder
from verifiers.rl.transports.memory import MemoryTransport

TRIES, GROUPS = 8, 32
TURNS = 3


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--rollouts", type=int, default=20_000)
    asked.add_argument("--tokens", type=int, default=1_000, help="of a rollout")
    asked.add_argument("--in-flight", type=int, default=1_024, help="rollouts")
    asked.add_argument("--save", action="store_true", help="write the state of every step")
    asked.add_argument("--require", type=float, default=0.0, help="rollouts a CPU second, at least")
    args = asked.parse_args()
    with tempfile.TemporaryDirectory() as made:
        states = StateFolder(Path(made)) if args.save else None
        rate = asyncio.run(measure(args.rollouts, args.tokens, args.in_flight, states))
    if rate < args.require:
        raise SystemExit(f"{rate:.0f} rollouts a CPU second; at least {args.require:g} are required")


async def measure(rollouts: int, tokens: int, in_flight: int, states: StateFolder | None) -> float:
    steps = -(-rollouts // (TRIES * GROUPS))
    transport, feed, policy = MemoryTransport(), MemoryFeed(), Servers()
    executor = ReadyMade(policy, tokens)
    seen: list[tuple[int, float]] = []

    def on_step(step: int, metrics: dict[str, float]) -> None:
        if step % max(1, steps // 10) == 0 or step == steps - 1:
            seen.append((executor.rollouts, resident_mib()))

    orchestrator = Orchestrator(
        [source("a", 2.0), source("b", 1.0)],
        executor=executor,
        policy=policy,
        feed=feed,
        sender=transport,
        samples_of=samples_of_group,
        pack=packed,
        settings=ScheduleSettings(groups_per_step=GROUPS, max_in_flight=in_flight),
        states=states,
        on_step=on_step,
    )
    cpu, began = time.process_time(), time.monotonic()
    trainer = asyncio.create_task(train(transport.receiver(0), feed, steps))
    await orchestrator.run(steps)
    trained = await trainer
    cpu, wall = time.process_time() - cpu, time.monotonic() - began
    tally = orchestrator.scheduler.tally
    rate = executor.rollouts / cpu
    print(f"{executor.rollouts} rollouts of {tokens} tokens, {tally}, {trained / 1e6:.0f} M tokens trained")
    print(f"{rate:.0f} rollouts a CPU second ({cpu:.1f} s CPU, {wall:.1f} s wall)")
    print("memory:", ", ".join(f"{mib:.0f} MiB at {n}" for n, mib in seen))
    print(f"most memory at any time: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return rate


async def train(receiver: Any, feed: MemoryFeed, steps: int) -> int:
    tokens = 0
    for step in range(steps):
        batch = await receiver.receive(step)
        tokens += batch.micro_batches[0].total_tokens
        await receiver.release(step)
        await feed.announce(step + 1)
    return tokens


def packed(samples: Sequence[Any], step: int, metrics: Mapping[str, float]) -> Any:
    return pack(samples, 8_192, 1, step, metrics=metrics)


def source(name: str, weight: float) -> Source:
    rows = [{"example_id": n, "prompt": [{"role": "user", "content": "?"}]} for n in range(5_000)]
    pools = PoolSettings(retire_from=None)
    return Source(name=name, spec=EnvSpec(env_id=name), rows=rows, model="m", tries=TRIES, weight=weight, pools=pools)


class Servers:
    """A policy that has new weights at once."""

    version = 0
    _endpoint = Endpoint("http://127.0.0.1:1/v1")

    @contextmanager
    def group(self, problem: str, rollouts: int = 1):
        yield self._endpoint

    def sampling(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return dict(given)

    async def update(self, version: int, source: Any) -> None:
        self.version = version


class ReadyMade:
    """An executor that copies one rollout: three turns, each of which continues the one before."""

    def __init__(self, policy: Servers, tokens: int) -> None:
        self._policy, self._random, self.rollouts = policy, random.Random(0), 0
        part = tokens // (2 * TURNS)
        turns = [
            Turn(
                start=2 * n,
                end=2 * n + 1,
                finish_reason="stop",
                tokens=TokenTrace.of(range(part), range(part), [-0.5] * part, prefix_length=2 * part * n),
            )
            for n in range(TURNS)
        ]
        self._record = RolloutRecord(
            env=EnvInfo(name="a"), example_id=0, rollout_index=0, model=ModelInfo(name="m"), prompt=[], messages=[],
            reward=1.0, status="scored", turns=turns,
        )  # fmt: skip
        self._part = part

    async def run_group(self, request: GroupRequest) -> list[RolloutRecord]:
        await asyncio.sleep(self._random.random() * 0.05)
        self.rollouts += request.tries
        is_trivial = self._random.random() < 0.25
        versions = [VersionSpan(0, self._part, str(self._policy.version))]
        turns = [msgspec.structs.replace(turn, versions=versions) for turn in self._record.turns]
        return [
            msgspec.structs.replace(
                self._record,
                example_id=request.row["example_id"],
                rollout_index=number,
                reward=0.5 if is_trivial else float(number % 2),
                turns=turns,
            )
            for number in range(request.tries)
        ]

    async def close(self) -> None: ...


def resident_mib() -> float:
    """Of this process; needs Linux."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
