"""The zygote: one warm interpreter in a jail, which forks every cell.

It reads nothing that a model wrote: what a cell is to do is read in the cell.
"""

from __future__ import annotations

import _socket
import gc
import marshal
import os
import select
import sys

from verifiers.sandbox.inside import cell, confine, forks, kernel, landlock, program, slot, wire
from verifiers.sandbox.inside.kernel import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def main(settings: dict[str, Any]) -> NoReturn:
    control = _socket.socket(fileno=settings["fd"])
    try:
        _prepare(settings)
    except BaseException as error:
        wire.say(control, {"failed": f"{type(error).__name__}: {error}"})
        os._exit(1)
    is_bare = settings["kind"] == "bare"
    wire.say(control, {"landlock": landlock.abi() if is_bare else 0, "counts": int(is_bare and forks.can_count())})
    Zygote(control, settings).serve()


def _prepare(settings: dict[str, Any]) -> None:
    import site

    os.environ.pop("PWD", None)  # of bubblewrap

    site.setquit()  # exit() and quit(), which -S leaves out
    site.setcopyright()
    site.sethelper()
    sys.path.extend(settings["path"])
    program.preload(settings["preload"])
    if settings["kind"] != "jail":
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    gc.collect()
    gc.freeze()


class Zygote:
    def __init__(self, control: _socket.socket, settings: dict[str, Any]) -> None:
        self.control = control
        self.settings = settings
        self.is_jail = settings["kind"] == "jail"
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if self.is_jail else -1
        self._cells: set[int] = set()

    def serve(self) -> NoReturn:
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        poll.register(woken, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == woken:
                    os.read(woken, 512)
                    self._reap()
                    continue
                message, fds = wire.receive(self.control)
                if not message:
                    os._exit(0)
                self._make_cell(message, fds)

    def _make_cell(self, kind: bytes, fds: list[int]) -> None:
        """`kind`: a `slot`, or a `cell` that stays, or one for one program (`once`).

        `fds`: its control socket, and for the latter two the plan, stdin, stdout, stderr; then cgroups to join.
        """
        control = _socket.socket(fileno=fds[0])
        try:
            pid = self._fork()
            if pid == 0:
                self._be_cell(kind, control, fds[1:])
            self._cells.add(pid)
            handle = os.pidfd_open(pid)
            wire.say(control, {"made": pid}, [handle])
            os.close(handle)
        except OSError as error:
            wire.say(control, {"failed": f"the cell could not be made: {error}"})
        finally:
            control.close()
            for fd in fds[1:]:
                os.close(fd)

    def _fork(self) -> int:
        if not self.is_jail:
            return os.fork()
        kernel.unshare(kernel.NEWPID)
        pid = -1
        try:
            pid = kernel.fork()
        finally:
            if pid != 0:
                kernel.setns(self._own_pids, kernel.NEWPID)
        return pid

    def _be_cell(self, kind: bytes, control: _socket.socket, fds: list[int]) -> NoReturn:
        try:
            self.control.close()
            signal.set_wakeup_fd(-1)
            if kind == b"slot":
                slot.Slot(control, self.settings).serve()
            order = marshal.loads(cell.read_whole(fds[0]))
            plan = confine.Plan(kind=self.settings["kind"], filter=self.settings["filter"], **order["plan"])
            made = cell.Cell(control, plan, is_single=kind == b"once")
            made.prepare(fds[4:], order["env"])
            if kind == b"once":
                made.start(order["first"], fds[1:4])
            for fd in fds[1:4]:
                os.close(fd)
            made.serve()
        except BaseException as error:
            wire.say(control, {"failed": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(1)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._cells.discard(pid)
            if not self.is_jail:
                self._end_orphans()

    def _end_orphans(self) -> None:
        """What a cell left because it was killed itself came to this process."""
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            for pid in set(map(int, file.read().split())) - self._cells:
                os.kill(pid, signal.SIGKILL)
