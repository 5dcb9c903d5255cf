"""What a cell's processes may see and do: namespaces, files of its own, limits, and no way back.

`Plan` is what the launcher asks for, one for each cell. Two kinds of confinement: `jail` (namespaces; this process has
every capability over those of its jail, and none over the host) and `bare` (Landlock alone). `none` is no confinement.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import resource
import struct

from verifiers.sandbox.inside import kernel, landlock
from verifiers.sandbox.inside.kernel import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USER = 1000  # what a program in a jail is called by itself, whoever it is outside
_FILES_PER_MB = 64


class Plan:
    def __init__(
        self,
        *,
        kind: str,  # jail, bare or none
        work: str,  # the working folder
        tmp: str,
        uid: int | None,  # whom to become; None: whoever this process is
        file_bytes: int,
        processes: int,
        counted: bool,  # bare: the cell's first process counts them; else the kernel does, by user
        memory_bytes: int | None,  # for each process; None: a cgroup watches over all of them
        network: bool,
        terminals: bool,  # a devpts of its own
        readable: list[str],  # bare: what may be read
        filter: bytes,  # seccomp, as raw BPF
    ) -> None:
        self.kind, self.work, self.tmp, self.uid = kind, work, tmp, uid
        self.file_bytes, self.memory_bytes = file_bytes, memory_bytes
        self.processes, self.counted = processes, counted
        self.network, self.terminals, self.readable, self.filter = network, terminals, readable, filter


def make_place(work: str, tmp: str, network: bool, terminals: bool) -> None:
    """Gives this process namespaces and files of its own, besides those of its jail. Only for a jail."""
    net = 0 if network else kernel.NEWNET
    kernel.unshare(kernel.NEWNS | kernel.NEWIPC | kernel.NEWUTS | net)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("cell", "/cell", "tmpfs", _ON_CELL, _room_for(1 << 20) + ",mode=0755")
    for name, target, mode in (("work", work, 0o755), ("tmp", tmp, 0o1777), ("shm", "/dev/shm", 0o1777)):
        path = f"/cell/{name}"
        os.mkdir(path)
        os.chmod(path, mode)
        kernel.mount(path, target, None, kernel.MS_BIND)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    if terminals:
        kernel.mount("devpts", "/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, "ptmxmode=0666,mode=0620")
    else:
        kernel.mount("/cell/shm", "/dev/pts", None, kernel.MS_BIND)
    if not network:
        _bring_up_loopback()


def fit_place(plan: Plan) -> None:
    """To the size that is asked for, and its user."""
    kernel.mount("cell", "/cell", None, kernel.MS_REMOUNT | _ON_CELL, _room_for(plan.file_bytes))
    if plan.uid is not None:
        os.chown("/cell/work", plan.uid, plan.uid)


_ON_CELL = kernel.MS_NOSUID | kernel.MS_NODEV


def _room_for(file_bytes: int) -> str:
    return f"size={file_bytes},nr_inodes={max(256, file_bytes // (1 << 20) * _FILES_PER_MB)}"


def _bring_up_loopback() -> None:
    handle = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(handle.fileno(), 0x8914, struct.pack("16sH22x", b"lo", 1 | 64))  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING
    handle.close()


def become_user(plan: Plan) -> None:
    """Gives up this process's user for the cell's, and with that every power over other processes."""
    if plan.uid is not None:
        os.setgroups([])
        os.setresgid(plan.uid, plan.uid, plan.uid)
        os.setresuid(plan.uid, plan.uid, plan.uid)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # else /proc/self belongs to root


def enter_user_namespace(plan: Plan) -> None:
    """A new one, in which this process is `USER`. It counts the cell's processes apart from all others."""
    uid, gid = os.getuid(), os.getgid()  # before: afterwards they are nobody's until the maps are written
    kernel.unshare(kernel.NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{USER} {uid} 1")
    _write("/proc/self/gid_map", f"{USER} {gid} 1")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def limit(plan: Plan, cpu_s: float | None) -> None:
    processes = plan.processes
    if plan.kind != "jail" and plan.uid is None:  # the kernel counts all of this user's, wherever they are
        processes += _threads_of_user(os.getuid())
    limits = [("RLIMIT_CORE", 0), ("RLIMIT_FSIZE", plan.file_bytes)]
    if not plan.counted:
        limits.append(("RLIMIT_NPROC", processes))
    if plan.memory_bytes is not None:
        limits += [("RLIMIT_DATA", plan.memory_bytes), ("RLIMIT_AS", plan.memory_bytes + (256 << 20))]
    for name, value in limits:
        kind = getattr(resource, name, None)
        if kind is not None:
            _, hard = resource.getrlimit(kind)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))
    if cpu_s is not None:  # SIGXCPU, which tells of what it died; a second later SIGKILL, for those that ignore it
        seconds = max(1, -int(-cpu_s // 1))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def _threads_of_user(uid: int) -> int:
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                count += os.stat(f"/proc/{name}/task").st_nlink - 2
        except OSError:
            continue
    return count


def lock(plan: Plan) -> None:
    """The last step: after it nothing can be taken back."""
    if plan.kind == "none":
        return
    kernel.no_new_privileges()
    kernel.drop_capabilities()
    if plan.kind == "bare":
        landlock.restrict(plan.readable, [plan.work, plan.tmp, "/dev/null"])
    kernel.filter_calls(plan.filter)


def be_first_to_go() -> None:
    """When memory runs out in the cell, its first process must live to tell."""
    try:
        _write("/proc/self/oom_score_adj", "1000")
    except OSError:
        pass


def fresh_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def processes_of(root: int, own: int) -> list[int]:
    """The processes that descend from `root`, or are of its session, as /proc shows them; never `own`.

    Parents come before children, so that none lives to tell of a child that was killed.
    """
    table: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields: list[Any] = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] != b"Z":
                table[int(name)] = (int(fields[1]), int(fields[3]))
    found = [root] if root in table else []
    newest = {root}
    while newest:
        newest = {pid for pid, (parent, _) in table.items() if parent in newest} - {*found, own}
        found += newest
    found += [pid for pid, (_, session) in table.items() if session == root and pid not in found]
    return [pid for pid in found if pid != own]
