"""`Cgroups`: limits on memory and processes of a whole tree, where the kernel's control groups can be written.

Versions 1 and 2 and their mixture. Whether they can be used is found by making a group and moving a process into it.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from verifiers.sandbox.lease import PREFIX

_WANTED = ("memory", "pids")


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder in which groups can be made, for some of the controllers."""

    folder: Path
    is_v2: bool
    controllers: tuple[str, ...]


class Cgroups:
    """The groups of one owner, each a folder below one folder of its own. Raises OSError when they cannot be made."""

    def __init__(self, name: str) -> None:
        self.name = PREFIX + name
        self._bases: list[_Place] = []
        self._number = 0
        try:
            for place in _places():
                self._bases.append(_base(place, self.name))
        except OSError:
            self.close()
            raise
        self.version = "v2" if all(base.is_v2 for base in self._bases) else "v1"

    @property
    def folders(self) -> list[str]:
        return [str(base.folder) for base in self._bases]

    def make(self, memory_bytes: int, processes: int) -> Group:
        self._number += 1
        return Group(self._bases, str(self._number), memory_bytes, processes)

    def close(self) -> None:
        for base in self._bases:
            remove_tree(base.folder)
        self._bases.clear()


class Group:
    """One cell's group. Made for every run, so in plain strings: paths as objects cost more than the calls."""

    def __init__(self, bases: list[_Place], name: str, memory_bytes: int, processes: int) -> None:
        self._folders: list[str] = []  # those that are there still
        self._files: list[str] = []  # by which a process joins
        self._memory = self._pids = ""
        try:
            for base in bases:
                folder = f"{base.folder}/{name}"
                os.mkdir(folder)
                self._folders.append(folder)
                self._files.append(f"{folder}/{'cgroup.procs' if base.is_v2 else 'tasks'}")
                if "memory" in base.controllers:
                    self._memory = folder
                    _limit_memory(folder, base.is_v2, memory_bytes)
                if "pids" in base.controllers:
                    self._pids = folder
                    _write(f"{folder}/pids.max", str(processes))
        except OSError:
            self.remove()
            raise

    def open(self) -> list[int]:
        """Files by which a process with one thread joins: it writes 0.

        In version 1 that is `tasks`, which the kernel lets the writer itself into without stopping all forks first;
        that takes some 10 ms.
        """
        return [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in self._files]

    def oom_kills(self) -> int:
        for name in ("memory.oom_control", "memory.events"):  # versions 1 and 2
            found = _number_in(f"{self._memory}/{name}", "oom_kill")
            if found is not None:
                return found
        return 0

    def refused_forks(self) -> int:
        return _number_in(f"{self._pids}/pids.events", "max") or 0

    def peak_memory(self) -> int | None:
        text = _read(f"{self._memory}/memory.max_usage_in_bytes") or _read(f"{self._memory}/memory.peak")
        return int(text) if text else None

    def remove(self) -> bool:
        """False while a process is still in it."""
        while self._folders:
            try:
                os.rmdir(self._folders[-1])
            except FileNotFoundError:
                pass
            except OSError:
                return False
            self._folders.pop()
        return True


def remove_tree(folder: Path, patience_s: float = 2.0) -> bool:
    """Ends every process in the group and those below it, and removes them. Only for groups that we made."""
    if not any(part.startswith(PREFIX) for part in folder.parts):
        raise ValueError(f"{folder} is no group of ours")
    deadline = time.monotonic() + patience_s
    while folder.is_dir():
        for path, _, _ in os.walk(folder, topdown=False):
            _kill_all(Path(path))
            try:
                os.rmdir(path)
            except OSError:
                pass
        if time.monotonic() > deadline:
            return False
        if folder.is_dir():
            time.sleep(0.005)
    return True


def _kill_all(folder: Path) -> None:
    for word in _read(folder / "cgroup.procs").split():
        try:
            os.kill(int(word), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def _places() -> list[_Place]:
    """Where this process's own groups are, one place for each hierarchy that has a controller we want."""
    own: dict[str, str] = {}  # controller → path in its hierarchy; "" for version 2
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            own[name] = path
    found: list[_Place] = []
    missing = set(_WANTED)
    for root, mount_point, kind, options in _mounts():
        names = ("",) if kind == "cgroup2" else tuple(sorted(missing & set(options.split(","))))
        if not names or names[0] not in own:
            continue
        folder = Path(mount_point) / os.path.relpath(own[names[0]], root)
        if kind == "cgroup":
            found.append(_Place(folder, False, names))
            missing -= set(names)
        else:
            here = missing & set(_read(folder / "cgroup.controllers").split())
            if here:
                found.append(_Place(folder, True, tuple(sorted(here))))
                missing -= here
    if missing:
        raise OSError(f"no control group for {' and '.join(sorted(missing))} is mounted here")
    return found


def _mounts() -> list[tuple[str, str, str, str]]:
    """(root, mount point, cgroup or cgroup2, options) of each hierarchy, version 1 first."""
    found = []
    for line in _read(Path("/proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ")[:3]
        if kind in ("cgroup", "cgroup2"):
            found.append((before.split(" ")[3], before.split(" ")[4], kind, options))
    return sorted(found, key=lambda mount: mount[2])


def _base(place: _Place, name: str) -> _Place:
    """Makes the owner's folder, in the nearest group that lets us."""
    reason: OSError | None = None
    folder = place.folder
    while True:
        made = folder / name
        try:
            return _try_base(made, place)
        except OSError as error:
            reason = reason or error
            remove_tree(made)
        if not place.is_v2 or not (folder.parent / "cgroup.procs").exists():
            raise reason
        folder = folder.parent  # version 2 gives controllers only to groups whose parent holds no process


def _try_base(made: Path, place: _Place) -> _Place:
    os.mkdir(made)
    if place.is_v2:
        _write(made / "cgroup.subtree_control", " ".join(f"+{name}" for name in place.controllers))
    base = _Place(made, place.is_v2, place.controllers)
    trial = Group([base], "trial", 1 << 28, 16)
    fds = trial.open()
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "echo 0 >&3"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, fds[0], 3)])
    _, status = os.waitpid(pid, 0)
    for fd in fds:
        os.close(fd)
    deadline = time.monotonic() + 1
    while not trial.remove() and time.monotonic() < deadline:
        time.sleep(0.002)
    if status != 0:
        raise PermissionError(f"no process can be moved into {made}")
    return base


def _limit_memory(folder: str, is_v2: bool, size_bytes: int) -> None:
    _write(f"{folder}/{'memory.max' if is_v2 else 'memory.limit_in_bytes'}", str(size_bytes))
    swap = f"{folder}/{'memory.swap.max' if is_v2 else 'memory.memsw.limit_in_bytes'}"
    if os.path.exists(swap):
        _write(swap, "0" if is_v2 else str(size_bytes))


def _number_in(path: str, key: str) -> int | None:
    for line in _read(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return None


def _read(path: str | Path) -> str:
    """Nothing, when it is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        found = b""
        while data := os.read(fd, 65536):
            found += data
        return found.decode()
    except OSError:
        return ""
    finally:
        os.close(fd)


def _write(path: str | Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
