"""`GatewaySessions`: the sandboxes that a gateway holds for its clients, and how long it does.

Each belongs to an owner, who alone can see it, and lives by a lease: a client that no longer renews it has died.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from verifiers.errors import SetupError
from verifiers.sandbox.gateway_messages import BEAT_S, GatewayStatus, SandboxStatus
from verifiers.sandbox.gateway_warm import WarmSandboxes
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import ExecResult, Sandbox, SandboxBackend, SandboxSpec

logger = logging.getLogger("verifiers")

_REAP_S = 0.5
_GONE = SandboxStatus(alive=False)
_MOST = SandboxLimits(wall_s=3600, memory_mb=4096, output_kb=64 << 10, processes=1024, file_mb=4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """`max_limits` are the most that a client is granted, with `network` only if they have it."""

    max_sandboxes: int = 256
    warm: int = 0
    lease_s: float = 60.0
    max_limits: SandboxLimits = _MOST
    max_lifetime_s: float = 86_400.0
    max_body_bytes: int = 256 << 20
    queue_s: float = 10.0  # a request waits as long for a place; then it is told to come again
    drain_s: float = 30.0
    beat_s: float = BEAT_S


class Refusal(Exception):
    """The gateway's own; `kind` is one of `gateway_messages.KINDS`."""

    def __init__(self, kind: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.kind, self.retry_after_s = kind, retry_after_s


@dataclass(eq=False, slots=True)
class Session:
    owner: str
    creation: str
    spec: SandboxSpec  # as it was granted
    sandbox: Sandbox
    env: dict[str, str]  # for each program: a sandbox that was made before has none of its own
    id: str = field(default_factory=lambda: f"gw-{uuid.uuid4().hex[:16]}")
    born: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)
    lease_until: float = 0.0
    calls: int = 0

    def is_over(self, now: float) -> bool:
        spec = self.spec
        is_idle = spec.idle_s is not None and self.calls == 0 and now - self.used >= spec.idle_s
        return is_idle or now >= self.lease_until or now >= self.born + spec.lifetime_s or self.sandbox.is_closed

    def status(self, now: float) -> SandboxStatus:
        return SandboxStatus(
            alive=True,
            run_id=self.spec.run_id,
            calls=self.calls,
            age_s=round(now - self.born, 3),
            idle_s=0.0 if self.calls else round(now - self.used, 3),
            lease_s=round(self.lease_until - now, 3),
            ends_in_s=round(self.born + self.spec.lifetime_s - now, 3),
        )


class GatewaySessions:
    """Belongs to one event loop."""

    def __init__(self, backend: SandboxBackend, settings: GatewaySettings) -> None:
        self.backend = backend
        self.settings = settings
        self.is_draining = False
        self._warm = WarmSandboxes(backend, settings.warm, settings.max_lifetime_s)
        self._sessions: dict[str, Session] = {}
        self._of_creation: dict[tuple[str, str], Session] = {}
        self._locks: dict[tuple[str, str], tuple[asyncio.Lock, list[None]]] = {}  # and who holds or wants each
        self._places = asyncio.Semaphore(settings.max_sandboxes)  # fair: who came first is served first
        self._taken = self._waiting = 0
        self._reaper: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Future[None]] = set()

    def start(self) -> None:
        self._reaper = asyncio.create_task(self._reap_for_ever())
        self._warm.fill()

    # Making

    async def create(self, owner: str, creation: str, spec: SandboxSpec) -> Session:
        """Of two at once with the same `creation`, one makes it and the other is given it."""
        name = owner, creation
        lock, wanted = self._locks.setdefault(name, (asyncio.Lock(), []))
        wanted.append(None)
        try:
            async with lock:
                found = self._of_creation.get(name)
                if found is not None and not found.is_over(time.monotonic()):
                    self._renew(found)
                    return found
                return await self._create(owner, creation, self._granted_spec(spec))
        finally:
            wanted.pop()
            if not wanted:
                del self._locks[name]

    async def _create(self, owner: str, creation: str, spec: SandboxSpec) -> Session:
        await self._take_place()
        sandbox = None
        try:
            sandbox = self._warm.take(spec)
            if sandbox is not None:
                for path, data in spec.files.items():
                    await sandbox.write_file(path, data)
            else:  # its key and run are the owner's alone: the backend is not told
                sandbox = await self.backend.create(msgspec.structs.replace(spec, key=None, run_id=None))
        except BaseException:
            self._free_place()
            if sandbox is not None:
                await asyncio.shield(sandbox.close())
            raise
        session = Session(owner, creation, msgspec.structs.replace(spec, files={}), sandbox, dict(spec.env))
        self._sessions[session.id] = self._of_creation[owner, creation] = session
        self._renew(session)
        return session

    async def run_once(
        self, program: str, stdin: bytes, limits: SandboxLimits, env: dict[str, str], files: dict[str, bytes]
    ) -> ExecResult:
        limits = self.granted(limits)
        await self._take_place()
        try:
            return await self.backend.run_once(program, stdin=stdin, limits=limits, env=env, files=files)
        finally:
            self._free_place()

    async def _take_place(self) -> None:
        if self.is_draining:
            raise Refusal("draining", "the gateway is ending and takes no new sandboxes", self.settings.drain_s)
        if self._waiting >= 4 * self.settings.max_sandboxes:
            raise self._full()
        self._waiting += 1
        try:
            async with asyncio.timeout(self.settings.queue_s):
                await self._places.acquire()
        except TimeoutError:
            raise self._full() from None
        finally:
            self._waiting -= 1
        self._taken += 1

    def _full(self) -> Refusal:
        return Refusal("full", f"the gateway holds {self._taken} sandboxes and takes no more for now", 1.0)

    def _free_place(self) -> None:
        self._taken -= 1
        self._places.release()

    def granted(self, limits: SandboxLimits) -> SandboxLimits:
        """Each limit, or the gateway's where that is lower. A network is given or refused, never left out silently."""
        most = self.settings.max_limits
        if limits.network and not most.network:
            raise SetupError("the network is asked for, and this gateway gives none")
        cpu_s = limits.cpu_s if most.cpu_s is None else min(most.cpu_s, limits.cpu_s or most.cpu_s)
        return SandboxLimits(
            wall_s=min(limits.wall_s, most.wall_s),
            cpu_s=cpu_s,
            memory_mb=min(limits.memory_mb, most.memory_mb),
            output_kb=min(limits.output_kb, most.output_kb),
            processes=min(limits.processes, most.processes),
            file_mb=min(limits.file_mb, most.file_mb),
            network=limits.network,
        )

    def _granted_spec(self, spec: SandboxSpec) -> SandboxSpec:
        lifetime_s = min(spec.lifetime_s, self.settings.max_lifetime_s)
        return msgspec.structs.replace(spec, limits=self.granted(spec.limits), lifetime_s=lifetime_s)

    # Using

    @asynccontextmanager
    async def using(self, owner: str, id: str) -> AsyncGenerator[Session, None]:
        """The session for one call, which is not idle meanwhile. Raises Refusal."""
        session = self._sessions.get(id)
        if session is None or session.owner != owner:
            raise Refusal("unknown", f"no sandbox {id} of this token is here: it has ended, or never was")
        if session.is_over(time.monotonic()):
            raise Refusal("ended", f"the sandbox {id} has ended: it was closed, or its time is over")
        session.calls += 1
        self._renew(session)
        try:
            yield session
        finally:
            session.calls -= 1
            session.used = time.monotonic()

    def status(self, owner: str, ids: Iterable[str] | None) -> GatewayStatus:
        """Of many at once; None: of all that the owner has."""
        now = time.monotonic()
        asked = [id for id, session in self._sessions.items() if session.owner == owner] if ids is None else ids
        return GatewayStatus(
            sandboxes={
                id: _GONE if (found := self._own(owner, id, now)) is None else found.status(now) for id in asked
            },
            places=self.settings.max_sandboxes,
            free=self.settings.max_sandboxes - self._taken,
            waiting=self._waiting,
            warm=self._warm.ready,
            draining=self.is_draining,
        )

    def renew(self, owner: str, ids: Iterable[str]) -> list[str]:
        """Those among them that have ended."""
        now, gone = time.monotonic(), []
        for id in ids:
            session = self._own(owner, id, now)
            if session is None:
                gone.append(id)
            else:
                self._renew(session)
        return gone

    def _own(self, owner: str, id: str, now: float) -> Session | None:
        session = self._sessions.get(id)
        return None if session is None or session.owner != owner or session.is_over(now) else session

    def _renew(self, session: Session) -> None:
        session.lease_until = time.monotonic() + self.settings.lease_s

    # Ending

    async def close_of(
        self, owner: str, ids: Iterable[str] | None, creation: str | None, run_id: str | None
    ) -> list[str]:
        """Closes the owner's sandboxes that are named; those that were there."""
        found = [self._sessions[id] for id in ids or () if id in self._sessions]
        if creation is not None and (owner, creation) in self._of_creation:
            found.append(self._of_creation[owner, creation])
        if run_id is not None:
            found += [session for session in self._sessions.values() if session.spec.run_id == run_id]
        now = time.monotonic()
        ours = {session.id: session for session in found if session.owner == owner}
        alive = [id for id, session in ours.items() if not session.is_over(now)]
        await self._end(ours.values())
        return alive

    async def _end(self, sessions: Iterable[Session]) -> None:
        await asyncio.gather(*(self._end_one(session) for session in sessions))

    async def _end_one(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is None:
            return
        if self._of_creation.get((session.owner, session.creation)) is session:
            del self._of_creation[session.owner, session.creation]
        try:  # a client that hangs up does not keep it alive
            await asyncio.shield(asyncio.ensure_future(self._close(session)))
        except Exception as error:
            logger.warning("the sandbox %s could not be closed: %s", session.id, error)

    async def _close(self, session: Session) -> None:
        try:
            await session.sandbox.close()
        finally:
            self._free_place()

    async def _reap_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_REAP_S)
            now = time.monotonic()
            over = [session for session in self._sessions.values() if session.is_over(now)]
            if over:
                logger.info("%d sandbox(es) whose time or lease is over are closed", len(over))
                ending = asyncio.ensure_future(self._end(over))  # one that hangs does not keep the others
                self._endings.add(ending)
                ending.add_done_callback(self._endings.discard)
            self._warm.fill()

    async def drain(self) -> None:
        """Takes no more, and waits for those that are there to be closed, for as long as the settings say."""
        self.is_draining = True
        await self._warm.close()
        try:
            async with asyncio.timeout(self.settings.drain_s):
                while self._taken:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            logger.warning("%d sandbox(es) are still there and are closed now", self._taken)

    async def close(self) -> None:
        self.is_draining = True
        if self._reaper is not None:
            self._reaper.cancel()
        await self._warm.close()
        await asyncio.gather(self._end(list(self._sessions.values())), *self._endings)
