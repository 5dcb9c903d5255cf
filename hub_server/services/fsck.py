"""`fsck`: every row has its file, with the right bytes; what lies in the storage without a row is told apart.

An orphan is no fault: a crash between storing and committing leaves one, and it is swept after an hour. A row without
its file, or with other bytes, is lost data, and only a backup brings it back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub_server.hub import Hub
from hub_server.models import File, Project, Release, SampleChunk, StagedFile, now
from hub_server.services.release_rows import latest_of, refresh_project
from hub_server.services.sweep import orphans, sweep

Fault = Literal["missing", "size", "hash", "latest_release"]


@dataclass(frozen=True, slots=True)
class Problem:
    """`subject` is a storage key, or `owner/name` of a project."""

    kind: Fault
    subject: str
    detail: str


@dataclass(frozen=True, slots=True)
class Checkup:
    problems: tuple[Problem, ...]
    files: int  # that were read
    orphans: int
    orphan_bytes: int
    repaired: int  # orphans that were removed and projects whose latest release was set right

    @property
    def is_sound(self) -> bool:
        return not self.problems


def check_hub(
    hub: Hub, *, repair: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
) -> Checkup:
    """Reads every stored file. `repair` removes orphans older than an hour and sets right what the rows themselves
    tell; it never touches a file that a row names."""
    wanted = _wanted(hub)
    problems: list[Problem] = []
    for done, (key, size) in enumerate(wanted.items()):
        found = _fault_of(hub, key, size)
        if found is not None:
            problems.append(found)
        progress(done + 1, len(wanted))
    stray = _projects_astray(hub)
    loose = orphans(hub, now() + timedelta(days=1))
    repaired = 0
    if repair:
        repaired = sweep(hub).files + _set_right(hub, [project_id for project_id, _ in stray])
    else:
        problems += [problem for _, problem in stray]
    return Checkup(tuple(problems), len(wanted), len(loose), sum(one.size_bytes for one in loose), repaired)


def _wanted(hub: Hub) -> dict[str, int | None]:
    """Storage key → size in bytes, `None` where no row says it."""
    with hub.database.read() as session:
        wanted: dict[str, int | None] = {}
        for sha256, size in session.execute(select(File.sha256, File.size_bytes)):
            wanted[f"files/{sha256}"] = size
        for sha256, size in session.execute(select(StagedFile.sha256, StagedFile.size_bytes)):
            wanted[f"files/{sha256}"] = size
        for sha256 in session.scalars(select(File.metadata_sha256).where(File.metadata_sha256.is_not(None))):
            wanted.setdefault(f"metadata/{sha256}", None)
        for key in session.scalars(select(SampleChunk.key)):
            wanted.setdefault(key, None)
        return wanted


def _fault_of(hub: Hub, key: str, size: int | None) -> Problem | None:
    digest, length = hashlib.sha256(), 0
    try:
        for piece in hub.storage.read(key):
            digest.update(piece)
            length += len(piece)
    except FileNotFoundError:
        return Problem("missing", key, "a row names this file, and it is not in the storage")
    if size is not None and length != size:
        return Problem("size", key, f"it has {length} bytes, and its row says {size}")
    if digest.hexdigest() != key.rpartition("/")[2]:
        return Problem("hash", key, f"its bytes have the SHA-256 {digest.hexdigest()}")
    return None


def _projects_astray(hub: Hub) -> list[tuple[int, Problem]]:
    """Projects whose latest release is not the one that their releases make it."""
    with hub.database.read() as session:
        return [
            (project.id, Problem("latest_release", f"{project.owner.name}/{project.name}", "it names another release"))
            for project in session.scalars(select(Project).where(Project.deleted_at.is_(None)))
            if project.latest_release_id != _latest_id(session, project)
        ]


def _latest_id(session: Session, project: Project) -> int | None:
    latest: Release | None = latest_of(session, project)
    return None if latest is None else latest.id


def _set_right(hub: Hub, project_ids: list[int]) -> int:
    for project_id in project_ids:
        with hub.database.write() as session:
            refresh_project(session, session.get_one(Project, project_id))
    return len(project_ids)
