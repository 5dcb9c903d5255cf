"""The files inside a release: its source archive's, or its wheel's when it has no other. Read out of the stored
archive, a bounded number of bytes each."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from sqlalchemy.orm import Session

from hub_server.errors import CorruptFile, Forbidden, NotFound, TooLarge
from hub_server.hub import Hub
from hub_server.models import File, Project, Release
from hub_server.principal import Principal
from hub_server.services.access import project_for_reading
from hub_server.services.details import release_named
from verifiers.archives import ArchiveRefused, Member, read_member

MAX_SHOWN_BYTES = 500_000
# A tar is unpacked from its beginning up to the member: what one look may cost at most.
MAX_UNPACKED_BYTES = 64 << 20
_IN_MEMORY_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class SourceMember:
    path: str
    size_bytes: int
    sha256: str
    executable: bool


@dataclass(frozen=True, slots=True)
class Source:
    """What a release's archive has in it."""

    filename: str
    kind: str  # sdist; wheel when the release has no sdist
    sha256: str
    members: tuple[SourceMember, ...]  # by path


@dataclass(frozen=True, slots=True)
class SourceFile:
    """`text` is `None` when it is no text in UTF-8."""

    path: str
    size_bytes: int
    sha256: str
    executable: bool
    text: str | None
    is_cut: bool  # only the beginning is here


def source(hub: Hub, who: Principal, owner: str, name: str, version: str) -> Source:
    """Raises NotFound; Forbidden while the project is quarantined."""
    with hub.database.read() as session:
        return source_of(session, who, owner, name, version)


def source_of(session: Session, who: Principal, owner: str, name: str, version: str) -> Source:
    project = project_for_reading(session, who, owner, name)
    return source_in(project, release_named(session, project, version))


def source_in(project: Project, release: Release) -> Source:
    if project.status == "quarantined":
        raise Forbidden(f"'{project.owner.name}/{project.name}' is quarantined: nothing is shown", code="quarantined")
    file = next((file for file in release.files if file.kind == "sdist"), None)
    file = file or next(iter(release.files), None)
    if file is None:
        raise NotFound(f"version {release.version} of '{project.owner.name}/{project.name}' has no files")
    return Source(file.filename, file.kind, file.sha256, _members(file))


def _members(file: File) -> tuple[SourceMember, ...]:
    return tuple(sorted((SourceMember(*row) for row in file.members), key=lambda member: member.path))


def source_file(
    hub: Hub, who: Principal, owner: str, name: str, version: str, path: str, max_bytes: int = MAX_SHOWN_BYTES
) -> SourceFile:
    """One file, up to `max_bytes` of it and never more than 500,000. Raises NotFound, Forbidden, TooLarge."""
    found = source(hub, who, owner, name, version)
    member = next((member for member in found.members if member.path == path), None)
    if member is None:
        raise NotFound(f"{found.filename} has no file '{path[:200]}'")
    refuse_costly(found)
    with opened(hub, found.sha256) as archive:
        data = content_of(archive, found, member, max(0, min(max_bytes, MAX_SHOWN_BYTES)))
    is_cut = len(data) < member.size_bytes
    return SourceFile(member.path, member.size_bytes, member.sha256, member.executable, as_text(data, is_cut), is_cut)


def refuse_costly(found: Source) -> None:
    unpacked = sum(member.size_bytes for member in found.members)
    if found.kind == "sdist" and unpacked > MAX_UNPACKED_BYTES:
        raise TooLarge(
            f"{found.filename} unpacks to {unpacked:,} bytes; files are shown out of up to {MAX_UNPACKED_BYTES:,}. "
            "Download it"
        )


@contextlib.contextmanager
def opened(hub: Hub, sha256: str) -> Iterator[IO[bytes]]:
    """A stored archive as a file that can be read at any place. Raises CorruptFile when it is lost."""
    key = f"files/{sha256}"
    path = hub.storage.local_path(key)
    try:
        if path is not None:
            with path.open("rb") as file:
                yield file
            return
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(hub.settings.temporary)) as file:
            for piece in hub.storage.read(key):
                file.write(piece)
            file.seek(0)
            yield file
    except FileNotFoundError:
        raise CorruptFile(f"the stored file {sha256} is lost: tell whoever runs this hub") from None


def content_of(archive: IO[bytes], found: Source, member: SourceMember, max_bytes: int) -> bytes:
    """The beginning of a member. Raises CorruptFile when the archive is not what was published."""
    try:
        known = Member(member.path, member.size_bytes, member.sha256, member.executable)
        return read_member(archive, known, max_bytes)  # pyright: ignore[reportArgumentType]
    except ArchiveRefused as error:
        raise CorruptFile(f"{found.filename} cannot be read any more: {error}") from error


def as_text(data: bytes, is_cut: bool = False) -> str | None:
    """`None` for what is no text. A letter that the cut went through is left out."""
    try:
        text = data.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        if not (is_cut and error.reason == "unexpected end of data"):
            return None
        text = data[: error.start].decode("utf-8", "replace")
    return None if "\0" in text else text
