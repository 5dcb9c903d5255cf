"""`LocalBackend`: sandboxes on this machine, by what its kernel lends to them.

Level 3: namespaces by bubblewrap, a seccomp filter, limits of each process, and a control group for the whole tree.
Level 2: without the control group. Level 1: Landlock in place of namespaces. Level 0: limits alone, and only when asked
for by `unsafe=True`. The highest that works here is taken; what does not work is found by trying, and said.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import tempfile
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from verifiers.errors import SandboxError, SetupError
from verifiers.sandbox.cells import LocalCell, Run, remove_group
from verifiers.sandbox.cgroup import Group
from verifiers.sandbox.jail import Jail, JailKind
from verifiers.sandbox.levels import Level, find_level
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.local_sandbox import LocalSandbox
from verifiers.sandbox.packages import wanted
from verifiers.sandbox.sandbox import (
    Capabilities,
    ExecResult,
    Sandbox,
    SandboxBackend,
    SandboxSpec,
    as_bytes,
)

CELLS_OF_A_JAIL = 5_000  # after which it is replaced
PATIENCE_S = 30.0  # beyond a program's own time; a jail that does not answer for so long is broken
_MB = 1 << 20
T = TypeVar("T")


class LocalBackend(SandboxBackend):
    """`warm=False` starts an interpreter for each sandbox.

    `packages=True` lets programs import all that is installed here, a list of names only these and what they need.
    `places` programs of `run_once` run at a time, by default one for each core; waiting for a place costs no wall time.
    """

    name = "local"

    def __init__(
        self,
        *,
        warm: bool = True,
        packages: bool | Iterable[str] = False,
        places: int | None = None,
        min_level: int | None = None,
        max_level: int = 3,
        unsafe: bool = False,
    ) -> None:
        self.warm = warm
        self.packages = wanted(packages)
        self.places = places or _usable_cores()
        self.min_level = 0 if min_level is None and unsafe else 1 if min_level is None else min_level
        self.max_level = max_level
        self.unsafe = unsafe
        self._level: Level | None = None
        self._jails: dict[JailKind, Jail] = {}
        self._lock = threading.Lock()  # guards the two above
        self._cells: dict[LocalCell, LocalSandbox | None] = {}  # None: of `run_once`
        self._waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._waiting = weakref.WeakKeyDictionary()
        self._resting: dict[LocalCell, None] = {}  # slots for the next `run_once`; among the cells too
        self._users = itertools.count(os.getpid() * 257)
        self._is_closed = False
        self._owner = os.getpid()
        self._at_exit = partial(_call, weakref.WeakMethod(self._abandon))
        atexit.register(self._at_exit)

    async def capabilities(self) -> Capabilities:
        level = await self._find_level()
        await asyncio.to_thread(level.kind_for, False, self.packages)  # that they are here
        return level.capabilities

    async def create(self, spec: SandboxSpec | None = None) -> Sandbox:
        spec = spec or SandboxSpec()
        if spec.image is not None and not is_plain_python(spec.image):
            raise SetupError(
                f"the local backend has no images, and {spec.image!r} is asked for; "
                "take a container backend (docker, podman), or no image"
            )
        if spec.key is not None:
            for made in list(self._cells.values()):
                if made is not None and made.spec.key == spec.key and not made.is_closed:
                    return made
        cell, plan = await self._cell(spec.limits)
        sandbox = self._cells[cell] = LocalSandbox(cell, spec, work=plan["work"])
        try:
            order = {"plan": plan, "env": self._env(cell, plan, spec.env)}
            await self._ask(lambda: cell.make(order))
            await _answer(cell.jail, cell.made)
            await sandbox.begin()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def run_once(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        limits: SandboxLimits | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ExecResult:
        limits = limits or SandboxLimits()
        request = {"do": "program", "source": program, "files": dict(files or {}), "cpu_s": limits.cpu_s}
        async with self._place():
            level = await self._find_level()
            if level.number >= 2:
                return await self._run_in_slot(level, request, as_bytes(stdin), limits, env or {})
            return await self._run_alone(request, as_bytes(stdin), limits, env or {})

    async def _run_in_slot(
        self, level: Level, request: dict[str, Any], stdin: bytes, limits: SandboxLimits, env: Mapping[str, str]
    ) -> ExecResult:
        slot = await self._slot(limits)
        group = run = None
        try:
            group = self._group(level, limits, limits.processes)
            run = Run(slot, limits, stdin, group)
            plan = level.plan(limits, None, slot.user, has_group=group is not None, terminals=False)
            run.number = slot.run({**request, "plan": plan, "env": dict(env)}, run, group)
            run.sent()
            run.begin()
            return await _answer(slot.jail, run.outcome(), limits.wall_s)
        finally:
            if run is not None:
                run.close()
            if self._may_rest(slot):
                self._resting[slot] = None
            else:
                await slot.close()
            if group is not None and not group.remove():
                await asyncio.shield(remove_group(group))

    async def _run_alone(
        self, request: dict[str, Any], stdin: bytes, limits: SandboxLimits, env: Mapping[str, str]
    ) -> ExecResult:
        """Without namespaces: in a cell that is made for it."""
        cell, plan = await self._cell(limits, is_single=True)
        run = None
        try:
            run = Run(cell, limits, stdin)
            order = {"plan": plan, "env": self._env(cell, plan, env), "first": {**request, "id": 0}}
            await self._ask(lambda: cell.make(order, run))
            run.sent()
            await _answer(cell.jail, cell.made)
            return await _answer(cell.jail, run.outcome(), limits.wall_s)
        finally:
            if run is not None:
                run.close()
            await cell.close()

    async def close_run(self, run_id: str) -> int:
        found = [made for made in self._cells.values() if made is not None and made.spec.run_id == run_id]
        await asyncio.gather(*(made.close() for made in found))
        return len(found)

    async def close(self) -> None:
        with self._lock:
            self._is_closed = True
        here = asyncio.get_running_loop()
        await asyncio.gather(*(cell.close() for cell in list(self._cells) if cell.loop is here))
        self._abandon()
        atexit.unregister(self._at_exit)

    # Cells

    async def _cell(self, limits: SandboxLimits, is_single: bool = False) -> tuple[LocalCell, dict[str, Any]]:
        level = await self._find_level()
        jail = await self._jail(level, limits)
        user = self._next_user()
        folder = None if level.number >= 2 else tempfile.mkdtemp(prefix="vf-sandbox-", dir=level.folder)
        group = self._group(level, limits, limits.processes + 1)  # the cell's first process is in it too
        cell = LocalCell(jail, group, folder, user, level.owner_of(user), self._forget)
        self._cells[cell] = None
        extra = level.readable_for(jail.kind)
        has_group = group is not None
        plan = level.plan(limits, folder, user, has_group=has_group, terminals=not is_single, extra=extra)
        return cell, plan

    async def _slot(self, limits: SandboxLimits) -> LocalCell:
        """One that is at rest, or a new one."""
        level = await self._find_level()
        jail = await self._jail(level, limits)
        for slot in list(self._resting):
            if slot.loop.is_closed():
                slot.abandon()
            elif slot.jail not in self._jails.values():
                del self._resting[slot]
                await slot.close()
            elif slot.loop is asyncio.get_running_loop() and slot.jail is jail:
                del self._resting[slot]
                if slot.is_at_rest:
                    return slot
                await slot.close()
        user = self._next_user()
        slot = LocalCell(jail, None, None, user, level.owner_of(user), self._forget)
        self._cells[slot] = None
        try:
            await self._ask(slot.make_slot)
        except BaseException:
            await slot.close()
            raise
        return slot

    def _may_rest(self, slot: LocalCell) -> bool:
        slot.jail.cells += 1
        return slot.is_at_rest and not self._is_closed and slot.jail in self._jails.values()

    def _group(self, level: Level, limits: SandboxLimits, processes: int) -> Group | None:
        if level.cgroups is None:
            return None
        try:
            return level.cgroups.make(limits.memory_mb * _MB, processes)
        except OSError as error:
            raise SandboxError(f"no control group can be made: {error}") from None

    def _next_user(self) -> int:
        return next(self._users) % 60_000 + 1_000

    async def _ask(self, make: Callable[[], None]) -> None:
        for attempt in range(200):
            try:
                make()
                return
            except BlockingIOError:  # the zygote has a queue of its own
                await asyncio.sleep(0.001 * (attempt + 1))
        raise SandboxError("the sandbox's zygote does not keep up")

    def _forget(self, cell: LocalCell) -> None:
        self._cells.pop(cell, None)
        self._resting.pop(cell, None)
        if cell.jail not in self._jails.values() and not any(other.jail is cell.jail for other in self._cells):
            cell.jail.close()

    def _env(self, cell: LocalCell, plan: dict[str, Any], env: Mapping[str, str]) -> dict[str, str]:
        if cell.is_jail:
            return dict(env)  # the rest is in the jail already
        return cell.jail.environment(plan["work"], plan["tmp"]) | dict(env)

    # The jail

    async def _find_level(self) -> Level:
        return self._level or await asyncio.to_thread(self._level_now)

    def _level_now(self) -> Level:
        with self._lock:
            if self._is_closed:
                raise SandboxError("the sandbox backend is closed")
            if self._level is None:
                self._level = find_level(self.min_level, self.max_level, self.unsafe)
            return self._level

    async def _jail(self, level: Level, limits: SandboxLimits) -> Jail:
        if limits.network and "full" not in level.capabilities.networks:
            raise SetupError(f"the network is asked for, and a sandbox of level {level.number} has none here")
        kind = level.kind_for(limits.network, self.packages)
        if not self.warm:
            return await _cold_jail(replace(kind, preload=(), warm=False))
        jail = self._jails.get(kind)
        if jail is None or jail.is_dead or jail.cells >= CELLS_OF_A_JAIL:
            jail = await asyncio.to_thread(self._jail_now, kind)
        return jail

    def _jail_now(self, kind: JailKind) -> Jail:
        with self._lock:
            if self._is_closed:
                raise SandboxError("the sandbox backend is closed")
            jail = self._jails.get(kind)
            if jail is None or jail.is_dead or jail.cells >= CELLS_OF_A_JAIL:
                old, self._jails[kind] = jail, Jail(kind)
                if old is not None and not any(cell.jail is old for cell in list(self._cells)):
                    old.close()
            return self._jails[kind]

    def _place(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        found = self._waiting.get(loop)
        if found is None:
            found = self._waiting[loop] = asyncio.Semaphore(self.places)
        return found

    def _abandon(self) -> None:
        """Without an event loop: ends the jails, and with them every cell."""
        if os.getpid() != self._owner:  # a forked child: they are its parent's
            return
        for cell in list(self._cells):
            if cell.loop.is_closed():
                cell.abandon()
        for jail in {*self._jails.values(), *(cell.jail for cell in self._cells)}:
            jail.close()
        self._jails.clear()
        if self._level is not None:
            self._level.close()
            self._level = None


def is_plain_python(image: str) -> bool:
    """An image that promises nothing but Python, which is here too."""
    name = image.removeprefix("docker.io/").removeprefix("library/").partition(":")[0]
    return name == "python"


async def _answer(jail: Jail, coming: Awaitable[T], limit_s: float = 0.0) -> T:
    """What comes within `limit_s` and the patience that every jail is given; raises SandboxError when it does not."""
    try:
        async with asyncio.timeout(limit_s + PATIENCE_S):
            return await coming
    except TimeoutError:
        jail.give_up()
        raise SandboxError(f"the sandbox has not answered for {limit_s + PATIENCE_S:g} s") from None


async def _cold_jail(kind: JailKind) -> Jail:
    starting = asyncio.ensure_future(asyncio.to_thread(Jail, kind))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(lambda done: None if done.exception() else done.result().close())
        raise


def _call(method: weakref.WeakMethod[Any]) -> None:
    found = method()
    if found is not None:
        found()


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
