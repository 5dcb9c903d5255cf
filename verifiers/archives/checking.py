"""`check`: whether a file is a wheel or an sdist that may be published, and what is in it.

The client asks before it sends and the hub when it receives; both get the same answer, an `ArchiveRefused` with a code
and a reason, or a `Checked`. Nothing is unpacked onto a disk, no code of the archive runs, no header is believed, and
memory stays within a few megabytes whatever the archive claims.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from verifiers.archives.checked import Checked
from verifiers.archives.limits import DEFAULTS, Budget, Limits
from verifiers.archives.members import Entry, Member, content_hash, read_members
from verifiers.archives.names import FileName, Kind, file_name_of
from verifiers.archives.polyglot import refuse_polyglot
from verifiers.archives.refusal import ArchiveRefused, shown
from verifiers.archives.sdist import below_top, sdist_parts, wanted_in_sdist
from verifiers.archives.tar import tar_entries
from verifiers.archives.wheel import wanted_in_wheel, wheel_parts
from verifiers.archives.zip import data_start, read_directory, unpacked, zip_entries

File = str | os.PathLike[str] | IO[bytes]


def check(path: File, filename: str | None = None, limits: Limits = DEFAULTS) -> Checked:
    """A wheel or an sdist, as its name says. `filename` is the name it is published under; without one, the path's."""
    with _opened(path, filename) as (file, text):
        name = file_name_of(text, limits)
        return _check(file, name, limits)


def check_wheel(path: File, filename: str | None = None, limits: Limits = DEFAULTS) -> Checked:
    """As `check`, and another kind of file is refused."""
    return _check_kind("wheel", path, filename, limits)


def check_sdist(path: File, filename: str | None = None, limits: Limits = DEFAULTS) -> Checked:
    """As `check`, and another kind of file is refused."""
    return _check_kind("sdist", path, filename, limits)


def _check_kind(kind: Kind, path: File, filename: str | None, limits: Limits) -> Checked:
    with _opened(path, filename) as (file, text):
        name = file_name_of(text, limits)
        if name.kind != kind:
            raise ArchiveRefused("filename_invalid", f"{shown(text)} is no name of a {kind}")
        return _check(file, name, limits)


def _check(file: IO[bytes], name: FileName, limits: Limits) -> Checked:
    size = _size(file)
    if size == 0:
        raise ArchiveRefused("empty_file", "the file is empty")
    if size > limits.max_size_bytes:
        raise ArchiveRefused("too_large", f"the file has {size:,} bytes; at most {limits.max_size_bytes:,} are taken")
    refuse_polyglot(file, size, name.kind)
    if name.kind == "wheel":
        contents = read_members(zip_entries(file, size, limits), limits, wanted_in_wheel(name, limits))
        metadata, module, environment = wheel_parts(name, contents, limits)
    else:
        entries = below_top(tar_entries(file, size, limits), name.folder)
        contents = read_members(entries, limits, wanted_in_sdist(limits))
        metadata, module, environment = sdist_parts(name, contents, limits)
    sha256, md5, blake2 = _digests(file)
    return Checked(
        kind=name.kind,
        filename=name.text,
        project=metadata.name,
        normalized=name.normalized,
        version=name.version,
        sha256=sha256,
        md5=md5,
        blake2_256=blake2,
        size_bytes=size,
        name=name,
        metadata=metadata,
        members=tuple(contents.members),
        module=module,
        content_hash=content_hash(contents.members) if name.kind == "sdist" else None,
        environment=environment,
    )


def read_member(path: File, member: Member | str, max_bytes: int, limits: Limits = DEFAULTS) -> bytes:
    """The first `max_bytes` bytes of a member of a file that was checked. A `Member` that is read to its end must have
    the content that it had then. Raises ArchiveRefused with `no_such_member` or `member_changed`."""
    wanted = member.path if isinstance(member, Member) else member
    with _opened(path, "") as (file, _):
        content, is_whole = _first_bytes(_chunks_of(file, wanted, limits), max_bytes)
    if isinstance(member, Member) and is_whole and hashlib.sha256(content).hexdigest() != member.sha256:
        raise ArchiveRefused("member_changed", f"{shown(wanted)} is not what it was when the file was checked")
    return content


def _chunks_of(file: IO[bytes], wanted: str, limits: Limits) -> Iterator[bytes]:
    size = _size(file)
    file.seek(0)
    if file.read(2) == b"PK":
        records, _ = read_directory(file, size, limits)
        for record in records:
            if record.path == wanted and not record.is_folder:
                yield from unpacked(file, data_start(file, record), record, Budget(limits, size))
                return
    else:
        for entry in tar_entries(file, size, limits):
            if entry.path.partition("/")[2] == wanted and not entry.is_folder:
                yield from entry.chunks
                return
            _pass_over(entry)
    raise ArchiveRefused("no_such_member", f"there is no file {shown(wanted)} in the archive")


def _pass_over(entry: Entry) -> None:
    for _ in entry.chunks:
        pass


def _first_bytes(chunks: Iterator[bytes], max_bytes: int) -> tuple[bytes, bool]:
    """The bytes, and whether those are all."""
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) > max_bytes:
            return bytes(found[:max_bytes]), False
    return bytes(found), True


@contextmanager
def _opened(path: File, filename: str | None) -> Iterator[tuple[IO[bytes], str]]:
    """The open file and the name it goes by; an open one is left open."""
    if isinstance(path, str | os.PathLike):
        with Path(path).open("rb") as file:
            yield file, Path(path).name if filename is None else filename
    elif filename is None:
        raise ArchiveRefused("filename_invalid", "an open file has no name: give the one it is published under")
    else:
        yield path, filename


def _size(file: IO[bytes]) -> int:
    file.seek(0, os.SEEK_END)  # of a spooled file, this gives no position back
    return file.tell()


def _digests(file: IO[bytes]) -> tuple[str, str, str]:
    """SHA-256, MD5 and BLAKE2b of 256 bits in hex: those that upload forms carry."""
    # MD5 only answers for old tools; nothing is trusted because of it
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    blake2 = hashlib.blake2b(digest_size=32)
    file.seek(0)
    while chunk := file.read(1 << 18):
        sha256.update(chunk)
        md5.update(chunk)
        blake2.update(chunk)
    return sha256.hexdigest(), md5.hexdigest(), blake2.hexdigest()
