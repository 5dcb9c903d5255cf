"""System calls that the standard library lacks, by way of libc. Linux only, except for being imported.

The modules here import as little as they can: a cold start pays for each. So `_socket` and `_signal` stand for `socket`
and `signal`, which load enum and re, and `typing` is for the type checker alone.
"""

from __future__ import annotations

import ctypes
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as signal
else:
    import _signal as signal

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 32, 4096, 16384, 1 << 18

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38
_SECCOMP_MODE_FILTER = 2
_CAP_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)

_fork = ctypes.PyDLL(None).fork  # it keeps the interpreter's lock, which the child needs

_CLONE_VM = 0x100
_idle_stack = ctypes.create_string_buffer(1 << 14)
_top_of_stack = (ctypes.addressof(_idle_stack) + (1 << 14)) & ~15

if hasattr(_libc, "unshare"):  # looked up here rather than in each process that is forked
    for _name in ("unshare", "setns", "mount", "prctl", "capset", "syscall"):
        getattr(_libc, _name)


def _call(name: str, *arguments: object) -> int:
    result = getattr(_libc, name)(*arguments)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def fork() -> int:
    """Without what the interpreter does in a child: for one that only forks again, which this makes cheaper."""
    return _fork()


def start_idler() -> int:
    """A process that does nothing, for ever; its pid. It shares this one's memory, and so costs next to none.

    It runs libc's `pause` on a stack of its own, of which there is one: a second may begin once the first has ended.
    """
    pid = _libc.clone(_libc.pause, ctypes.c_void_p(_top_of_stack), _CLONE_VM | signal.SIGCHLD, None)
    if pid == -1:
        raise OSError(ctypes.get_errno(), f"clone: {os.strerror(ctypes.get_errno())}")
    return pid


def unshare(flags: int) -> None:
    _call("unshare", ctypes.c_int(flags))


def setns(fd: int, kind: int) -> None:
    _call("setns", ctypes.c_int(fd), ctypes.c_int(kind))


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind)]
    _call("mount", *words, ctypes.c_ulong(flags), data.encode() if data is not None else None)


def prctl(option: int, value: int = 0, third: int = 0) -> int:
    zero = ctypes.c_ulong(0)
    return _call("prctl", option, ctypes.c_ulong(value), ctypes.c_ulong(third), zero, zero)


def drop_capabilities() -> None:
    """Together with `no_new_privileges`, which keeps any exec from giving one back."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAP_VERSION_3, 0))
    _call("capset", header, ctypes.create_string_buffer(24))


def no_new_privileges() -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def filter_calls(program: bytes) -> None:
    """Installs a seccomp filter, for good: `program` is raw BPF, eight bytes an instruction."""
    text = ctypes.create_string_buffer(program, len(program))
    whole = struct.pack("@HP", len(program) // 8, ctypes.addressof(text))  # struct sock_fprog
    _call("prctl", PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), whole, 0, 0)


def syscall(number: int, *arguments: object) -> int:
    return _call("syscall", ctypes.c_long(number), *arguments)
