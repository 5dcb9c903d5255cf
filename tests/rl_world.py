"""A training run without models: rollouts that take virtual time, servers that only have a version, a trainer that
only counts. Everything between them is real."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from virtual_time import virtually

from verifiers.clients import Endpoint
from verifiers.errors import ModelUnavailableError
from verifiers.executor.request import EnvSpec, GroupRequest
from verifiers.records import EnvInfo, Failure, ModelInfo, RolloutRecord, TokenTrace, Turn, VersionSpan
from verifiers.rl.evaluation import Evaluation, EvaluationResult
from verifiers.rl.orchestrator import Orchestrator
from verifiers.rl.pack import pack
from verifiers.rl.policy import MemoryFeed
from verifiers.rl.samples import samples_of_group
from verifiers.rl.schedule_settings import ScheduleSettings
from verifiers.rl.source import Source
from verifiers.rl.state import StateFolder
from verifiers.rl.transports.files import FileReceiver, FileSender

ENDPOINT = Endpoint("http://127.0.0.1:1/v1")


@dataclass
class Fate:
    """What becomes of a group: how long it takes, and the reward of each try (None: it failed)."""

    seconds: float = 10.0
    each_s: Sequence[float] = ()  # of the tries, where they are run one by one
    rewards: Sequence[float | None] = (0.0, 1.0)
    failure: str = "ModelUnavailableError"
    side: Any = "model"
    tokens: int = 4
    raises: BaseException | None = None
    ignores_cancel: bool = False


class ScriptedGroups:
    """An executor: `fate(request)` says what becomes of a group."""

    def __init__(self, fate: Callable[[GroupRequest], Fate], policy: "Servers") -> None:
        self.fate, self.policy = fate, policy
        self.requests: list[GroupRequest] = []
        self.running = 0
        self.most_running = 0
        self.cancelled: list[str] = []

    async def run_group(self, request: GroupRequest) -> list[RolloutRecord]:
        fate, version = self.fate(request), self.policy.version
        self.requests.append(request)
        self.running += request.tries
        self.most_running = max(self.most_running, self.running)
        try:
            one_by_one = fate.each_s and request.tries == 1
            await asyncio.sleep(fate.each_s[request.first_try] if one_by_one else fate.seconds)
        except asyncio.CancelledError:
            self.cancelled.append(request.group_id)
            while fate.ignores_cancel:
                await asyncio.sleep(1e6)
            raise
        finally:
            self.running -= request.tries
        if fate.raises is not None:
            raise fate.raises
        return [record(request, request.first_try + number, fate, version) for number in range(request.tries)]

    async def close(self) -> None: ...


def record(request: GroupRequest, number: int, fate: Fate, version: int) -> RolloutRecord:
    reward = fate.rewards[number % len(fate.rewards)]
    half = fate.tokens // 2
    trace = TokenTrace.of([request.row["example_id"]] * half, [request.seed % 30_000] * half, [-0.5] * half)
    failure = [Failure(side=fate.side, type=fate.failure, message="scripted")] if reward is None else []
    return RolloutRecord(
        env=EnvInfo(name=request.spec.env_id),
        example_id=request.row["example_id"],
        rollout_index=number,
        seed=request.seed,
        group_id=request.group_id,
        model=ModelInfo(name=request.model),
        prompt=[{"role": "user", "content": "?"}],
        messages=[{"role": "assistant", "content": "!"}],
        turns=[Turn(start=0, end=1, tokens=trace, versions=[VersionSpan(0, half, str(version))])],
        reward=reward,
        status="failed" if reward is None else "scored",
        errors=failure,
    )


class Servers:
    """A policy: new weights are there after `update_s`."""

    def __init__(self, version: int = 0, update_s: float = 0.0) -> None:
        self.version, self.update_s = version, update_s
        self.in_flight = 0
        self.is_up = True
        self.problems: list[str] = []

    @contextmanager
    def group(self, problem: str, rollouts: int = 1):
        if not self.is_up:
            raise ModelUnavailableError("no model server is in the pool now")
        self.problems.append(problem)
        self.in_flight += rollouts
        try:
            yield ENDPOINT
        finally:
            self.in_flight -= rollouts

    def sampling(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return dict(given)

    async def update(self, version: int, source: Any) -> None:
        await asyncio.sleep(self.update_s)
        self.version = version


@dataclass
class Trainer:
    """One rank: fetches each step's batch, takes `step_s`, and has new weights."""

    receiver: Any
    feed: MemoryFeed
    step_s: float = 10.0
    step: int = 0
    trained: list[tuple[int, set[str], int]] = field(default_factory=list)  # step, rollouts, tokens
    received_s: list[float] = field(default_factory=list)
    payloads: list[Any] = field(default_factory=list)
    keeps_payloads: bool = False
    log: Path | None = None  # a line for each step that is trained, as a checkpoint is

    async def run(self, steps: int) -> None:
        while self.step < steps:
            batch = await self.receiver.receive(self.step)
            self.received_s.append(asyncio.get_running_loop().time())
            tokens = batch.micro_batches[0].total_tokens
            self.trained.append((self.step, {f"{n}" for m in batch.micro_batches for n in m.rollouts}, tokens))
            if self.keeps_payloads:
                self.payloads.append(batch)
            await asyncio.sleep(self.step_s)
            self.step += 1
            if self.log is not None:
                with self.log.open("a") as file:
                    file.write(f"{self.step - 1}\n")
            await self.receiver.release(self.step - 1)
            await self.feed.announce(self.step, None)


def source(name: str = "sums", rows: int = 20, tries: int = 2, **given: Any) -> Source:
    return Source(
        name=name,
        spec=EnvSpec(env_id=name),
        rows=[{"example_id": n, "prompt": [{"role": "user", "content": f"{n}"}]} for n in range(rows)],
        model="m",
        tries=tries,
        **given,
    )


def settings(**given: Any) -> ScheduleSettings:
    return ScheduleSettings(**{"groups_per_step": 4, "max_in_flight": 16, **given})


def packed(samples: Any, step: int, metrics: Mapping[str, float], *, world_size: int = 1) -> Any:
    return pack(samples, 4096, world_size, step, metrics=metrics)


def by_example(request: GroupRequest) -> Fate:
    """Rewards that move examples between the pools: of some they differ, some are solved the second time."""
    example_id = request.row["example_id"]
    if example_id % 3 == 0:
        return Fate(rewards=(0.0, 1.0))
    if example_id % 3 == 1:
        return Fate(rewards=(0.0, 0.0) if request.seed % 2 else (1.0, 0.0))
    return Fate(rewards=(1.0, 1.0) if request.seed % 5 == 0 else (1.0, 0.0))


class Life:
    """One life of a run in a folder: orchestrator, files, trainer. The next life goes on in the same folder."""

    def __init__(
        self,
        folder: Path,
        fate: Callable[[GroupRequest], Fate] = by_example,
        *,
        sources: Sequence[Source] = (),
        step_s: float = 10.0,
        evaluations: Sequence[Evaluation] = (),
        **given: Any,
    ) -> None:
        self.folder = folder
        self.states = StateFolder(self.folder / "state", keep=100)
        sender = FileSender(self.folder / "batches", 1)
        receiver = FileReceiver(self.folder / "batches", 0)
        log = folder / "trained"
        step = len(log.read_text().split()) if log.exists() else 0
        self.feed, self.policy = MemoryFeed(), Servers(version=step)
        self.trainer = Trainer(receiver, self.feed, step_s, step=step, keeps_payloads=True, log=log)
        self.executor = ScriptedGroups(fate, self.policy)
        self.results: list[EvaluationResult] = []
        self.orchestrator = Orchestrator(
            sources or [source("a", rows=30, weight=2), source("b", rows=12)],
            executor=self.executor,
            policy=self.policy,
            feed=self.feed,
            sender=sender,
            samples_of=samples_of_group,
            pack=packed,
            settings=settings(**{"seed": 5, "max_in_flight": 24, **given}),
            states=self.states,
            evaluations=evaluations,
            on_evaluation=self.results.append,
        )

    async def run(self, steps: int, until_s: float | None = None) -> None:
        trainer = asyncio.create_task(self.trainer.run(steps))
        run = asyncio.create_task(self.orchestrator.run(steps))
        await asyncio.wait([run, trainer], timeout=until_s, return_when=asyncio.FIRST_EXCEPTION)
        for task in (run, trainer):
            task.cancel()
        await asyncio.wait([run, trainer])
        for task in (run, trainer):
            if not task.cancelled() and (error := task.exception()):
                raise error

    def live(self, steps: int, *, until_s: float | None = None) -> "Life":
        """Until `steps` are trained, or until everything is torn down at a moment of virtual time."""
        virtually(self.run(steps, until_s))
        return self
