"""`Slot`: runs programs one after another, each in namespaces of its own, which are made while nothing is asked for.

It reads nothing of a program: the request goes on to the process that becomes it. Everything that it makes lives below
its own pid namespace, so that its end is the end of all.
"""

from __future__ import annotations

import _socket
import marshal
import os
import select
import time

from verifiers.sandbox.inside import cell, confine, kernel, wire
from verifiers.sandbox.inside.kernel import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class Slot:
    """Only for a jail: it is the first process of a pid namespace."""

    def __init__(self, control: _socket.socket, settings: dict[str, Any]) -> None:
        if os.getpid() != 1 or settings["kind"] != "jail":
            raise OSError("a slot is the first process of a pid namespace")
        self.control = control
        self.settings = settings
        self.own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def serve(self) -> NoReturn:
        """Until the launcher hangs up; a cold one until its first program has ended."""
        wire.say(self.control, {"ready": 1})
        while True:
            room = Room(self)
            message, fds = wire.receive(self.control)
            if not message:
                os._exit(0)
            if message.startswith(b"run "):  # else it is the kill of a program that has ended
                if room.has_died():
                    room.close()
                    room = Room(self)
                self._run(room, message.removeprefix(b"run "), fds)
            room.close()
            if not self.settings["warm"]:
                os._exit(0)

    def _run(self, room: Room, number: bytes, fds: list[int]) -> None:
        """`fds`: the request, stdin, stdout, stderr; then cgroups to join."""
        started = time.monotonic()
        room.start(fds)
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        if room.handle >= 0:
            poll.register(room.handle, select.POLLIN)
        while room.is_alive:
            for fd, _ in poll.poll():
                if fd == room.handle:
                    room.bury()
                    continue
                message, _ = wire.receive(self.control)
                if not message:
                    os._exit(0)
                room.kill()
        room.close()  # the next program begins when nothing of this one is left
        self.control.send(b"id %s\n%s\nwall_s %.6f" % (number, room.ending, time.monotonic() - started))


class Room:
    """A pid namespace for one program, and the process in it that becomes the program once it is asked for."""

    def __init__(self, slot: Slot) -> None:
        self.ending = b"failed its namespaces ended before it began"  # what the launcher is told
        self.handle = self._first = self._program = -1
        self._link, far = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            self._make(slot, far)
        except OSError as error:
            self.ending = wire.text({"failed": f"its namespaces could not be made: {error}"})
        finally:
            far.close()

    def _make(self, slot: Slot, far: _socket.socket) -> None:
        kernel.unshare(kernel.NEWPID)
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so the first process reaps all that become its children
            self._first = kernel.start_idler()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._program = os.fork()
            if self._program == 0:
                _be_program(far, slot)
        finally:
            if self._program != 0:
                kernel.setns(slot.own_pids, kernel.NEWPID)
        self.handle = os.pidfd_open(self._program)

    @property
    def is_alive(self) -> bool:
        return self._program > 0

    def has_died(self) -> bool:
        """Before it was asked for anything: somebody has killed it, and that is no program's end."""
        if self.is_alive and os.waitpid(self._program, os.WNOHANG)[0]:
            self._program = -1
        return not self.is_alive

    def start(self, fds: list[int]) -> None:
        wire.say(self._link, {"run": 1}, fds)
        for fd in fds:
            os.close(fd)

    def bury(self) -> None:
        _, status, usage = os.wait4(self._program, 0)
        self._program = -1
        self.ending = wire.text(cell.ending_of(status, usage))

    def kill(self) -> None:
        if self.is_alive:
            os.kill(self._program, signal.SIGKILL)

    def close(self) -> None:
        """Nothing of it is left afterwards: the kernel lets the first process go once all others are gone."""
        if self._first > 0:
            os.kill(self._first, signal.SIGKILL)
            os.waitpid(self._first, 0)
        if self.is_alive:
            os.waitpid(self._program, 0)
        if self.handle >= 0:
            self.ending = wire.receive(self._link)[0] or self.ending  # why it could not become the program
            os.close(self.handle)
        self._link.close()
        self.handle = self._first = self._program = -1


def _be_program(link: _socket.socket, slot: Slot) -> NoReturn:
    """Makes its place, waits to be told which program it is, and becomes that."""
    try:
        confine.make_place("/work", "/tmp", slot.settings["network"], terminals=False)
        message, fds = wire.receive(link)
        if not message:
            os._exit(0)
        request = marshal.loads(cell.read_whole(fds[0]))
        plan = confine.Plan(kind="jail", filter=slot.settings["filter"], **request["plan"])
        made = cell.Cell(link, plan, is_single=True)
        made.settle(fds[4:], request["env"])
        made.become(request, fds[1:4], link.fileno())
    except BaseException as error:
        wire.say(link, {"failed": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(1)
