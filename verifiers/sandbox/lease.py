"""`Lease`: what a process of ours holds outside itself, written down so that another can remove it.

A process that is killed leaves its control groups and folders behind. Each start of a backend reads the leases that lie
about, and removes what belongs to owners that are dead, or whose time is over.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PREFIX = "vf-sandbox-"


class Lease:
    """One owner's: `keep` is called with the kind and name of each thing that it holds."""

    def __init__(self, run_id: str | None = None, lifetime_s: float | None = None) -> None:
        self.owner = f"{os.getpid()}-{started(os.getpid())}"
        self._number = _next_number()
        self._path = lease_folder() / f"{self.owner}-{self._number}.json"
        self._content: dict[str, Any] = {
            "pid": os.getpid(),
            "started": started(os.getpid()),
            "run_id": run_id,
            "expires_at": None if lifetime_s is None else time.time() + lifetime_s,
            "held": [],
        }

    @property
    def name(self) -> str:
        return f"{self.owner}-{self._number}"

    def keep(self, kind: str, name: str) -> None:
        self._content["held"].append([kind, name])
        partial = self._path.with_suffix(".new")
        partial.write_text(json.dumps(self._content))
        partial.replace(self._path)

    def end(self) -> None:
        self._path.unlink(missing_ok=True)


def reap(removers: dict[str, Callable[[str], bool]]) -> int:
    """Removes what dead and late owners hold, by the function for its kind; how many leases were ended."""
    ended = 0
    for path in sorted(lease_folder().glob("*.json")):
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        expires = content["expires_at"]
        if started(content["pid"]) == content["started"] and (expires is None or expires > time.time()):
            continue
        gone = [kind in removers and removers[kind](name) for kind, name in content["held"]]  # all are tried
        if all(gone):
            path.unlink(missing_ok=True)
            ended += 1
    return ended


def lease_folder() -> Path:
    """Ours alone: nobody else could write a lease that has us remove something."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"verifiers-sandboxes-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or folder.is_symlink():
        raise PermissionError(f"{folder} is not this user's alone; remove it, or set XDG_RUNTIME_DIR to another folder")
    return folder


def remove_folder(path: str) -> bool:
    if not Path(path).name.startswith(PREFIX):
        raise ValueError(f"{path} is no folder of ours")
    shutil.rmtree(path, ignore_errors=True)
    return not Path(path).exists()


def started(pid: int) -> str | None:
    """When the process started, in the kernel's count: with the pid it names a process for good."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return text.rpartition(b")")[2].split()[19].decode()


_numbers = iter(range(1, 1 << 62))


def _next_number() -> int:
    return next(_numbers)
