"""`GradingServer` and its `GradingWorker`s: the processes that grade, seen from the process that gives them work.

The server is started with an interpreter of its own (a fork of a process with threads can hang) and with nothing of our
environment, since it reads what a model wrote. A line of JSON to a worker is a task, a line from it the reply.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from verifiers.errors import RewardFault

START_S = 60.0  # importing sympy takes seconds on a busy machine
FORK_S = 10.0
LOOK_S = 0.2  # how often it is looked whether this machine stands still meanwhile
OWN_DOING = 0.25  # of its CPU time: a task that used so much is no short one that was kept from running
_KEPT_VARIABLES = ("PATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one task may use."""

    cpu_s: float = 2.0
    wall_s: float = 5.0
    memory_bytes: int = 2 << 30
    tasks: int = 5_000  # after which a worker is replaced: libraries leak


class LimitHit(Exception):
    """The task used up its time or memory, or brought its worker down.

    `is_certain`: by a measure that a busy or broken machine cannot change (CPU time, memory, nesting).
    """

    def __init__(self, message: str, is_certain: bool = False, is_of_memory: bool = False) -> None:
        super().__init__(message)
        self.is_certain = is_certain
        self.is_of_memory = is_of_memory


class GradingServer:
    """Starts one process that loads the grader, on first use, and has it fork workers."""

    def __init__(self, grader: str, limits: Limits) -> None:
        self.grader = grader
        self.limits = limits
        self._lock = threading.Lock()  # guards the process and the turns on its control socket
        self._process: subprocess.Popen[bytes] | None = None
        self._control: _Lines | None = None
        self._is_closed = False

    def fork(self) -> GradingWorker:
        """A worker that has graded the known case. Raises RewardFault when there is none to be had."""
        ours, theirs = socket.socketpair()
        try:
            with self._lock:
                pid = self._forked(theirs)
        except (OSError, RewardFault) as error:
            ours.close()
            raise RewardFault(f"a grading worker did not start: {error}") from None
        finally:
            theirs.close()
        worker = GradingWorker(self, pid, ours)
        try:
            worker.check_canary()
        except LimitHit as hit:
            worker.kill()
            raise RewardFault(f"a grading worker failed on a known simple case: {hit}") from None
        return worker

    def reap(self, pid: int) -> int | None:
        """The exit code of a worker that is dead or dying; `None` when the server is dead too."""
        with self._lock:
            try:
                return self._answer(b"reap%d" % pid).get("code")
            except (OSError, RewardFault):
                return None

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._end()

    def _forked(self, theirs: socket.socket) -> int:
        if self._process is None or self._process.poll() is not None:
            self._start()
        return self._answer(b"fork", [theirs.fileno()])["pid"]

    def _answer(self, request: bytes, sockets: list[int] | None = None) -> dict[str, Any]:
        if self._control is None:
            raise RewardFault("the grading server is not running")
        socket.send_fds(self._control.socket, [request], sockets or [])
        line = self._control.next(time.monotonic() + FORK_S)
        if not line:  # out of step or gone: the next request starts another one
            self._end()
            raise RewardFault("the grading server does not answer")
        return json.loads(line)

    def _start(self) -> None:
        self._end()
        if self._is_closed:
            raise RewardFault("the grading pool is closed")
        ours, theirs = socket.socketpair()
        arguments = [str(theirs.fileno()), self.grader, str(self.limits.cpu_s), str(self.limits.memory_bytes)]
        program = f"import sys; sys.path[:] = {sys.path!r}; from verifiers.rubrics.grading_worker import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C in the terminal is for the run, which then closes its workers
        )
        theirs.close()
        self._control = _Lines(ours)
        line = self._control.next(time.monotonic() + START_S)
        reply = json.loads(line) if line else {}
        if not reply.get("ready"):
            self._end()
            raise RewardFault(reply.get("error") or f"{self.grader} was not loaded within {START_S:.0f} s")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._control is not None:
            self._control.socket.close()
        self._process = self._control = None


class GradingWorker:
    """One forked process. Its pid stays its own until `reap`, so that a kill never meets a stranger."""

    def __init__(self, server: GradingServer, pid: int, tasks: socket.socket) -> None:
        self.server = server
        self.pid = pid
        self.tasks_done = 0
        self.is_dead = False
        self._lines = _Lines(tasks)

    def grade(self, task: dict[str, Any]) -> Any:
        """What the grader returned. Raises LimitHit (the worker is gone), or RewardFault."""
        limits = self.server.limits
        try:
            self._lines.socket.sendall(json.dumps(task).encode() + b"\n")
            line = self._reply(limits.wall_s)
        except OSError:
            line = b""
        if line is None:
            self.kill()
            raise LimitHit(f"grading took more than {limits.wall_s:g} s")
        if not line:
            raise self._ending()
        reply = json.loads(line)
        if "limit" in reply:
            self.kill()
            raise LimitHit(f"grading {reply['limit']}", is_certain=True, is_of_memory="memory" in reply["limit"])
        if "error" in reply:
            raise RewardFault(f"the grader {self.server.grader} raised {reply['error']}")
        self.tasks_done += 1
        return reply["value"]

    @property
    def is_fresh(self) -> bool:
        """Whether it has graded nothing but the canary."""
        return self.tasks_done <= 1

    def _reply(self, wall_s: float) -> bytes | None:
        """The next line, within `wall_s` and what the worker spent of it waiting for a core, at most as much again.

        Time in which the machine stood still, as one that was paused, is nobody's: the worker may need a moment more.
        """
        began, (ran_before_s, waited_before_s) = time.monotonic(), self._ran_and_waited()
        deadline, stood_still_s = began + wall_s, 0.0
        while (line := self._lines.next(wanted := min(deadline, time.monotonic() + LOOK_S))) is None:
            stood_still_s += max(0.0, time.monotonic() - wanted)
            if wanted < deadline:
                continue
            ran_s, waited_s = self._ran_and_waited()
            ran_s, waited_s = ran_s - ran_before_s, waited_s - waited_before_s
            if waited_s >= wall_s and ran_s < self.server.limits.cpu_s * OWN_DOING:
                self.kill()
                raise RewardFault(f"the machine is too busy: a grading task waited {waited_s:.1f} s for a core")
            deadline = began + wall_s + min(waited_s, wall_s) + stood_still_s
            if deadline <= time.monotonic():
                return None
        return line

    def _ran_and_waited(self) -> tuple[float, float]:
        """How long the worker ran, and was ready to run and did not; 0 where the system does not say."""
        try:
            with open(f"/proc/{self.pid}/schedstat", "rb") as file:
                ran_ns, waited_ns = file.read().split()[:2]
            return int(ran_ns) / 1e9, int(waited_ns) / 1e9
        except (OSError, ValueError):
            return 0.0, 0.0

    def check_canary(self) -> None:
        """Raises LimitHit when a known simple case takes too long or comes out wrong."""
        task, expected = importlib.import_module(self.server.grader).CANARY
        value = self.grade(task)
        if value != expected:
            raise LimitHit(f"it came out as {value}")

    def kill(self) -> int | None:
        """Ends the worker; its exit code."""
        if self.is_dead:
            return None
        self.interrupt()
        self.is_dead = True
        self._lines.socket.close()
        return self.server.reap(self.pid)

    def interrupt(self) -> None:
        if not self.is_dead:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:  # reaped by the system after its server
                pass

    def _ending(self) -> LimitHit:
        code = self.kill()  # it is dead already: the code says of what
        if code == -signal.SIGPROF:
            return LimitHit(f"grading took more than {self.server.limits.cpu_s:g} s of CPU time", is_certain=True)
        return LimitHit("grading ended its worker" + (f" ({signal.Signals(-code).name})" if code and code < 0 else ""))


class _Lines:
    """Lines from a socket, with a deadline."""

    def __init__(self, source: socket.socket) -> None:
        self.socket = source
        self._read = b""

    def next(self, deadline: float) -> bytes | None:
        """The next line; empty when the other end is closed, `None` when the deadline has passed."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        while b"\n" not in self._read:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poll.poll(max(1, round(1000 * left_s))):
                return None
            data = self.socket.recv(65536)
            if not data:
                return b""
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line
