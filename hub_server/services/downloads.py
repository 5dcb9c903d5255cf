"""`Downloads`: finds a published file for whoever may read it, and counts what was sent, a write for many."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import select, update

from hub_server.errors import CorruptFile, Forbidden, NotFound
from hub_server.hub import Hub
from hub_server.models import File, Project, Release
from hub_server.principal import NOBODY, Principal
from hub_server.services import audit
from hub_server.services.access import project_for_reading
from hub_server.services.page_store import PageStore, rights_of
from verifiers.archives.own_wheel import NAME as OWN_NAME
from verifiers.archives.own_wheel import own_wheel


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Something to be sent: at `key` in the storage, or in memory."""

    size_bytes: int
    sha256: str
    modified_at: datetime
    is_public: bool
    key: str = ""
    content: bytes | None = None
    file_id: int | None = None  # whose downloads are counted; `None`: metadata, or our own wheel
    project_id: int | None = None


class Downloads:
    """One per process. `held` answers from memory alone and may be called in the event loop; `find` reads the
    database."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._held: PageStore[StoredBytes] = PageStore(hub.database.freshness, max_bytes=8 << 20)
        self._counts: Counter[tuple[int, int]] = Counter()
        self._lock = threading.Lock()  # guards the counts, which are written to the database in a thread

    def held(self, who: Principal, owner: str, name: str, sha256: str, filename: str) -> StoredBytes | None:
        """`filename` ends in `.metadata` when the metadata of a wheel is meant."""
        place = (owner, name, sha256, filename)
        return self._held.get((*place, None)) or self._held.get((*place, rights_of(who)))

    def find(self, who: Principal, owner: str, name: str, sha256: str, filename: str) -> StoredBytes:
        """Raises NotFound, the same for what is missing and for what `who` may not see; Forbidden while the project
        is quarantined."""
        generation = self._held.generation()
        found = self._find(who, owner, name, sha256, filename)
        rights = None if found.is_public else rights_of(who)
        size = 500 + len(found.content or b"")
        self._held.keep((owner, name, sha256, filename, rights), found, generation, size)
        return found

    def own(self, sha256: str, filename: str) -> StoredBytes:
        """The wheel of the hub's own library, or its metadata."""
        wheel = own_wheel()
        if sha256 == wheel.sha256 and filename == wheel.filename:
            return StoredBytes(len(wheel.content), sha256, wheel.installed_at, True, content=wheel.content)
        if sha256 == wheel.sha256 and filename == f"{wheel.filename}.metadata":
            about = wheel.metadata
            return StoredBytes(len(about), wheel.metadata_sha256, wheel.installed_at, True, content=about)
        raise NotFound(
            f"this hub has another '{OWN_NAME}': {wheel.filename} with SHA-256 {wheel.sha256}. Lock again: uv lock "
            f"--upgrade-package {OWN_NAME}"
        )

    def _find(self, who: Principal, owner: str, name: str, sha256: str, filename: str) -> StoredBytes:
        with self._hub.database.read() as session:
            project = project_for_reading(session, who, owner, name)
            row = session.execute(
                select(File)
                .join(Release, Release.id == File.release_id)
                .where(
                    File.project_id == project.id,
                    File.filename == filename.removesuffix(".metadata"),
                    File.sha256 == sha256,
                    Release.state == "published",
                    Release.deleted_at.is_(None),
                )
            ).scalar_one_or_none()
            is_metadata = filename.endswith(".metadata")
            if row is None or (is_metadata and row.metadata_sha256 is None):
                raise NotFound(f"'{owner}/{name}' has no file '{filename}' with this hash")
            if project.status == "quarantined":
                why = f": {project.status_reason}" if project.status_reason else ""
                raise Forbidden(
                    f"'{owner}/{name}' is quarantined{why}. Its files are not given out", code="quarantined"
                )
            is_public = project.visibility == "public" and project.latest_release_id is not None
        if is_metadata and row.metadata_sha256 is not None:
            content = b"".join(self.pieces(f"metadata/{row.metadata_sha256}"))
            if hashlib.sha256(content).hexdigest() != row.metadata_sha256:
                raise self._damaged(f"metadata/{row.metadata_sha256}", project.id)
            return StoredBytes(len(content), row.metadata_sha256, row.uploaded_at, is_public, content=content)
        return StoredBytes(
            size_bytes=row.size_bytes,
            sha256=sha256,
            modified_at=row.uploaded_at,
            is_public=is_public,
            key=f"files/{sha256}",
            file_id=row.id,
            project_id=project.id,
        )

    # Whole files

    @property
    def verifies(self) -> bool:
        return self._hub.settings.verify_downloads

    def local_path(self, stored: StoredBytes) -> Path | None:
        """Where a server that sends files by itself finds this one."""
        return self._hub.storage.local_path(stored.key)

    def pieces(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Raises CorruptFile when a row names a file that the storage lost."""
        try:
            return self._hub.storage.read(key, start, length)
        except FileNotFoundError:
            raise self._damaged(key, None) from None

    def verify(self, stored: StoredBytes) -> None:
        """Reads a whole file and compares its hash. Raises CorruptFile."""
        digest = hashlib.sha256()
        for piece in self.pieces(stored.key):
            digest.update(piece)
        if digest.hexdigest() != stored.sha256:
            raise self._damaged(stored.key, stored.project_id)

    def _damaged(self, key: str, project_id: int | None) -> CorruptFile:
        """Leaves an event for the administrators."""
        with self._hub.database.write(seen=False) as session:
            project = None if project_id is None else session.get(Project, project_id)
            audit.record(session, NOBODY, "file.corrupt", project=project, target=key)
        return CorruptFile(
            f"the stored file {key} is lost or damaged, and so is not sent. Tell the hub's administrator"
        )

    # Counting

    def count(self, stored: StoredBytes) -> None:
        if stored.file_id is not None and stored.project_id is not None:
            with self._lock:
                self._counts[stored.file_id, stored.project_id] += 1

    def write_counts(self) -> None:
        """Adds what was counted since the last time to the files and their projects, in one transaction."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            with self._hub.database.write(seen=False) as session:
                for (file_id, project_id), n in sorted(counts.items()):  # one order in all workers: no deadlock
                    session.execute(update(File).where(File.id == file_id).values(n_downloads=File.n_downloads + n))
                    session.execute(
                        update(Project).where(Project.id == project_id).values(n_downloads=Project.n_downloads + n)
                    )
        except BaseException:
            with self._lock:
                self._counts.update(counts)  # the database did not take them: next time
            raise
