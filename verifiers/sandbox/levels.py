"""`Level`: how well this machine can confine a program, found by trying."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verifiers.errors import SetupError, one_line
from verifiers.sandbox.cgroup import Cgroups, remove_tree
from verifiers.sandbox.jail import UID_BASE, Jail, JailKind, interpreter, readable_paths
from verifiers.sandbox.lease import PREFIX, Lease, reap, remove_folder
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.packages import Wanted, all_folders, folder_of_links, places_of
from verifiers.sandbox.sandbox import WORK, Capabilities, Enforcement, Limit

_MB = 1 << 20
_KIND_OF = {3: "jail", 2: "jail", 1: "bare", 0: "none"}
LAYERS = {
    3: "namespaces, seccomp, limits of each process, control group",
    2: "namespaces, seccomp, limits of each process",
    1: "Landlock, seccomp, limits of each process",
    0: "limits of each process; no protection from intent",
}


@dataclass(slots=True)
class Level:
    number: int
    kind: JailKind
    lease: Lease
    folder: str  # of this owner, for what must lie on the disk
    cgroups: Cgroups | None = None
    gives_users: bool = False  # each cell's programs are a user of their own
    counts: bool = False  # level 1: processes are counted without namespaces
    notes: list[str] = field(default_factory=list)
    _kinds: dict[tuple[bool, Wanted], JailKind] = field(default_factory=dict)

    def kind_for(self, network: bool, packages: Wanted) -> JailKind:
        """Raises SetupError for a package that is not here, or that programs could not read."""
        found = self._kinds.get((network, packages))
        if found is None:
            if packages and self.number < 2 and self.gives_users:
                _refuse_private(all_folders())
            places = () if isinstance(packages, bool) else places_of(packages)
            folder = self._links_to(places) if places and self.number < 2 else ""
            found = replace(self.kind, network=network, packages=packages, package_folder=folder)
            self._kinds[network, packages] = found
        return found

    def _links_to(self, places: Iterable[tuple[str, str]]) -> str:
        folder = tempfile.mkdtemp(prefix="packages-", dir=self.folder)
        os.chmod(folder, 0o755)
        folder_of_links(places, folder)
        return folder

    def readable_for(self, kind: JailKind) -> list[str]:
        """What programs must read to import the packages."""
        if isinstance(kind.packages, bool):
            return all_folders() if kind.packages else []
        return [kind.package_folder, *(place for place, _ in places_of(kind.packages))]

    @property
    def capabilities(self) -> Capabilities:
        tree: Enforcement = "enforced" if self.cgroups is not None else "best effort"
        limits: dict[Limit, Enforcement] = {
            "wall": "enforced",
            "cpu": "best effort",  # of each process
            "memory": tree,
            "output": "enforced",
            "processes": "enforced" if self.number >= 2 or self.counts else "best effort" if self._is_counted else "no",
            "files": "enforced" if self.number >= 2 else "best effort",
        }
        return Capabilities(
            backend="local",
            level=f"{self.number} ({LAYERS[self.number]})",
            enforced=limits,
            networks=("none", "full") if self.number >= 2 else ("none",) if self.number else ("full",),
            languages=("python", "sh"),
            notes=tuple(self.notes),
        )

    @property
    def _is_counted(self) -> bool:
        """The kernel counts the processes of every user but root."""
        return self.gives_users or os.getuid() != 0

    def owner_of(self, user: int) -> int | None:
        return UID_BASE + user if self.gives_users else None

    def plan(
        self,
        limits: SandboxLimits,
        folder: str | None,
        user: int,
        *,
        has_group: bool,
        terminals: bool,
        extra: Sequence[str] = (),
    ) -> dict[str, Any]:
        """What the cell is told; see `inside/confine.py`. `extra` may be read besides what every program may."""
        uid = None if not self.gives_users else user if self.number >= 2 else UID_BASE + user
        work, tmp = (WORK, "/tmp") if folder is None else (f"{folder}/work", f"{folder}/tmp")
        if folder is not None:
            for path in (work, tmp):
                os.mkdir(path)
                if uid is not None:
                    os.chown(path, uid, uid)
            if uid is not None:
                os.chown(folder, uid, uid)
        return {
            "work": work,
            "tmp": tmp,
            "uid": uid,
            "file_bytes": limits.file_mb * _MB,
            "counted": self.counts,
            "processes": limits.processes + (4 if has_group else 0),  # the group says no first, and tells
            "memory_bytes": None if has_group else limits.memory_mb * _MB,
            "network": limits.network,
            "terminals": terminals,
            "readable": [] if self.number != 1 else [*readable_paths(), *extra, *_DEVICES],
        }

    def close(self) -> None:
        if self.cgroups is not None:
            self.cgroups.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lease.end()


_DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]


def find_level(min_level: int = 1, max_level: int = 3, unsafe: bool = False) -> Level:
    """The highest level that works here. Raises SetupError when there is none as high as asked for."""
    if sys.platform != "linux":
        raise SetupError(f"the local sandbox needs Linux, and this is {sys.platform}; take docker or podman")
    reap({"cgroup": lambda name: remove_tree(Path(name)), "folder": remove_folder})
    lease = Lease()
    folder = tempfile.mkdtemp(prefix=f"{PREFIX}{lease.name}-")
    os.chmod(folder, 0o711)
    lease.keep("folder", folder)
    notes: list[str] = []
    for number in (2, 1, 0):
        if number > max_level or (number == 0 and not unsafe):
            continue
        try:
            level = _try_level(number, lease, folder)
        except (OSError, SetupError) as error:
            notes.append(f"level {number} does not work here: {one_line(error)}")
            continue
        if number == 2 and max_level >= 3:
            _add_cgroups(level, notes)
        level.notes = notes
        if level.number >= min_level:
            return level
        level.close()
        break
    shutil.rmtree(folder, ignore_errors=True)
    lease.end()
    raise SetupError(
        f"no local sandbox of level {min_level} or higher can be had here ({'; '.join(notes) or 'nothing was tried'}). "
        "Try: vf-sandbox doctor"
    )


def _try_level(number: int, lease: Lease, folder: str) -> Level:
    kind = JailKind(_KIND_OF[number], preload=())
    jail = Jail(kind)
    try:
        abi, counts = int(jail.hello["landlock"]), jail.hello["counts"] == "1"
    finally:
        jail.close()
    if number == 1 and abi == 0:
        raise SetupError("this kernel has no Landlock, or has it switched off")
    is_root = os.getuid() == 0
    gives_users = is_root and number > 0 and (number == 2 or _others_may_reach(interpreter()))
    return Level(number, JailKind(kind.kind), lease, folder, gives_users=gives_users, counts=counts)


def _add_cgroups(level: Level, notes: list[str]) -> None:
    try:
        level.cgroups = Cgroups(level.lease.name)
    except OSError as error:
        notes.append(f"level 3 does not work here: {one_line(error)}")
        return
    level.number = 3
    for name in level.cgroups.folders:
        level.lease.keep("cgroup", name)


def _refuse_private(folders: Iterable[str]) -> None:
    """Raises SetupError for folders that programs read where they lie, and as users of their own cannot come to."""
    for folder in folders:
        if not _others_may_reach(folder):
            raise SetupError(
                f"a sandbox is to show the packages in {folder}, which only its owner may enter, and this level runs "
                "programs as users of their own. Use a virtual environment in a folder that others may enter"
            )


def _others_may_reach(path: str) -> bool:
    """Whether a user without rights can read what lies there."""
    return all(os.stat(place).st_mode & 0o001 for place in [path, *map(str, Path(path).parents)])
