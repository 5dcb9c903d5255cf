"""`sweep`: removes what nobody needs: stored files that no row names, uploads that were cut off, unfinished releases,
evaluations left open.

Only what is older than an hour (`sweep_after_s`) goes, evaluations after days: a file is stored before its row is
committed, and an upload may be between the two just now.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import exists, select

from hub_server.hub import Hub
from hub_server.models import File, SampleChunk, Staged, StagedFile, now
from hub_server.services.left_open import remove_left_open, remove_samples_of_deleted
from hub_server.services.stored import hold_sweeping, stored_keys
from hub_server.storage import StoredFile

PREFIXES = ("files/", "metadata/", "samples/")


@dataclass(frozen=True, slots=True)
class Swept:
    files: int  # from the storage
    bytes: int
    parts: int  # of uploads that were cut off
    staged: int  # releases that were not finished in time
    evaluations: int  # that were begun and never completed


def sweep(hub: Hub, moment: datetime | None = None) -> Swept:
    """`moment` is now, for tests. Raises Unavailable, StorageFull."""
    moment = moment or now()
    before = moment - timedelta(seconds=hub.settings.sweep_after_s)
    staged = _drop_staged(hub, moment)
    evaluations = remove_left_open(hub, moment)
    remove_samples_of_deleted(hub, before)
    files = [found for found in orphans(hub, before) if _delete_orphan(hub, found.key)]
    parts = _drop_temporary(hub, before) + hub.storage.discard_parts(before)
    return Swept(len(files), sum(found.size_bytes for found in files), parts, staged, evaluations)


def orphans(hub: Hub, before: datetime) -> list[StoredFile]:
    """Stored files older than this moment that no row names."""
    # Listed first: what gets its row after the keys were read is in neither, or younger.
    old = [found for prefix in PREFIXES for found in hub.storage.list(prefix) if found.modified_at < before]
    if not old:
        return []
    with hub.database.read() as session:
        needed = stored_keys(session)
    return [found for found in old if found.key not in needed]


def _delete_orphan(hub: Hub, key: str) -> bool:
    """Looks once more, where no upload of the same bytes can come in between."""
    kind, _, name = key.partition("/")
    with hub.database.write(seen=False) as session:
        hold_sweeping(session)
        if kind == "files":
            needed = exists().where(File.sha256 == name) | exists().where(StagedFile.sha256 == name)
        elif kind == "metadata":
            needed = exists().where(File.metadata_sha256 == name)
        else:
            needed = exists().where(SampleChunk.key == key)
        if session.scalar(select(needed)):
            return False
        hub.storage.delete(key)
        return True


def _drop_staged(hub: Hub, moment: datetime) -> int:
    with hub.database.write(seen=False) as session:
        late = session.scalars(select(Staged).where(Staged.expires_at <= moment)).all()
        for staged in late:
            session.delete(staged)
        return len(late)


def _drop_temporary(hub: Hub, before: datetime) -> int:
    dropped = 0
    for path in hub.settings.temporary.iterdir():
        try:
            if path.is_file() and datetime.fromtimestamp(path.stat().st_mtime, UTC) < before:
                path.unlink()
                dropped += 1
        except FileNotFoundError:
            continue
    return dropped
