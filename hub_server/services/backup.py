"""`backup` and `restore`: a whole hub in one tar file that any hub can be made from, whatever its database and storage.

    manifest.json                 format, schema revision, when, rows and files
    tables/<name>.ndjson          every row, from one snapshot
    files/<key>                   every stored file that a row names

The rows are read first. A file is stored before its row is committed and files are never changed, so a backup that is
taken while people upload is whole: it is the hub of the moment at which it began.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select, text

from hub_server.errors import BadRequest, Conflict
from hub_server.hub import Hub
from hub_server.migrations import revision_of
from hub_server.models import Base, Moment, Project
from hub_server.services.search import index_project
from hub_server.services.stored import stored_keys

FORMAT = 1
BATCH = 500
# Counters that mean nothing elsewhere; browsers that signed in here, and programs that are about to; and how often this
# hub was changed, which each counts for itself. Every other table is in a backup.
LEFT_OUT = frozenset({"rate_count", "session", "device", "generation"})

Say = Callable[[int, int], None]


def tables() -> list[Table]:
    """In the order in which rows can be written."""
    return [table for table in Base.metadata.sorted_tables if table.name not in LEFT_OUT]


def backup(hub: Hub, target: Path, progress: Say = lambda done, total: None) -> dict[str, Any]:
    """Writes `target`, which must not be there; the manifest. Nothing is left at `target` when it fails."""
    if target.exists():
        raise Conflict(f"{target} is there already: name another file")
    part = target.with_name(target.name + ".part")
    try:
        part.unlink(missing_ok=True)
        # For its owner alone: it holds what private projects hold, and hashes of passwords and tokens.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
            manifest = _write(hub, tar, progress)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
    return manifest


def _write(hub: Hub, tar: tarfile.TarFile, progress: Say) -> dict[str, Any]:
    counts: dict[str, int] = {}
    with hub.database.read() as session:
        connection = session.connection(execution_options=_snapshot(hub))
        for table in tables():
            with tempfile.TemporaryFile() as lines:
                counts[table.name] = _dump(connection, table, lines)
                _add(tar, f"tables/{table.name}.ndjson", lines)
        keys = sorted(stored_keys(session))
        revision = revision_of(connection)
    for done, key in enumerate(keys):
        _add_stored(hub, tar, key)
        progress(done + 1, len(keys))
    manifest = {
        "format": FORMAT,
        "revision": revision,
        "made_at": datetime.now(UTC).isoformat(),
        "rows": counts,
        "files": len(keys),
    }
    _add(tar, "manifest.json", io.BytesIO(json.dumps(manifest, indent=2).encode()))
    return manifest


def _snapshot(hub: Hub) -> dict[str, Any]:
    """All tables as of one moment: SQLite's transactions are so by themselves."""
    return {} if hub.database.is_sqlite else {"isolation_level": "REPEATABLE READ"}


def _dump(connection: Connection, table: Table, out: Any) -> int:
    count = 0
    rows = select(table).order_by(*table.primary_key.columns)
    for row in connection.execute(rows, execution_options={"yield_per": BATCH}):
        out.write(json.dumps([_plain(value) for value in row], ensure_ascii=True).encode() + b"\n")
        count += 1
    return count


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _add(tar: tarfile.TarFile, name: str, file: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size = file.seek(0, io.SEEK_END)
    info.mtime = int(datetime.now(UTC).timestamp())
    file.seek(0)
    tar.addfile(info, file)


def _add_stored(hub: Hub, tar: tarfile.TarFile, key: str) -> None:
    size = hub.storage.size(key)
    if size is None:
        raise BadRequest(f"the stored file {key} is missing: run vf-hub fsck, and try again", code="file_missing")
    info = tarfile.TarInfo(f"files/{key}")
    info.size = size
    tar.addfile(info, _Pieces(hub.storage.read(key)))  # pyright: ignore[reportArgumentType]  # only `read` is used


class _Pieces:
    """Pieces as a file that can be read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held = pieces, b""

    def read(self, size: int) -> bytes:
        while len(self._held) < size:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._held += piece
        given, self._held = self._held[:size], self._held[size:]
        return given


def restore(hub: Hub, source: Path, progress: Say = lambda done, total: None) -> dict[str, Any]:
    """Fills an empty hub from a backup; the manifest. Raises Conflict when the hub has anything, BadRequest for a file
    that is no backup, is damaged, or comes from another schema. When it fails the hub stays without a row."""
    try:
        with tarfile.open(source) as tar:
            return _restore(hub, source, tar, progress)
    except (tarfile.TarError, EOFError) as error:
        raise BadRequest(f"{source} is no backup of a hub, or it was cut off: {error}", code="bad_backup") from error


def _restore(hub: Hub, source: Path, tar: tarfile.TarFile, progress: Say) -> dict[str, Any]:
    manifest = _manifest(source, tar)
    with hub.database.read() as session:
        here = revision_of(session.connection())
        if manifest["revision"] != here:
            raise BadRequest(
                f"{source} was made at schema {manifest['revision']}, this hub is at {here}: restore it with the "
                "release that made it, and start this one on the result"
            )
        _refuse_used(session.connection())
    # Files first: a row never names a file that is not there.
    members = [member for member in tar.getmembers() if member.name.startswith("files/") and member.isfile()]
    for done, member in enumerate(members):
        _put_stored(hub, tar, member)
        progress(done + 1, len(members))
    with hub.database.write() as session:
        connection = session.connection()
        _refuse_used(connection)  # once more, where no other writer can come in between
        later: list[Later] = []
        for table in tables():
            found = _load(connection, table, tar, later)
            if found != manifest["rows"].get(table.name):
                wanted = manifest["rows"].get(table.name)
                raise BadRequest(f"{source} is damaged: {found} of {wanted} rows of {table.name}", code="bad_backup")
        for table, key, values in later:
            connection.execute(table.update().where(*(table.c[name] == value for name, value in key)).values(values))
        if not hub.database.is_sqlite:
            _set_sequences(connection)
        for project in session.scalars(select(Project).order_by(Project.id)):
            index_project(session, project)  # the search's tables are each database's own
        missing = [key for key in sorted(stored_keys(session)) if hub.storage.size(key) is None]
        if missing:
            raise BadRequest(f"{source} is damaged: it lacks the stored file {missing[0]}", code="bad_backup")
    return manifest


def _manifest(source: Path, tar: tarfile.TarFile) -> dict[str, Any]:
    try:
        manifest = json.load(tar.extractfile("manifest.json") or io.BytesIO())
        found, _ = manifest["format"], manifest["rows"].items()
    except (KeyError, ValueError, TypeError, AttributeError):
        raise BadRequest(f"{source} is no backup of a hub, or it was cut off: it has no manifest.json") from None
    if found != FORMAT:
        raise BadRequest(f"{source} has the format {found}; this hub reads {FORMAT}")
    return manifest


def _refuse_used(connection: Connection) -> None:
    for name in ("account", "project", "evaluation"):
        if connection.scalar(select(func.count()).select_from(Base.metadata.tables[name])):
            raise Conflict("this hub has accounts or environments already; a backup is restored into an empty one")


def _put_stored(hub: Hub, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    key = member.name.removeprefix("files/")
    file = tar.extractfile(member)
    assert file is not None, "a plain file has contents"
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=hub.settings.temporary) as copy:
        while piece := file.read(1 << 20):
            digest.update(piece)
            copy.write(piece)
        copy.flush()
        if digest.hexdigest() != key.rpartition("/")[2]:
            raise BadRequest(
                f"{member.name} in the backup is damaged: its bytes have another SHA-256", code="bad_backup"
            )
        hub.storage.put(key, Path(copy.name))


Later = tuple[Table, tuple[tuple[str, Any], ...], dict[str, Any]]  # a table, a row's key, columns to be set in it


def _load(connection: Connection, table: Table, tar: tarfile.TarFile, later: list[Later]) -> int:
    """How many rows. What points to rows that may not be there yet is left empty and added to `later`."""
    try:
        file = tar.extractfile(f"tables/{table.name}.ndjson")
    except KeyError:
        return 0
    forward, count = _forward(table), 0
    batch: list[dict[str, Any]] = []
    for line in file or ():
        row = _row(table, line)
        pointing = {name: row[name] for name in forward if row[name] is not None}
        if pointing:
            later.append((table, tuple((column.name, row[column.name]) for column in table.primary_key), pointing))
        batch.append(row | dict.fromkeys(pointing))
        count += 1
        if len(batch) >= BATCH:
            connection.execute(insert(table), batch)
            batch = []
    if batch:
        connection.execute(insert(table), batch)
    return count


def _forward(table: Table) -> list[str]:
    """Columns that point into the table itself or into one that is written after it."""
    order = {one.name: place for place, one in enumerate(tables())}
    return sorted({key.parent.name for key in table.foreign_keys if order[key.column.table.name] >= order[table.name]})


def _row(table: Table, line: bytes) -> dict[str, Any]:
    try:
        values = json.loads(line)
        return {c.name: _typed(c.type, value) for c, value in zip(table.columns, values, strict=True)}
    except (ValueError, TypeError) as error:
        raise BadRequest(f"the backup is damaged: a row of {table.name}: {error}", code="bad_backup") from error


def _typed(kind: Any, value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(kind, Moment) and value is not None else value


def _set_sequences(connection: Connection) -> None:
    """PostgreSQL counts ids in sequences, which rows written with their ids leave behind."""
    for table in tables():
        counted = table.autoincrement_column
        if counted is not None:
            connection.execute(
                text(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', '{counted.name}'), "
                    f"(SELECT coalesce(max({counted.name}), 0) + 1 FROM {table.name}), false)"
                )
            )
