"""`Storage`: the only way the hub touches files. Put-if-absent, read, list, delete; nothing is ever overwritten.

Keys are `files/<sha256>`, `metadata/<sha256>`, `samples/<evaluation>/<sha256>`: a key says what lies under it, so that
writing twice is writing once. A file is stored before the row that names it is committed: what a crash leaves is an
orphan that `sweep` removes, never a row without a file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from hub_server.errors import StorageFull, Unavailable

PIECE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class StoredFile:
    key: str
    size_bytes: int
    modified_at: datetime


class Storage(Protocol):
    """Raises StorageFull when no more fits, Unavailable when the store does not answer, FileNotFoundError for a key
    that is not there."""

    def put(self, key: str, source: Path | bytes) -> None:
        """Stores the whole file or nothing, durably; does nothing when the key is there already."""
        ...

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` on, in pieces. The key is looked up at once, not at the first piece."""
        ...

    def size(self, key: str) -> int | None:
        """`None`: not there."""
        ...

    def delete(self, key: str) -> None: ...

    def list(self, prefix: str) -> Iterator[StoredFile]: ...

    def local_path(self, key: str) -> Path | None:
        """A path that a server may send by itself; `None` when the files lie elsewhere."""
        ...

    def discard_parts(self, before: datetime) -> int:
        """Removes what puts that were cut off before this moment have left; says how many."""
        ...


def parts_of(key: str) -> list[str]:
    """Raises ValueError for what is no key, so that none can lead out of the storage."""
    parts = key.split("/")
    if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise ValueError(f"no key of a stored file: {key!r}")
    return parts


class FolderStorage:
    """A folder. Keys get a level of sub-folders from their hash, because a folder of a million files is slow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, key: str, source: Path | bytes) -> None:
        target = self._path(key)
        if target.exists():
            _sync_folder(target.parent)  # whoever was first may not have come to that yet
            return
        with full_disk_named():
            self._make_folder(target.parent)
            self._parts.mkdir(parents=True, exist_ok=True)
            temporary = self._parts / f"{target.name}.{secrets.token_hex(6)}"
            try:
                _copy(source, temporary)
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, target)  # fails when another upload was first; a rename would overwrite
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folder(target.parent)

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        return _pieces(self._path(key), start, length)

    def size(self, key: str) -> int | None:
        try:
            return self._path(key).stat().st_size
        except FileNotFoundError:
            return None

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        root = self.folder / prefix.split("/")[0]
        for path in sorted(root.rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # it may be deleted while we look
                found = path.stat()
                if stat.S_ISREG(found.st_mode) and path.parent != self._parts and self._key(path).startswith(prefix):
                    yield StoredFile(self._key(path), found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def local_path(self, key: str) -> Path | None:
        return self._path(key)

    def discard_parts(self, before: datetime) -> int:
        found = [path for path in self._parts.glob("*") if _modified_at(path) < before]
        for path in found:
            path.unlink(missing_ok=True)
        return len(found)

    @property
    def _parts(self) -> Path:
        """Where files grow until they are whole: on the same file system, and no key leads there."""
        return self.folder / ".parts"

    def _make_folder(self, folder: Path) -> None:
        """With its parents, each on the disk before something is put into it."""
        if folder.is_dir():
            return
        if folder != self.folder:
            self._make_folder(folder.parent)
        folder.mkdir(parents=folder == self.folder, exist_ok=True)
        _sync_folder(folder.parent)

    def _path(self, key: str) -> Path:
        *folders, name = parts_of(key)
        return self.folder.joinpath(*folders, name[:2], name)

    def _key(self, path: Path) -> str:
        parts = path.relative_to(self.folder).parts
        return "/".join((*parts[:-2], parts[-1]))


class MemoryStorage:
    """Files in memory: for tests and for looking at the hub without leaving anything."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, datetime]] = {}
        self._lock = threading.Lock()  # put is look-and-write

    def put(self, key: str, source: Path | bytes) -> None:
        parts_of(key)
        data = source if isinstance(source, bytes) else source.read_bytes()
        with self._lock:
            self._files.setdefault(key, (data, datetime.now(UTC)))

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        if key not in self._files:
            raise FileNotFoundError(key)
        data = self._files[key][0]
        return iter([data[start : None if length is None else start + length]])

    def size(self, key: str) -> int | None:
        return len(self._files[key][0]) if key in self._files else None

    def delete(self, key: str) -> None:
        self._files.pop(key, None)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        for key, (data, at) in sorted(self._files.items()):
            if key.startswith(prefix):
                yield StoredFile(key, len(data), at)

    def local_path(self, key: str) -> Path | None:
        return None

    def discard_parts(self, before: datetime) -> int:
        return 0


def _copy(source: Path | bytes, target: Path) -> None:
    """Writes a file and waits until the disk has it."""
    with target.open("xb") as out:
        if isinstance(source, bytes):
            out.write(source)
        else:
            for piece in _pieces(source, 0, None):
                out.write(piece)
        out.flush()
        os.fsync(out.fileno())


def _pieces(path: Path, start: int, length: int | None) -> Iterator[bytes]:
    file = path.open("rb")  # now, so that a missing file is told before an answer has begun

    def pieces() -> Iterator[bytes]:
        with file:
            file.seek(start)
            left = length
            while left is None or left > 0:
                piece = file.read(PIECE_BYTES if left is None else min(PIECE_BYTES, left))
                if not piece:
                    return
                if left is not None:
                    left -= len(piece)
                yield piece

    return pieces()


def _modified_at(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.now(UTC)  # somebody else removed it: not old


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def full_disk_named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise StorageFull(f"the hub's file store takes no more: {error.strerror}") from error
        if error.errno in (errno.EIO, errno.ESTALE):
            raise Unavailable(f"the hub's file store does not answer: {error.strerror}", retry_after_s=5) from error
        raise
