"""`InferencePool`: the model servers of a training run: which one a problem goes to, and how all get new weights.

One client for each server, as in the report's orchestrator. A server that dies or keeps old weights gets no new
problems; it is let back when it answers again and its weights are the current ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, get_args

from verifiers.clients.endpoint import DialectName as GenerationDialect
from verifiers.clients.endpoint import Endpoint
from verifiers.errors import ConfigError, ModelUnavailableError, SetupError
from verifiers.rl.admin import UPDATE_TIMEOUT_S, AdminError, AdminLink, Round
from verifiers.rl.dialects import DIALECTS, Dialect, DialectName
from verifiers.rl.metrics import ServerLoad, read_load
from verifiers.rl.probe import ServerReport, probe
from verifiers.rl.sampling import training_sampling
from verifiers.rl.weight_check import WeightCheck, WeightMismatch
from verifiers.rl.weights import WeightSource

Routing = Literal["round_robin", "least_loaded", "sticky"]

WATCH_S = 5.0
MISSES = 3  # look-ups in a row without an answer, after which a server is taken out
LOOK_TIMEOUT_S = 10.0  # a server that computes a long step answers late, and is no dead one
_UNTOUCHED = "default"  # vLLM's label of weights that nobody has changed

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Server:
    """One of the pool, and what is known about it."""

    endpoint: Endpoint
    link: AdminLink
    report: ServerReport | None = None
    dialect: Dialect | None = None
    version: int | None = None  # of its weights; None: not known, or a mixture
    out: str | None = "it has not been asked yet"  # why it gets no problems; None: it does
    is_met: bool = False  # it answered when it was last asked, and lacks nothing
    rollouts: int = 0  # in flight, as far as they were announced by `group`
    recent: int = 0  # handed out by `endpoint_for` since the load was last known
    load: ServerLoad | None = None  # by its own word, as of the last look
    misses: int = 0

    @property
    def url(self) -> str:
        return self.endpoint.base_url

    @property
    def pressure(self) -> float:
        """What it has to do: our rollouts, or its requests, in which those of others are counted too."""
        return max(float(self.rollouts), self.load.requests if self.load is not None else 0.0) + self.recent


@dataclass(frozen=True)
class UpdateReport:
    """What became of one update. Times in seconds."""

    version: int
    updated: tuple[str, ...]
    failed: Mapping[str, str]  # URL -> why
    seconds: float
    paused_s: Mapping[str, float] = field(default_factory=dict[str, float])  # how long each server stood still


class UpdateError(RuntimeError):
    """No server took the new weights. Those whose old ones are whole go on with them."""

    def __init__(self, report: UpdateReport) -> None:
        told = "; ".join(f"{url}: {reason}" for url, reason in report.failed.items())
        super().__init__(f"no server took the weights of version {report.version}: {told or 'there is none'}")
        self.report = report


class InferencePool:
    """`async with InferencePool(servers, model="m") as pool:` probes all servers and watches them until the block ends.

    Raises SetupError at its start for servers that do not answer, or lack what training needs, with the option to
    start them with. `version` is that of the weights which the servers should have by then: 0 is what they were
    started with. Servers at another version wait for the next `update`.

    >>> endpoint = pool.endpoint_for("gsm8k/17")       # a description: it can travel to a process or to Ray
    >>> await pool.update(1, FolderWeights(folder))    # while rollouts go on
    """

    def __init__(
        self,
        servers: Sequence[Endpoint | str],
        *,
        model: str,
        routing: Routing = "least_loaded",
        version: int = 0,
        speaks: GenerationDialect = "tokens",
        admin: DialectName | None = None,  # None: by what each server offers
        recompute: bool = False,  # at an update, the KV cache of unfinished replies under the new weights
        start_wait_s: float = 0.0,  # for servers that are still loading when the pool starts
        watch_s: float = WATCH_S,
        update_timeout_s: float = UPDATE_TIMEOUT_S,  # of one server; the others do not wait for it, the caller does
        check: WeightCheck | None = None,  # of servers that say they have new weights
    ) -> None:
        if not servers:
            raise ConfigError("servers is a list of the base URLs of model servers; it is empty")
        if routing not in get_args(Routing):
            raise ConfigError(f"routing is one of {', '.join(get_args(Routing))}; got {routing!r}")
        if admin is not None and admin not in get_args(DialectName):
            raise ConfigError(f"admin is one of {', '.join(DIALECTS)}; got {admin!r}")
        endpoints = [replace(Endpoint.of(server), dialect=speaks) for server in servers]
        urls = [endpoint.base_url for endpoint in endpoints]
        if twice := {url for url in urls if urls.count(url) > 1}:
            raise ConfigError(f"servers names {', '.join(sorted(twice))} twice; each is one server")
        self.model, self.routing, self.version = model, routing, version
        links = [AdminLink(endpoint, recompute=recompute, update_timeout_s=update_timeout_s) for endpoint in endpoints]
        self.servers = [Server(endpoint, link) for endpoint, link in zip(endpoints, links, strict=True)]
        self._admin: DialectName | None = admin
        self.check = check
        self._start_wait_s, self._watch_s = start_wait_s, watch_s
        self._by_url = {server.url: server for server in self.servers}
        self._source: WeightSource | None = None  # of the current version, for a server that comes back
        self._updating = asyncio.Lock()  # one update at a time, and none while a server is being let back
        self._watching: asyncio.Task[None] | None = None
        self._turn = 0

    # --- which server -----------------------------------------------------------------------------------------------

    @property
    def serving(self) -> list[Server]:
        return [server for server in self.servers if server.out is None]

    def endpoint_for(self, problem: str, rollouts: int = 1) -> Endpoint:
        """Where the rollouts of a problem go. Raises ModelUnavailableError while no server is in the pool."""
        server = self._pick(problem)
        server.recent += rollouts
        return server.endpoint

    @contextmanager
    def group(self, problem: str, rollouts: int = 1) -> Iterator[Endpoint]:
        """`endpoint_for`, with so many rollouts counted as in flight at that server until the block ends."""
        server = self._pick(problem)
        server.rollouts += rollouts
        try:
            yield server.endpoint
        finally:
            server.rollouts -= rollouts

    def _pick(self, problem: str) -> Server:
        serving = self.serving
        if not serving:
            reasons = "; ".join(f"{server.url}: {server.out}" for server in self.servers)
            raise ModelUnavailableError(f"no model server is in the pool now ({reasons})")
        if self.routing == "sticky":  # rendezvous hashing: one that leaves moves only the problems that were its own
            return max(serving, key=lambda s: zlib.crc32(f"{s.url} {problem}".encode()) * 2654435761 % 2**32)
        self._turn += 1
        in_turn = serving[self._turn % len(serving) :] + serving[: self._turn % len(serving)]
        return in_turn[0] if self.routing == "round_robin" else min(in_turn, key=lambda s: s.pressure)

    def sampling(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The sampling of rollouts to train on, under the current weights. See `training_sampling`."""
        return training_sampling(given, self.version)

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> list[ServerReport]:
        """Probes all servers. Raises SetupError with everything that is wrong, for all of them at once."""
        deadline = time.monotonic() + self._start_wait_s
        first_met = (self._meet_by(server, deadline) for server in self.servers)
        outcomes = await asyncio.gather(*first_met, return_exceptions=True)
        wrong: list[str] = []
        for server, outcome in zip(self.servers, outcomes, strict=True):
            if isinstance(outcome, AdminError):
                wrong.append(f"{server.url}: {outcome}")
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                wrong += [f"{server.url}: {problem}" for problem in outcome.problems]
        if wrong:
            await self.close()
            raise SetupError("cannot train with these servers:\n  " + "\n  ".join(wrong))
        for server in self.servers:
            try:
                await self._admit(server)
            except AdminError as error:
                self._take_out(server, str(error))
        self._watching = asyncio.create_task(self._watch(), name="watch of the inference pool")
        return [server.report for server in self.servers if server.report is not None]

    async def close(self) -> None:
        """Ends the watch and the connections; the servers go on."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        for server in self.servers:
            await server.link.close()

    async def __aenter__(self) -> InferencePool:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # --- new weights ------------------------------------------------------------------------------------------------

    async def update(self, version: int, source: WeightSource) -> UpdateReport:
        """Gives all servers the weights of `version`, in flight: what they are generating goes on under the new ones.

        A server that fails is taken out of the pool, and so is none when all fail by refusing. Raises UpdateError
        when all fail, WeightMismatch where the check says that one has other weights than it was given, ValueError for
        a version that is older than the current one.
        """
        if version < self.version:
            raise ValueError(f"weights of version {version}, but the servers have those of {self.version}")
        async with self._updating:
            began = time.monotonic()
            # those that are out take their part as well, when they answer: it is how they come back
            reachable = [server for server in self.servers if server.out is None or server.is_met]
            round_ = source.round([server.link.url for server in reachable])
            paused: dict[str, float] = {}
            async with asyncio.TaskGroup() as group:  # cancelled, it waits until every server has been resumed
                tasks = {
                    server.url: group.create_task(self._update_one(server, version, source, round_, paused))
                    for server in reachable
                }
            failed = {url: reason for url, task in tasks.items() if (reason := task.result()) is not None}
            failed |= {s.url: s.out or "it does not answer" for s in self.servers if s not in reachable}
            updated = tuple(server.url for server in reachable if server.url not in failed)
            report = UpdateReport(version, updated, failed, time.monotonic() - began, paused)
            for url, reason in failed.items():
                if updated or self._by_url[url].version != self.version:
                    self._take_out(self._by_url[url], f"it did not take the weights of version {version}: {reason}")
            if not updated:
                raise UpdateError(report)
            self.version, self._source = version, source
            new = {url for url in updated if self._by_url[url].out is not None}
            for url in updated:
                self._let_in(self._by_url[url])
            return await self._checked(report, new)

    async def _checked(self, report: UpdateReport, new: Collection[str]) -> UpdateReport:
        """The report, in which servers with other weights than they were given have failed too."""
        checks = (self._mismatch(self._by_url[url], is_new=url in new) for url in report.updated)
        found = await asyncio.gather(*checks)
        wrong = {url: mismatch for url, mismatch in zip(report.updated, found, strict=True) if mismatch is not None}
        if wrong and self.check is not None and self.check.on_mismatch == "stop":
            raise next(iter(wrong.values()))
        updated = tuple(url for url in report.updated if url not in wrong)
        failed = {**report.failed, **{url: str(mismatch) for url, mismatch in wrong.items()}}
        report = replace(report, updated=updated, failed=failed)
        if not updated:
            raise UpdateError(report)
        return report

    async def _mismatch(self, server: Server, *, is_new: bool = False) -> WeightMismatch | None:
        """What is wrong with the weights of a server that has just taken them; then it is out of the pool."""
        if self.check is None:
            return None
        try:
            await self.check.of(server.link, self.version, is_new=is_new)
        except WeightMismatch as mismatch:
            self._take_out(server, str(mismatch))
            await self._disown(server)
            return mismatch
        except AdminError as error:
            _log.warning("whether its weights are those of version %s cannot be told: %s", self.version, error)
        return None

    async def _update_one(
        self, server: Server, version: int, source: WeightSource, round_: Round, paused: dict[str, float]
    ) -> str | None:
        """Why it failed; `None`: it did not."""
        link, began = server.link, None
        try:
            await round_.connect(link)
            before = await link.weight_states()
            began = time.monotonic()
            async with link.paused():
                try:
                    await self._load(server, version, source, round_, before)
                except BaseException:
                    if not await self._is_untouched(server, before):
                        await self._disown(server)
                    raise
            server.version = version
            return None
        except AdminError as error:
            source.leave(round_, link.url)
            return str(error)
        except BaseException:
            source.leave(round_, link.url)
            raise
        finally:
            if began is not None:
                paused[server.url] = time.monotonic() - began

    async def _load(
        self, server: Server, version: int, source: WeightSource, round_: Round, before: list[Any] | None
    ) -> None:
        assert server.dialect is not None
        try:
            await server.dialect.load(server.link, round_, str(version))
        except AdminError as error:
            if not source.repeatable or await self._is_untouched(server, before):
                raise  # weights that have been sent, and are gone; or a refusal, which would only be repeated
            _log.warning("%s: an update broke off, once more from the start (%s)", server.url, error)
            await server.dialect.load(server.link, round_, str(version))

    async def _is_untouched(self, server: Server, before: list[Any] | None) -> bool:
        """Are the weights what they were before the update, and whole? `False` when that cannot be known."""
        try:
            now = await server.link.weight_states()
        except AdminError:
            return False
        return now is not None and now == before and all(state["state"] == "whole" for state in now)

    async def _disown(self, server: Server) -> None:
        """Nothing may be made, unnoticed, with weights that are of no known version."""
        server.version = None
        server.out = server.out or "its weights are of no known version"
        for path, body in (
            ("/update_weight_version", {"new_version": f"torn after {self.version}"}),
            ("/abort_requests", {}),  # their rollouts ask again, or fail, and count as failed
        ):
            try:
                await server.link.post(path, body)
            except AdminError as error:
                _log.warning("%s: %s", server.url, error)

    # --- coming and going -------------------------------------------------------------------------------------------

    async def _meet_by(self, server: Server, deadline: float) -> ServerReport:
        while True:
            try:
                return await self._meet(server)
            except AdminError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(min(1.0, self._watch_s))

    async def _meet(self, server: Server) -> ServerReport:
        """Asks a server what it can do, and what its weights are. Raises AdminError when it does not answer."""
        server.is_met = False
        report = server.report = await probe(server.link, self.model, dialect=self._admin)
        if report.was_paused:
            await server.link.insist("/resume")
            _log.warning("%s was paused by somebody who is gone, and goes on now", server.url)
        server.dialect = DIALECTS[report.dialect]() if report.dialect is not None else None
        server.version = _version_of(report.version)
        server.misses, server.is_met = 0, report.can_train
        return report

    async def _admit(self, server: Server) -> None:
        """Lets a server that was just asked in, if its weights are the current ones or can be made so now."""
        if server.version == self.version:
            if server.report is not None and server.report.version == _UNTOUCHED:
                await server.link.set_version(str(self.version))  # so that its tokens tell it
            self._let_in(server)
        elif self._source is not None and self._source.is_lasting:
            round_ = self._source.round([server.link.url])
            reason = await self._update_one(server, self.version, self._source, round_, {})
            if reason is not None:
                self._take_out(server, reason)
            elif await self._mismatch(server, is_new=True) is None:
                self._let_in(server)
        else:
            found = "of no known version" if server.version is None else f"those of version {server.version}"
            self._take_out(server, f"its weights are {found}, not {self.version}; it waits for the next update")

    def _let_in(self, server: Server) -> None:
        if server.out is not None:
            _log.info("%s is in the pool, weights of version %s", server.url, server.version)
        server.out, server.misses = None, 0

    def _take_out(self, server: Server, reason: str) -> None:
        if server.out is None:
            _log.warning("%s is out of the pool: %s", server.url, reason)
        server.out = reason

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._watch_s)
            await self.look()

    async def look(self) -> None:
        """Once around all servers, as the watch does: their load, who has died, who is back."""
        await asyncio.gather(*(self._look_at(server) for server in self.servers))

    async def _look_at(self, server: Server) -> None:
        try:
            if server.out is None:
                await self._take_pulse(server)
            elif not self._updating.locked():
                report = await self._meet(server)
                async with self._updating:  # an update that began meanwhile may have taken it along
                    if not report.can_train:
                        self._take_out(server, "; ".join(report.problems))
                    elif server.out is not None:
                        await self._admit(server)
        except AdminError as error:
            server.misses += 1
            if server.out is not None:
                server.out, server.is_met = str(error), False
            elif server.misses >= MISSES:
                server.load, server.is_met = None, False
                self._take_out(server, str(error))

    async def _take_pulse(self, server: Server) -> None:
        status = await server.link.status_of("/health", timeout_s=LOOK_TIMEOUT_S)
        if status >= 500:
            raise AdminError(f"{server.link.url}/health answered {status}", status)
        server.misses = 0
        if not self._updating.locked():
            await server.link.end_lost_pause()
        if self.routing == "least_loaded":
            try:
                server.load = read_load(await server.link.get("/metrics", timeout_s=LOOK_TIMEOUT_S))
                server.recent = 0
            except AdminError as error:
                if error.status is None:
                    raise
                server.load = None  # it has no such page


def _version_of(label: str | None) -> int | None:
    if label is None or label == _UNTOUCHED:  # servers without labels begin with what they were started with
        return 0
    return int(label) if label.isdecimal() else None
