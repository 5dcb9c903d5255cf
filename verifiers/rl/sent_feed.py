"""`SentFeed`: the orchestrator's end where the trainer sends weights: news of versions, and orders whom to send them.

The trainer holds each version until one server has it or the orchestrator passes it over, then goes on. While it waits
for a batch, its newest weights can be had again: for a server that came back.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from verifiers.errors import SetupError
from verifiers.rl import sending
from verifiers.rl.admin import AdminError, AdminLink, Round
from verifiers.rl.inference import InferencePool
from verifiers.rl.policy import NewWeights
from verifiers.rl.sending import Address
from verifiers.rl.weights import FolderWeights, SendingRound, update_info

POLL_S = 0.25  # a look for the trainer's address
SILENCE_S = 120.0  # without a trainer, after which the log says what is waited for

logger = logging.getLogger("verifiers")


class SentFeed:
    """`async with SentFeed(run_folder) as feed:`. A `WeightFeed`, whose sources are `RemoteWeights`."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.holds: int | None = None  # the version that can be had now
        self._given = -1  # the newest version that was given to a server or passed over
        self._newest: NewWeights | None = None
        self._done_at: int | None = None  # the version of a trainer that has ended
        self._ended = False  # nobody takes weights any more
        self._welcome: sending.Welcome | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._open: dict[int, asyncio.Future[Any]] = {}  # orders that were not answered yet
        self._numbers = itertools.count()
        self._since: dict[str, Any] = {}  # URL -> which workers of that server the trainer has a group with
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> SentFeed:
        self._task = asyncio.create_task(self._keep(), name="connection to the trainer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    # --- news -------------------------------------------------------------------------------------------------------

    async def newer_than(self, version: int) -> NewWeights:
        async with self._changed:
            await self._changed.wait_for(lambda: self._newest is not None and self._newest.version > version)
            assert self._newest is not None
            return self._newest

    def pass_over(self, version: int) -> None:
        """The servers need not be given weights up to this version."""
        self._given = max(self._given, version)
        if self.holds is not None and self.holds <= self._given:
            sending.put(self._writer, sending.GoOn(self.holds))

    async def begin(self, pool: InferencePool) -> None:
        """Waits for the trainer, has it connect with every server, and gives them its weights if theirs are others.

        Raises SetupError, naming the servers that cannot be sent weights and why.
        """
        while self._newest is None:
            try:
                await asyncio.wait_for(self.newer_than(-1), SILENCE_S)
            except TimeoutError:
                logger.warning("the trainer is still waited for; its log, or why it was not started, says more")
        first = self._newest
        if isinstance(first.source, RemoteWeights):
            await self._connect_all(pool)
        if first.version > 0 or len(pool.serving) < len(pool.servers):
            await pool.update(first.version, first.source)
        self.pass_over(first.version)

    async def end(self, version: int) -> None:
        """Lets the trainer go on to its end, and returns when it has come to it: `version`."""
        self._ended = True
        if self.holds is not None:
            self.pass_over(self.holds)
        async with self._changed:
            await self._changed.wait_for(lambda: self._done_at is not None and self._done_at >= version)

    async def _connect_all(self, pool: InferencePool) -> None:
        if self._welcome is None:  # it went away this moment; the next update connects
            return
        way = self._welcome.backend
        wrong = [f"{s.url}: {problem}" for s in pool.servers if (problem := _unfit(s.report, way)) is not None]
        if not wrong:
            connecting = (self.connect(server.link) for server in pool.servers)
            outcomes = await asyncio.gather(*connecting, return_exceptions=True)
            for server, outcome in zip(pool.servers, outcomes, strict=True):
                if isinstance(outcome, AdminError):
                    wrong.append(f"{server.url}: {outcome}")
                elif outcome is not None:
                    raise outcome
        if wrong:
            raise SetupError(f"weights.way = '{way}' cannot reach these servers:\n  " + "\n  ".join(wrong))

    # --- what a round asks for --------------------------------------------------------------------------------------

    async def connect(self, link: AdminLink) -> None:
        """A group of the trainer with the server's workers, unless there is one with these very workers."""
        since = await link.workers_since()
        if link.url in self._since and self._since[link.url] == since:
            return
        self.disconnect(link.url)
        problem = await self._order(lambda number: sending.Connect(number, link.url))
        if problem is not None:
            raise AdminError(problem)
        self._since[link.url] = since

    def disconnect(self, url: str) -> None:
        self._since.pop(url, None)
        sending.put(self._writer, sending.Disconnect(url))

    def update_info(self) -> dict[str, Any]:
        if self._welcome is None:
            raise AdminError("the trainer is away")
        return update_info(self._welcome.backend, self._welcome.manifest)

    async def send(self, version: int, urls: set[str]) -> Mapping[str, Exception]:
        if not urls:
            return {}
        if self.holds != version:
            raise AdminError(
                f"the trainer {self._where()}, and does not have the weights of version {version} any more"
            )
        told = await self._order(lambda number: sending.Send(number, version, sorted(urls)))
        if len(told) < len(urls):
            self.pass_over(version)
        return {url: AdminError(reason) for url, reason in told.items()}

    def _where(self) -> str:
        if self._writer is None:
            return "is away"
        return "computes a step" if self.holds is None else f"is at version {self.holds}"

    async def _order(self, order: Any) -> Any:
        """The answer. Raises AdminError when the trainer is away, or goes away."""
        if self._writer is None:
            raise AdminError("the trainer is away")
        number = next(self._numbers)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            sending.put(self._writer, order(number))
            return await future
        finally:
            self._open.pop(number, None)

    # --- the connection ---------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """One connection after the other, each to the trainer that has left its address last."""
        talking: asyncio.Task[None] | None = None
        known: Address | None = None
        try:
            while True:
                found = Address.read(self.run)
                if found is not None and (found != known or talking is None or talking.done()):
                    if talking is not None:
                        talking.cancel()
                        await asyncio.wait([talking])
                    known = found
                    talking = asyncio.create_task(self._done(found) if found.is_done else self._talk(found))
                await asyncio.sleep(POLL_S)
        finally:
            if talking is not None:
                talking.cancel()
                await asyncio.wait([talking])

    async def _done(self, address: Address) -> None:
        model = FolderWeights(self.run / "model")
        async with self._changed:
            self._done_at = address.version
            if self._newest is None or self._newest.version <= address.version:
                self._newest = NewWeights(address.version, model)
            self._changed.notify_all()

    async def _talk(self, address: Address) -> None:
        try:
            reader, writer = await asyncio.open_connection(address.host, address.port, limit=sending.LINE_BYTES)
        except OSError as error:
            logger.debug("no trainer at %s:%d: %s", address.host, address.port, error)
            return
        try:
            sending.keep_alive(writer)
            sending.put(writer, sending.Hello(sending.PROTOCOL, address.secret))
            while True:
                await self._heard(sending.answers.decode(await sending.take(reader)), writer)
        except (OSError, ValueError) as error:
            logger.warning("the connection to the trainer ended: %s", error)
        finally:
            self._lost()
            writer.close()

    async def _heard(self, answer: sending.Answer, writer: asyncio.StreamWriter) -> None:
        match answer:
            case sending.Welcome():
                self._welcome, self._writer = answer, writer
                self._since.clear()
            case sending.Refused(reason):
                raise ConnectionError(reason)
            case sending.Holding(version):
                await self._holding(version)
            case sending.Busy():
                self.holds = None
            case sending.Connected(number, problem):
                self._answered(number, problem)
            case sending.Sent(number, failures):
                self._answered(number, failures)

    async def _holding(self, version: int) -> None:
        self.holds = version
        if version <= self._given or self._ended:
            self.pass_over(version)
        async with self._changed:
            if self._newest is None or version > self._newest.version:
                self._newest = NewWeights(version, RemoteWeights(self, version))
            self._changed.notify_all()

    def _answered(self, number: int, value: Any) -> None:
        future = self._open.get(number)
        if future is not None and not future.done():
            future.set_result(value)

    def _lost(self) -> None:
        self._writer = self.holds = self._welcome = None
        self._since.clear()
        for future in self._open.values():
            if not future.done():
                future.set_exception(AdminError("the trainer went away"))


class RemoteWeights:
    """The weights of one version, as long as the trainer has them."""

    repeatable = False

    def __init__(self, feed: SentFeed, version: int) -> None:
        self._feed, self.version = feed, version

    @property
    def is_lasting(self) -> bool:
        return self._feed.holds == self.version

    def round(self, urls: Sequence[str]) -> SendingRound:
        return SendingRound(self._feed, lambda ready: self._feed.send(self.version, ready), urls)

    def leave(self, round_: Round, url: str) -> None:
        assert isinstance(round_, SendingRound)
        round_.leave(url)

    def __repr__(self) -> str:
        return f"RemoteWeights({self.version})"


def _unfit(report: Any, backend: str) -> str | None:
    """What keeps a server from being sent weights, as far as it has told."""
    ours = '{"backend":"verifiers"}'
    if report is None or report.dialect is None:
        return None
    if report.dialect != "vllm":
        return f"it speaks '{report.dialect}', which reads weights from a folder: weights.way = 'folder'"
    if backend == "gloo" and report.engine != "VerifiersEngine":
        found = report.engine or "unknown"
        return (
            f"its weight transfer is {found}: start it with --weight-transfer-config '{ours}' "
            "--worker-extension-cls weights_vllm.WeightExtension (verifiers.rl.launch writes both)"
        )
    if backend == "nccl" and report.engine == "VerifiersEngine":
        return (
            'its weight transfer is for folders and gloo: start it with --weight-transfer-config \'{"backend":"nccl"}\''
        )
    return None
