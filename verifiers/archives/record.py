"""`Record`: the list of a wheel's files with their hashes, which must be complete, exact and true."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterable

from verifiers.archives.members import Member
from verifiers.archives.refusal import ArchiveRefused, shown

_SHA256 = re.compile(r"sha256=[A-Za-z0-9_-]{43}", re.ASCII)


def check_record(raw: bytes, members: Iterable[Member], path: str) -> None:
    """`raw` is the content of RECORD and `path` its own place. Raises ArchiveRefused with `record_mismatch`."""
    rows = _rows(raw)
    unlisted_ok = {path, f"{path}.jws", f"{path}.p7s"}  # signatures cannot be in what they sign
    for member in members:
        row = rows.pop(member.path, None)
        if member.path in unlisted_ok:
            if member.path == path and row is None:
                raise ArchiveRefused("record_mismatch", "RECORD does not list itself")
            if row is not None and any(row):
                raise ArchiveRefused("record_mismatch", f"RECORD has a hash or size for {shown(member.path)} itself")
            continue
        if row is None:
            raise ArchiveRefused("record_mismatch", f"{shown(member.path)} is in the wheel but not in RECORD")
        _refuse_wrong(member, *row)
    if rows:
        raise ArchiveRefused("record_mismatch", f"RECORD lists {shown(next(iter(rows)))}, which is not in the wheel")


def _rows(raw: bytes) -> dict[str, tuple[str, str]]:
    """Path → (hash, size)."""
    found = dict[str, tuple[str, str]]()
    try:
        for row in csv.reader(io.StringIO(raw.decode(), newline=""), strict=True):
            if not row:
                continue
            path, digest, size = row
            if path in found:
                raise ArchiveRefused("record_mismatch", f"RECORD lists {shown(path)} twice")
            found[path] = (digest, size)
    except (csv.Error, ValueError):
        raise ArchiveRefused("record_mismatch", "RECORD is no table of path, hash and size in UTF-8") from None
    return found


def _refuse_wrong(member: Member, digest: str, size: str) -> None:
    if not _SHA256.fullmatch(digest):
        raise ArchiveRefused(
            "record_mismatch", f"RECORD has no sha256 for {shown(member.path)}: {shown(digest)}. Use a newer build tool"
        )
    right = base64.urlsafe_b64encode(bytes.fromhex(member.sha256)).rstrip(b"=").decode()
    if digest != f"sha256={right}":
        raise ArchiveRefused("record_mismatch", f"{shown(member.path)} is not the file that RECORD has a hash of")
    if size != str(member.size_bytes):
        raise ArchiveRefused(
            "record_mismatch",
            f"RECORD says that {shown(member.path)} has {shown(size)} bytes; it has {member.size_bytes}",
        )
