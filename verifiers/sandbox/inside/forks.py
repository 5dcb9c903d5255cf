"""`Forks`: lets the programs of a cell start processes and threads up to a number, without namespaces or privileges.

A seccomp filter has the kernel ask about every call that starts one, and the cell's first process answers. All that its
programs start descends from it, also when parents die, so it counts its descendants.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import time

from verifiers.sandbox.inside import kernel

_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_…
_QUESTION_BYTES = 80  # struct seccomp_notif; it begins with the question's number (64 bits) and the asker's thread (32)
_SET_MODE_FILTER, _NEW_LISTENER, _CONTINUE = 1, 8, 1
_ASK, _ALLOW = 0x7FC00000, 0x7FFF0000
# AUDIT_ARCH_…, the number of seccomp, and those of clone, fork and vfork; clone3 is refused by the other filter.
_CALLS = {"x86_64": (0xC000003E, 317, (56, 57, 58)), "aarch64": (0xC00000B7, 277, (220,))}
_SETTLED_S = 0.25  # after which a thread that was let start one, and has been running since, has done so


def listen() -> int:
    """From now on this process and all that descend from it ask; the file by which they are answered."""
    architecture, seccomp, numbers = _CALLS[os.uname().machine]
    code = [(0x20, 0, 0, 4), (0x15, 1, 0, architecture), (0x06, 0, 0, _ALLOW), (0x20, 0, 0, 0)]
    for number in numbers:
        code += [(0x15, 0, 1, number), (0x06, 0, 0, _ASK)]
    code.append((0x06, 0, 0, _ALLOW))
    program = b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
    text = ctypes.create_string_buffer(program, len(program))
    whole = struct.pack("@HP", len(code), ctypes.addressof(text))  # struct sock_fprog
    return kernel.syscall(seccomp, ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_NEW_LISTENER), whole)


def can_count() -> bool:
    """Whether that works here, found by trying in a child."""
    pid = os.fork()
    if pid == 0:
        try:
            kernel.no_new_privileges()
            listen()
            _children_of(os.getpid(), os.getpid())
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


class Forks:
    """Of one cell. `refused` counts the calls that failed, as they do when a limit of the kernel's is reached."""

    def __init__(self, most: int) -> None:
        self.refused = 0
        self._most = most
        self._known = most  # at least as many as there are; counted when it says that there is no room
        self._granted: dict[int, float] = {}  # when a thread was last let start one
        self._waiting: list[tuple[int, int, int]] = []

    @property
    def wait_ms(self) -> int | None:
        """How soon `retry` is to be called; `None` when that is not needed."""
        return 5 if self._waiting else None

    def hear(self, listener: int) -> None:
        question = bytearray(_QUESTION_BYTES)
        try:
            fcntl.ioctl(listener, _RECEIVE, question)
        except OSError:  # the asker has been killed
            return
        number, thread = struct.unpack_from("=QI", question)
        self._decide(listener, number, thread)

    def retry(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._decide(*one)

    def _decide(self, listener: int, number: int, thread: int) -> None:
        now = time.monotonic()
        if self._known >= self._most:
            self._granted.pop(thread, None)
            self._granted = {
                one: then for one, then in self._granted.items() if now < then + _SETTLED_S and _may_be_starting(one)
            }
            if self._granted:  # theirs may not be there to be counted yet
                self._waiting.append((listener, number, thread))
                return
            self._known = _count_below(os.getpid())
        may = self._known < self._most
        if may:
            self._known += 1
            self._granted[thread] = now
        else:
            self.refused += 1
        answer = struct.pack("=QqiI", number, 0, 0 if may else -errno.EAGAIN, _CONTINUE if may else 0)
        try:
            fcntl.ioctl(listener, _SEND, answer)
        except OSError:  # as above
            pass


def _may_be_starting(thread: int) -> bool:
    try:
        with open(f"/proc/{thread}/syscall", "rb") as file:
            number = file.read().split()[0]
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it is not for us to see
    return not number.isdigit() or int(number) in _CALLS[os.uname().machine][2]


def _count_below(root: int) -> int:
    """Threads of all that descend from `root`. None begins meanwhile: whoever wants to start one is waiting.

    What loses its parent meanwhile becomes a child of `root`, so that is looked at until it has no more to show.
    """
    threads = 0
    seen = {root}
    while new := _below(root) - seen:
        while new:
            pid = new.pop()
            seen.add(pid)
            try:
                tasks = os.listdir(f"/proc/{pid}/task")
            except OSError:
                continue
            threads += len(tasks)
            for task in tasks:
                new |= _children_of(pid, int(task)) - seen
    return threads


def _below(root: int) -> set[int]:
    found: set[int] = set()
    for task in os.listdir(f"/proc/{root}/task"):
        found |= _children_of(root, int(task))
    return found


def _children_of(pid: int, task: int) -> set[int]:
    try:
        with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
            return set(map(int, file.read().split()))
    except OSError:
        if pid == os.getpid():
            raise
        return set()  # it has ended
