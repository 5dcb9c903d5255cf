"""`Slot`: the first process of a pid namespace in which programs run one after another, each in all else new.

It knows when the last process of a program is gone: whatever a program leaves becomes a child of this process. That is
half the cost of a pid namespace for each program, which needs a first process of its own.
"""

from __future__ import annotations

import marshal
import os
import select
import time

from verifiers.sandbox.inside import cell, confine, kernel, wire
from verifiers.sandbox.inside.kernel import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any, NoReturn


class Slot:
    """Only for a jail: it kills every process that it can see."""

    def __init__(self, control: socket, kind: str, filter: bytes) -> None:
        if os.getpid() != 1 or kind != "jail":
            raise OSError("a slot is the first process of a pid namespace")
        self.control = control
        self.kind = kind
        self.filter = filter

    def serve(self) -> NoReturn:
        """Until the launcher hangs up."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(woken, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._woken = woken
        self._poll = select.poll()
        self._poll.register(self.control.fileno(), select.POLLIN)
        self._poll.register(woken, select.POLLIN)
        wire.say(self.control, {"ready": 1})
        while True:
            message, fds = wire.receive(self.control)
            if not message:
                os._exit(0)
            if message == b"run":
                self._run(fds)

    def _run(self, fds: list[int]) -> None:
        """`fds`: the request, stdin, stdout, stderr; then cgroups to join."""
        request = marshal.loads(os.pread(fds[0], os.fstat(fds[0]).st_size, 0))
        plan = confine.Plan(kind=self.kind, filter=self.filter, **request["plan"])
        number, started = request["id"], time.monotonic()
        try:
            pid = os.fork()
        except OSError as error:
            wire.say(self.control, {"id": number, "failed": error})
            return
        finally:
            if os.getpid() == 1:
                for fd in fds:
                    os.close(fd)
        if pid == 0:
            self._become(request, plan, fds)
        ending = self._wait(pid, started)
        self._end_all()
        wire.say(self.control, {"id": number, **ending})

    def _become(self, request: dict[str, Any], plan: confine.Plan, fds: list[int]) -> NoReturn:
        made = cell.Cell(self.control, plan, is_single=True)
        try:
            made.prepare(fds[4:], request["env"])
        except BaseException as error:
            wire.say(self.control, {"id": request["id"], "failed": f"{type(error).__name__}: {error}"})
            os._exit(1)
        made.become(request, fds[1:4], self.control.fileno())

    def _wait(self, pid: int, started: float) -> dict[str, Any]:
        """Until the program has ended, by itself or because the launcher says so; orphans are buried meanwhile."""
        while True:
            for fd, _ in self._poll.poll():
                if fd != self._woken:
                    message, _ = wire.receive(self.control)
                    if not message:
                        os._exit(0)
                    kernel.kill_all()
                    continue
                try:
                    os.read(self._woken, 512)
                except BlockingIOError:
                    pass
                ended = -1
                while ended:
                    ended, status, usage = os.wait4(-1, os.WNOHANG)
                    if ended == pid:
                        return cell.ending_of(status, usage, time.monotonic() - started)

    def _end_all(self) -> None:
        """The next program begins when nothing of this one is left: then this process has no children."""
        while True:
            kernel.kill_all()
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return
