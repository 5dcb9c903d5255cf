"""`Run`: many rollouts of one environment: concurrency, groups, retries, saving, stopping and going on."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from verifiers.attempt import Plan, planned
from verifiers.clients import as_client
from verifiers.compat.shapes import rows_of_columns
from verifiers.compat.signatures import roll_out
from verifiers.decorators import marked_names
from verifiers.errors import (
    AuthenticationError,
    ConfigError,
    EnvironmentFault,
    Error,
    InfraError,
    InvalidModelResponseError,
    ModelNotFoundError,
    ModelTimeoutError,
    ModelUnavailableError,
    NoSandboxError,
    SetupError,
    one_line,
)
from verifiers.recording import Origin, author_state, column, record_of, scored, state_of
from verifiers.records import EnvInfo, ModelInfo, RolloutRecord, Score, content_hash
from verifiers.results import Pending, ResultsStore
from verifiers.rubrics import Rubric
from verifiers.rubrics.rubric_group import as_of_today
from verifiers.types import RolloutInput, State, as_messages

logger = logging.getLogger("verifiers")

HOPELESS = (AuthenticationError, ModelNotFoundError, NoSandboxError)  # no other rollout of the run can do better
WORTH_RETRYING = (InfraError, InvalidModelResponseError, ModelTimeoutError, ModelUnavailableError)
START_TOGETHER = 32  # rollouts started before the event loop gets its turn again


Key = tuple[int, int]  # example_id, rollout_index


@dataclass(slots=True)
class Job:
    """One rollout to be done."""

    row: RolloutInput
    example_id: int
    rollout_index: int
    seed: int

    @property
    def key(self) -> Key:
        return self.example_id, self.rollout_index


@dataclass(slots=True)
class Group:
    """The rollouts of one example, while a group reward function waits for all of them."""

    missing: int
    states: list[tuple[Job, State, int]] = field(default_factory=list)  # and how often it was restarted
    rebuilt: list[tuple[RolloutRecord, State, bool]] = field(default_factory=list)  # True: has its record already


class Run:
    """Rolls out `rows`, each `rollouts_per_example` times, with at most `max_concurrent` in flight (-1: all).

    A rollout is recorded, and appended to `store`, as soon as it has its scores: at once, or with its group when a
    reward function compares the tries of an example. `store.finished` is not run again. `on_record` is called for
    every new record. Tries are numbered from `first_try`, on which their seeds depend.
    """

    def __init__(
        self,
        env: Any,
        rows: Sequence[RolloutInput],
        *,
        client: Any,
        model: str,
        sampling_args: Mapping[str, Any] | None = None,
        rollouts_per_example: int = 1,
        max_concurrent: int = -1,
        max_retries: int = 0,
        seed: int = 0,
        store: ResultsStore | None = None,
        origin: Origin | None = None,
        score: bool = True,
        independent_scoring: bool = False,
        rollout_timeout_s: float | None = None,
        state_columns: Sequence[str] = (),
        on_record: Callable[[RolloutRecord], None] | None = None,
        first_try: int = 0,
    ) -> None:
        self.env, self.model, self.store, self.on_record = env, model, store, on_record
        self.client = client if _keeps_shape(client) else as_client(client, message_type=env.message_type)
        self.sampling_args = dict(sampling_args or {})
        self.max_concurrent, self.max_retries = max_concurrent, max_retries
        self.origin = origin or Origin(env=EnvInfo(name=env.env_id or type(env).__name__))
        self.score = score and env.score_rollouts
        self.by_group = self.score and env.rubric.needs_group
        if self.by_group and independent_scoring:
            raise ConfigError(
                "independent_scoring scores each rollout alone, but this rubric scores the tries of an example together"
            )
        self.rollout_timeout_s, self.state_columns = rollout_timeout_s, tuple(state_columns)
        self.records: list[RolloutRecord] = list(store.finished) if store else []
        self.resumed = len(self.records)
        self.in_flight = self.scoring = 0
        self.stopped = False
        self.fatal: BaseException | None = None
        self._rubric_cleans_up = _cleans_up(env.rubric)
        self._workers: set[asyncio.Task[None]] = set()
        keys = _keys(rows, rollouts_per_example, first_try)
        self.total = len(keys)
        self._groups: dict[int, Group] = {}
        if self.by_group:
            self._prepare_groups(keys, rows)
        done = {record.key for record in self.records} | self._pending_keys()
        self._left = sum(key not in done for key in keys)
        jobs = _jobs(rows, rollouts_per_example, seed, first_try)
        self._queue = (job for job in jobs if job.key not in done)

    @property
    def done(self) -> int:
        return len(self.records)

    def stop(self) -> None:
        """Starts nothing new and cancels what runs; the author's clean-up still happens. Safe to call twice."""
        self.stopped = True
        for worker in self._workers:
            worker.cancel()

    def start_no_more(self) -> None:
        """What runs goes on to its end, and then the run is over."""
        self.stopped = True

    async def execute(self) -> list[RolloutRecord]:
        """Runs to the end, to `stop()`, or to a failure that concerns every rollout (then `fatal` holds it).

        Returns all records of the run, earlier parts included, sorted by example and try.
        """
        with _short_collections():
            if await self._can_score():
                await self._run()
        self.records.sort(key=lambda record: record.key)
        return self.records

    async def _can_score(self) -> bool:
        """What the rubric lacks concerns every rollout, and is told before the first one."""
        if self.score and self._left:
            try:
                await self.env.rubric.check_setup()
            except SetupError as error:
                self._give_up(error)
        return self.fatal is None

    async def _run(self) -> None:
        for group in list(self._groups.values()):
            await self._score_if_complete(group)
        wanted = self._left if self.max_concurrent < 1 else min(self.max_concurrent, self._left)
        try:
            for started in range(wanted):
                if self.stopped:
                    break
                worker = asyncio.create_task(self._work())
                self._workers.add(worker)
                if started % START_TOGETHER == START_TOGETHER - 1:
                    await asyncio.sleep(0)  # a burst of thousands would hold up replies that have arrived
            await self._wait()
        finally:
            for worker in self._workers:
                worker.cancel()
            if self._workers:
                await asyncio.wait(self._workers)

    async def _wait(self) -> None:
        pending: set[asyncio.Task[None]] = set(self._workers)
        while pending:
            finished, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            for worker in finished:
                error = None if worker.cancelled() else worker.exception()
                if error is not None:
                    self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        if self.fatal is None:
            self.fatal = error
        self.stop()

    async def _work(self) -> None:
        for job in self._queue:
            if self.stopped:
                return
            self.in_flight += 1
            try:
                await self._do(job)
            finally:
                self.in_flight -= 1

    async def _do(self, job: Job) -> None:
        state, restarts = await self._rolled_out(job)
        error = state["error"]
        if isinstance(error, HOPELESS) and not state["trajectory"]:
            self._give_up(error)
            return
        if self.by_group:
            await self._join_group(job, state, restarts)
            return
        if self.score and error is None:
            await self._scored(state)
        self._keep(self._record(job, state, restarts))

    async def _rolled_out(self, job: Job) -> tuple[State, int]:
        """The rollout, started again after failures that another try may not meet."""
        planned.set(Plan(job.seed, self.rollout_timeout_s))
        restarts = 0
        while True:
            state = await self._attempted(job)
            if restarts == self.max_retries or not isinstance(state["error"], WORTH_RETRYING):
                return state, restarts
            restarts += 1

    async def _attempted(self, job: Job) -> State:
        try:
            return await roll_out(self.env, job.row, self._client_for(job), self.model, self.sampling_args)
        except Error as error:
            failed = error
        except Exception as error:  # a rollout method of the author's own
            logger.debug("the rollout raised", exc_info=error)
            failed = EnvironmentFault(one_line(error))
            failed.__cause__ = error
        return self._broken_off(job, failed)

    def _client_for(self, job: Job) -> Any:
        return self.client

    def _broken_off(self, job: Job, error: Error) -> State:
        """The state of a rollout that left none of its own."""
        prompt: list[Any] = []
        try:
            prompt = as_messages(job.row.get("prompt") or [])
        except TypeError:  # that may have been the matter
            pass
        record = RolloutRecord(
            env=self.origin.env, example_id=job.example_id, rollout_index=job.rollout_index, seed=job.seed,
            model=ModelInfo(name=self.model), prompt=prompt, messages=[], reward=None,
            status="failed", answer=job.row.get("answer"), task=job.row.get("task"),
            stop_condition="has_error",
        )  # fmt: skip
        state = state_of(record, {}, self.client)
        state["error"] = error
        return state

    @property
    def waiting(self) -> dict[str, int]:
        """Rollouts in flight by what they wait for."""
        return {"scoring": self.scoring, "rollout": self.in_flight - self.scoring}

    async def _scored(self, state: State) -> None:
        """A rubric of the author's own may raise; that is a fault of the reward, and only this rollout's."""
        self.scoring += 1
        try:
            await as_of_today(self.env.rubric).score_rollout(state)
        except Exception as error:
            _mark_fault(state, error)
        finally:
            self.scoring -= 1
        if self._rubric_cleans_up:
            await self._rubric_cleanup(state)

    async def _rubric_cleanup(self, state: State) -> None:
        try:
            await self.env.rubric.cleanup(state)
        except Exception as error:
            logger.warning("clean-up of the rubric failed: %s", one_line(error))

    def _record(self, job: Job, state: State, restarts: int, is_pending: bool = False) -> RolloutRecord:
        columns = {name: column(state, name, self.store is not None) for name in self.state_columns}
        return record_of(
            state,
            self.origin,
            rollout_index=job.rollout_index,
            restarts=restarts,
            is_pending=is_pending,
            columns=columns,
        )

    def _keep(self, record: RolloutRecord) -> None:
        if self.store is not None:
            self.store.append(record)
        self.records.append(record)
        if self.on_record is not None:
            self.on_record(record)

    # ---- groups ----

    def _prepare_groups(self, keys: Sequence[Key], rows: Sequence[RolloutInput]) -> None:
        """Groups that still have something to score, with the members that earlier parts of the run left."""
        pending = self.store.pending if self.store else {}
        finished = {record.key: record for record in self.records}
        sizes: Counter[int] = Counter(example_id for example_id, _ in keys)
        row_of = {row["example_id"]: row for row in rows}
        for key in keys:
            group = self._groups.setdefault(key[0], Group(missing=sizes[key[0]]))
            if key in finished or key in pending:
                group.missing -= 1
                entry = finished.get(key)
                saved = pending[key] if entry is None else Pending(entry, {})
                rebuilt = state_of(saved.record, saved.extra, self.client, row_of[key[0]])
                group.rebuilt.append((saved.record, rebuilt, entry is not None))
        for example_id, group in list(self._groups.items()):
            if group.missing == 0 and all(has_record for _, _, has_record in group.rebuilt):
                del self._groups[example_id]

    def _pending_keys(self) -> set[Key]:
        return {record.key for group in self._groups.values() for record, _, _ in group.rebuilt}

    async def _join_group(self, job: Job, state: State, restarts: int) -> None:
        group = self._groups[job.example_id]
        group.missing -= 1
        if state["error"] is None:
            group.states.append((job, state, restarts))
            if self.store is not None:  # the last one too: scoring it may take long, and be interrupted
                self.store.journal(self._record(job, state, restarts, is_pending=True), author_state(state))
        else:
            self._keep(self._record(job, state, restarts))
        await self._score_if_complete(group)

    async def _score_if_complete(self, group: Group) -> None:
        if group.missing:
            return
        members = sorted(
            [(job.rollout_index, state) for job, state, _ in group.states]
            + [(record.rollout_index, state) for record, state, _ in group.rebuilt],
            key=lambda member: member[0],
        )
        states = [state for _, state in members]
        if states:
            await self._scored_together(states)
        for job, state, restarts in group.states:
            self._keep(self._record(job, state, restarts))
        for record, state, has_record in group.rebuilt:
            if not has_record:
                self._keep(scored(record, state))

    async def _scored_together(self, states: list[State]) -> None:
        self.scoring += 1
        try:
            await as_of_today(self.env.rubric).score_group(states)
        except Exception as error:
            for state in states:
                _mark_fault(state, error)
        finally:
            self.scoring -= 1
        for state in states if self._rubric_cleans_up else ():
            await self._rubric_cleanup(state)


@contextmanager
def _short_collections() -> Iterator[None]:
    """Keeps full garbage collections from walking all that was there before the run, and makes them rarer.

    With `datasets` and a model library loaded, or with thousands of rollouts in flight, one of them holds up the event
    loop for about 0.1 s. Nothing of ours needs them: rollouts and records hold no reference cycles.
    """
    global _is_frozen
    # By a run that is under way, or somebody's own arrangement. In this order: the count walks all that is frozen,
    # 45 ms with a trainer loaded, and that has many short runs beside each other.
    if _is_frozen or gc.get_freeze_count():
        yield
        return
    young, middle, full = gc.get_threshold()
    _is_frozen = True
    gc.freeze()
    gc.set_threshold(young, middle, 5 * full)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, full)
        gc.unfreeze()
        _is_frozen = False


_is_frozen = False  # by a run


def _cleans_up(rubric: Any) -> bool:
    members = getattr(rubric, "rubrics", None)
    if members:
        return any(map(_cleans_up, members))
    return type(rubric).cleanup is not Rubric.cleanup or bool(marked_names(type(rubric), "cleanup"))


def _keeps_shape(client: Any) -> bool:
    """Clients that authors use themselves (`state["client"].chat.completions`) are handed on as they are."""
    return hasattr(client, "chat") and hasattr(client, "api_key")


def _mark_fault(state: State, error: Exception) -> None:
    reason = f"the rubric raised {one_line(error)}"
    logger.warning("%s: the rollout is unscored", reason)
    state["scores"] = [Score(name="rubric", weight=1.0, value=None, status="fault", reason=reason, side="reward")]
    state["metrics"], state["reward"] = {}, None


def _keys(rows: Sequence[RolloutInput], tries: int, first: int = 0) -> list[Key]:
    """Every rollout of the run, example by example. Rows that repeat an `example_id` are further tries of it."""
    seen: Counter[int] = Counter()
    keys: list[Key] = []
    for row in rows:
        example_id = row["example_id"]
        start = first + seen[example_id]
        keys += [(example_id, index) for index in range(start, start + tries)]
        seen[example_id] += tries
    return keys


def _jobs(rows: Sequence[RolloutInput], tries: int, seed: int, first: int = 0) -> Iterator[Job]:
    """The same with row and seed, made when it is its turn: hashing every row at once would take a while."""
    seen: Counter[int] = Counter()
    hashes: dict[int, str] = {}
    for row in rows:
        example_id = row["example_id"]
        row_hash = hashes.get(example_id)
        if row_hash is None:
            row_hash = hashes[example_id] = content_hash(row)
        for _ in range(tries):
            index = first + seen[example_id]
            seen[example_id] += 1
            yield Job(row, example_id, index, rollout_seed(seed, row_hash, example_id, index))


def rollout_seed(run_seed: int, row_hash: str, example_id: int, rollout_index: int) -> int:
    """31 bits from the run's seed, the row and the try: stable however many other rows a run has."""
    digest = hashlib.sha256(f"{run_seed}/{row_hash}/{example_id}/{rollout_index}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


def as_rows(inputs: Any, env: Any) -> list[RolloutInput]:
    """Inputs of `generate`: formatted rows, a dataset of them, or a dict of columns. Missing ids are numbered."""
    from verifiers.dataset import Rows, formatted

    form = env.row_format()
    inputs = rows_of_columns(inputs)
    rows = list(inputs) if isinstance(inputs, list) else formatted(Rows(inputs), form)
    made = []
    for number, row in enumerate(rows):
        if "prompt" not in row or not isinstance(row.get("example_id"), int):
            row = form.row(row, number)
        elif isinstance(row["prompt"], str) and env.message_type == "chat":
            row = {**row, "prompt": as_messages(row["prompt"])}
        made.append(row)
    return made
