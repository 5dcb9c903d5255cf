"""`LocalCell`: the launcher's end of one cell, from its making to the last thing of it that is removed."""

from __future__ import annotations

import asyncio
import marshal
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

from verifiers.errors import SandboxError
from verifiers.sandbox.capture import Capture
from verifiers.sandbox.cgroup import Group
from verifiers.sandbox.inside import wire
from verifiers.sandbox.jail import MARSHAL_VERSION, Jail, memory_file, words_of
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.outcome import Ending, read_ending
from verifiers.sandbox.sandbox import ExecResult, Limit

ANSWER_S = 10.0  # a cell that does not answer for so long is broken; on a busy machine it may take seconds


class Hearer(Protocol):
    """One program, as the cell's news about it are told."""

    fds: list[int]  # its stdin, stdout and stderr

    def begin(self) -> None: ...

    def told(self, words: dict[str, str] | None) -> None:
        """How it ended; `None` when it went down with its cell."""
        ...

    def fail(self, error: SandboxError) -> None: ...


class LocalCell:
    """Belongs to the event loop in which it was made."""

    def __init__(
        self,
        jail: Jail,
        group: Group | None,
        folder: str | None,
        user: int,
        owner: int | None,
        on_end: Callable[[LocalCell], None],
    ) -> None:
        self.jail = jail
        self.group = group
        self.folder = folder
        self.user = user  # a number among the jail's
        self.owner = owner  # the same as this process sees it, if the jail gives users
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._control: socket.socket | None = None
        self._handle: int | None = None  # pidfd of the cell's first process
        self._runs: dict[int, Hearer] = {}
        self._number = 0
        self._is_single = False
        self.made: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()  # all of its processes are gone
        self._closing: asyncio.Task[None] | None = None

    def make(self, order: dict[str, Any], first: Hearer | None = None) -> None:
        """Asks the jail for the cell; `made` tells when it is there."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, self.jail.control.type)
        ours.setblocking(False)
        self._control = ours
        if first is not None:
            self._is_single = True
            self._runs[0] = first
        request = memory_file(marshal.dumps(order, MARSHAL_VERSION))
        streams = [] if first is None else first.fds
        groups = [] if self.group is None else self.group.open()
        try:
            self._loop.add_reader(ours.fileno(), self._hear)
            kind = b"cell" if first is None else b"once"
            self.jail.send(kind, [theirs.fileno(), request, *(streams or [request] * 3), *groups])
        finally:
            theirs.close()
            for fd in [request, *groups]:
                os.close(fd)

    def make_slot(self) -> None:
        """Asks for a cell in which programs run one after another, each in namespaces of its own."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, self.jail.control.type)
        ours.setblocking(False)
        self._control = ours
        try:
            self._loop.add_reader(ours.fileno(), self._hear)
            self.jail.send(b"slot", [theirs.fileno()])
        finally:
            theirs.close()

    def run(self, request: dict[str, Any], run: Hearer, group: Group | None = None) -> int:
        """Starts a program in a cell that is asked for; the run's number."""
        if self._control is None or self._ended.done():
            raise SandboxError("the sandbox has ended")
        self._number += 1
        self._runs[self._number] = run
        payload = memory_file(marshal.dumps({**request, "id": self._number}, MARSHAL_VERSION))
        groups = [] if group is None else group.open()
        try:
            socket.send_fds(self._control, [b"run %d" % self._number], [payload, *run.fds, *groups])
        except OSError as error:
            del self._runs[self._number]
            raise SandboxError(f"the sandbox does not answer: {error}") from None
        finally:
            for fd in [payload, *groups]:
                os.close(fd)
        return self._number

    def kill_run(self, number: int) -> None:
        """Ends one program and what it started; the whole cell when that is not answered."""
        if self._control is None:
            return
        try:
            self._control.send(b"kill %d" % number)
        except OSError:
            self.kill()
        self._loop.call_later(ANSWER_S, lambda: self.kill() if number in self._runs else None)

    def kill(self) -> None:
        """Ends every process of the cell: by its first process, which has heard enough, and in a jail at once."""
        if self._control is not None:
            try:
                self._control.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        if self._handle is not None and self.is_jail:
            try:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            except ProcessLookupError:
                pass

    @property
    def is_jail(self) -> bool:
        return self.jail.kind.kind == "jail"

    async def wait_for_end(self) -> None:
        """Until no process of the cell is left; one that ended by itself needs no time for that."""
        await asyncio.wait([self._ended], timeout=ANSWER_S)

    @property
    def has_ended(self) -> bool:
        return self._ended.done()

    @property
    def is_at_rest(self) -> bool:
        """It lives, and nothing runs in it."""
        return self._control is not None and not self._runs and not self._ended.done() and self._closing is None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def abandon(self) -> None:
        """When its event loop is closed: ends it, and waits for nothing."""
        self.kill()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._on_end(self)

    async def close(self) -> None:
        """Whatever happens meanwhile to the caller."""
        if self._closing is None:
            self.kill()
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            if self._control is not None:
                if not self.made.done():
                    await asyncio.wait([self.made], timeout=ANSWER_S)
                    self.kill()
                await asyncio.wait([self._ended], timeout=5.0)
            if self.group is not None:
                await remove_group(self.group)
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            self._hang_up()
            if self._handle is not None:
                self._loop.remove_reader(self._handle)
                os.close(self._handle)
                self._handle = None
            for number in list(self._runs):  # a cell that did not end in time: nobody waits for it any longer
                self._runs.pop(number).told(None)
            self._on_end(self)

    def _hear(self) -> bool:
        """True when there was a message."""
        if self._control is None:
            return False
        try:
            message, fds = wire.receive(self._control)
        except BlockingIOError:
            return False
        if not message:
            self._hang_up()
            if self._handle is None:
                self._end()
            return False
        words = words_of(message)
        if fds:
            self._handle = fds[0]
            self._loop.add_reader(self._handle, self._end)
        if "id" in words:
            run = self._runs.pop(int(words["id"]), None)
            if run is not None:
                run.told(words)
        elif "failed" in words:
            self._fail(SandboxError(f"the sandbox could not be made: {words['failed']}"))
        else:
            self._begin("ready" in words)
        return True

    def _begin(self, is_ready: bool) -> None:
        """A cell for one program is there once it is forked; its program may have ended by the time we hear of it."""
        first = self._runs.get(0)
        if first is not None:
            first.begin()
        if (self._is_single or is_ready) and not self.made.done():
            self.made.set_result(None)

    def _end(self) -> None:
        """No process of the cell is left."""
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
        while self._hear():  # what it said before its end
            pass
        if not self._ended.done():
            self._ended.set_result(None)
        if not self.made.done():
            self._fail(SandboxError("the sandbox ended before it was there"))
        for number in list(self._runs):
            self._runs.pop(number).told(None)

    def _fail(self, error: SandboxError) -> None:
        if not self.made.done():
            self.made.set_exception(error)
            self.made.exception()  # nobody need ask
        for number in list(self._runs):
            self._runs.pop(number).fail(error)

    def _hang_up(self) -> None:
        if self._control is not None:
            self._loop.remove_reader(self._control.fileno())
            self._control.close()
            self._control = None


async def remove_group(group: Group) -> None:
    """The kernel may need a moment to see that a process is gone."""
    for attempt in range(200):
        if group.remove():
            return
        await asyncio.sleep(min(0.0005 * (attempt + 1), 0.02))


class Run:
    """One program in a cell: its streams, its timers, and the future of its end.

    `group` is a control group of its own; otherwise it runs in the cell's.
    """

    def __init__(self, cell: LocalCell, limits: SandboxLimits, stdin: bytes, group: Group | None = None) -> None:
        self._cell = cell
        self._loop = asyncio.get_running_loop()
        self.limits = limits
        self.capture = Capture(limits.output_kb << 10, lambda: self._fire("output"), cell.owner)
        self._stdin = memory_file(stdin)
        self.fds = [self._stdin, *self.capture.fds]
        self.number: int | None = None  # None: the cell's only one
        self._fired: Limit | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began: float | None = None
        self._words: asyncio.Future[dict[str, str] | None] = self._loop.create_future()
        self._group = group or cell.group
        self._is_alone = group is not None or not cell.made.done()  # in its group
        self._before = (0, 0)
        if self._group is not None and not self._is_alone:
            self._before = (self._group.oom_kills(), self._group.refused_forks())

    def sent(self) -> None:
        """The program has been asked for; its end of the streams is no longer ours."""
        self._close_stdin()
        self.capture.start()

    def begin(self) -> None:
        """The wall time begins."""
        if self._timer is None:
            self._began = time.monotonic()
            self._timer = self._loop.call_later(self.limits.wall_s, self._fire, "wall")

    def told(self, words: dict[str, str] | None) -> None:
        if not self._words.done():
            self._words.set_result(words)

    def fail(self, error: SandboxError) -> None:
        if not self._words.done():
            self._words.set_exception(error)
            self._words.exception()  # nobody need ask

    async def outcome(self) -> ExecResult:
        words = await self._words
        if self.number is None:
            await self._cell.wait_for_end()
        stdout, stderr = self.capture.finish()
        if words is not None and "failed" in words:
            raise SandboxError(f"the program could not be started in the sandbox: {words['failed']}")
        ending = self._ending(words)
        return read_ending(ending, self.limits, stdout, stderr, (self.capture.is_cut[0], self.capture.is_cut[1]))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.capture.close()
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def _fire(self, limit: Limit) -> None:
        if self._fired is None and not self._words.done():
            self._fired = limit
            if self.number is None:
                self._cell.kill()
            else:
                self._cell.kill_run(self.number)

    def _ending(self, words: dict[str, str] | None) -> Ending:
        group = self._group
        out_of_memory = group is not None and group.oom_kills() > self._before[0]
        refused = group is not None and group.refused_forks() > self._before[1]
        wall_s = 0.0 if self._began is None else time.monotonic() - self._began
        fired = self._fired
        if words is None:
            if fired is None and not out_of_memory and self._cell.is_jail:
                raise SandboxError("the sandbox ended without saying how its program did")
            return Ending(wall_s=wall_s, fired=fired, out_of_memory=out_of_memory, refused_forks=refused)
        if "full" in words:
            return Ending(fired="processes")
        refused = refused or words.get("refused_forks", "0") != "0"
        peak = int(words["peak_kb"]) << 10
        if group is not None and self._is_alone:
            peak = group.peak_memory() or peak
        return Ending(
            code=int(words["code"]),
            wall_s=float(words["wall_s"]),
            cpu_s=float(words["cpu_s"]),
            peak_bytes=peak,
            fired=fired,
            out_of_memory=out_of_memory,
            refused_forks=refused,
            files_full=words.get("files_full") == "1",
        )
