"""`Cell`: the first process of one sandbox. It starts programs there, tells how they ended, and takes them all with it.

Over `control` come requests: `run`, with files sent along that are the request itself (marshalled) and the program's
stdin, stdout and stderr; or `kill` and a request's number. Answers are lines of a name and a value.
"""

from __future__ import annotations

import _socket
import fcntl
import marshal
import os
import select
import time

from verifiers.sandbox.inside import confine, files, forks, kernel, program, wire
from verifiers.sandbox.inside.kernel import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class Cell:
    def __init__(self, control: _socket.socket, plan: confine.Plan, is_single: bool) -> None:
        self.control = control
        self.plan = plan
        self.is_single = is_single  # ends with its first program
        self._user_namespace: int | None = None
        self._running: dict[int, tuple[int, float, int]] = {}  # pid → request id, start, forks refused before
        self._poll = select.poll()
        self._forks = forks.Forks(plan.processes)
        self._listeners: set[int] = set()

    def prepare(self, groups: list[int], env: dict[str, str]) -> None:
        """`groups` are open cgroup.procs files, which this process joins."""
        if self.plan.kind == "jail":
            confine.make_place(self.plan.work, self.plan.tmp, self.plan.network, self.plan.terminals)
        else:
            os.setsid()
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        self.settle(groups, env)
        if self.plan.kind == "jail" and not self.is_single:
            self._user_namespace = self._make_user_namespace()

    def settle(self, groups: list[int], env: dict[str, str]) -> None:
        """In the place that was made."""
        for fd in groups:
            os.write(fd, b"0")
            os.close(fd)
        os.environ.update(env)
        if self.plan.kind == "jail":
            confine.fit_place(self.plan)
        os.chdir(self.plan.work)

    def serve(self) -> NoReturn:
        """Until the launcher hangs up, or the single program has ended."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll.register(self.control.fileno(), select.POLLIN)
        self._poll.register(woken, select.POLLIN)
        if not self.is_single:
            self._say({"ready": 1})
        self._reap()  # of what ended before its signal could wake us
        while True:
            for fd, event in self._poll.poll(self._forks.wait_ms):
                if fd == woken:
                    os.read(woken, 512)
                    self._reap()
                elif fd in self._listeners:
                    self._answer(fd, event)
                elif not self._hear():
                    self._end()
            self._forks.retry()

    def _answer(self, listener: int, event: int) -> None:
        if event & select.POLLIN:
            self._forks.hear(listener)
        else:  # nobody is left who could ask
            self._poll.unregister(listener)
            self._listeners.discard(listener)
            os.close(listener)

    def start(self, request: dict[str, Any], streams: list[int]) -> None:
        """Says `full` when there are too many processes, `failed` when it could not be begun for another reason."""
        number = request["id"]
        told, teller = _socket.socketpair()
        refused = self._forks.refused
        try:
            pid = os.fork()
        except OSError as error:
            told.close()
            teller.close()
            self._say({"id": number, "full": str(error)})
            self._end_if_single()
            return
        if pid == 0:
            self.become(request, streams, teller.fileno())
        teller.close()
        failure = self._await_begin(told)
        told.close()
        if failure:
            self.control.send(failure)
            self._end_if_single()
        else:
            self._running[pid] = (number, time.monotonic(), refused)

    def _await_begin(self, told: _socket.socket) -> bytes:
        """Until the program has begun, or says why it cannot."""
        failure = b""
        while True:
            message, fds = wire.receive(told)
            if not message:
                return failure
            if fds:
                self._poll.register(fds[0], select.POLLIN)
                self._listeners.add(fds[0])
            else:
                failure += message

    def _hear(self) -> bool:
        message, fds = wire.receive(self.control)
        if not message:
            return False
        if message.startswith(b"run "):
            self.start(marshal.loads(read_whole(fds.pop(0))), fds)
        else:
            self._kill(int(message.removeprefix(b"kill ")))
        for fd in fds:
            os.close(fd)
        return True

    def become(self, request: dict[str, Any], streams: list[int], teller: int) -> NoReturn:
        """In the child: turns into the program. Closing `teller` without a word means that it has begun."""
        try:
            os.setsid()
            _as_streams([*streams, teller])
            confine.fresh_signals()
            os.environ.update(request.get("env") or {})
            confine.become_user(self.plan)
            if self.plan.kind == "jail":
                if self._user_namespace is None:
                    confine.enter_user_namespace(self.plan)
                else:
                    kernel.setns(self._user_namespace, kernel.NEWUSER)
            os.closerange(4, 1 << 16)
            os.set_inheritable(3, False)
            confine.be_first_to_go()
            confine.limit(self.plan, request.get("cpu_s"))
            confine.lock(self.plan)
            if self.plan.counted:
                self._be_counted()
        except BaseException as error:
            os.write(3, wire.text({"id": request["id"], "failed": f"{type(error).__name__}: {error}"}))
            os._exit(1)
        if request["do"] == "exec":
            _execute(request["argv"], os.path.join(self.plan.work, request.get("cwd") or ""))
        os.close(3)
        if request["do"] == "program":
            source = request["source"].encode("utf-8", "surrogateescape")
            for path, data in request["files"].items():
                files.write(os.path.join(self.plan.work, path), data)
            program.run_as_main(source, os.path.join(self.plan.tmp, "main.py"), self.plan.work)
        files.do(request, self.plan.work)
        os._exit(0)

    def _be_counted(self) -> None:
        listener = forks.listen()
        teller = _socket.socket(fileno=3)
        wire.say(teller, {"listener": 1}, [listener])
        teller.detach()
        os.close(listener)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            started = self._running.pop(pid, None)
            if started is None:
                continue  # an orphan
            number, since, refused = started
            ending = ending_of(status, usage) | {"wall_s": time.monotonic() - since}
            ending["files_full"] = int(self._are_files_full())
            ending["refused_forks"] = self._forks.refused - refused
            self._say({"id": number, **ending})
            self._end_if_single()

    def _end_if_single(self) -> None:
        if self.is_single:
            self._end()

    def _are_files_full(self) -> bool:
        if self.plan.kind != "jail":
            return False
        room = os.statvfs("/cell")
        return room.f_bavail == 0 or room.f_favail == 0

    def _kill(self, number: int) -> None:
        for pid, (running, _, _) in list(self._running.items()):
            if running == number:
                self._kill_tree(pid)

    def _kill_tree(self, root: int) -> None:
        for _ in range(20):
            found = confine.processes_of(root, os.getpid())
            for pid in found:
                _kill_one(pid)
            if not found:
                return
            time.sleep(0.001)

    def _end(self) -> NoReturn:
        """In a jail the kernel ends every other process with this one, else that is done here."""
        if self.plan.kind != "jail":
            for pid in self._running:
                _kill_one(pid, group=True)
            self._end_descendants()
        os._exit(0)

    def _end_descendants(self) -> None:
        """All come to this process when their parent dies; ends when there is none left."""
        while True:
            for pid in confine.processes_of(os.getpid(), os.getpid()):
                _kill_one(pid)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.001)

    def _make_user_namespace(self) -> int:
        ready, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                confine.become_user(self.plan)
                confine.enter_user_namespace(self.plan)
                os.write(told, b"1")
                signal.pause()
            finally:
                os._exit(1)
        os.close(told)
        try:
            if not os.read(ready, 1):
                raise OSError("the cell's user namespace could not be made")
            fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)  # out of the way of a program's streams
            os.close(fd)
            return high
        finally:
            os.close(ready)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _say(self, message: dict[str, Any]) -> None:
        if not wire.say(self.control, message):
            self._end()


def ending_of(status: int, usage: Any) -> dict[str, Any]:
    cpu_s = usage.ru_utime + usage.ru_stime
    return {"code": os.waitstatus_to_exitcode(status), "cpu_s": cpu_s, "peak_kb": usage.ru_maxrss}


def read_whole(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def _as_streams(streams: list[int]) -> None:
    """Makes them descriptors 0, 1, 2 …, none of which may be among them already."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in streams]
    for target, fd in enumerate(high):
        os.dup2(fd, target)


def _kill_one(pid: int, group: bool = False) -> None:
    try:
        if group:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _execute(argv: list[str], folder: str) -> NoReturn:
    name = folder
    try:
        os.chdir(folder)
        name = argv[0]
        os.execvpe(name, argv, os.environ)
    except OSError as error:
        os.write(2, f"{name}: {error.strerror}\n".encode())
        os._exit(126 if isinstance(error, PermissionError) else 127)
