"""`refuse_polyglot`: a file that is a ZIP to one reader and a tar to another is none of ours."""

from __future__ import annotations

import os
import re
from typing import IO

from verifiers.archives.names import Kind
from verifiers.archives.refusal import ArchiveRefused

_END_BYTES = 22  # a ZIP's end record without its comment
_BLOCK = 512


def refuse_polyglot(file: IO[bytes], size: int, kind: Kind) -> None:
    """Raises ArchiveRefused with `polyglot`."""
    if is_tar(file) if kind == "wheel" else has_zip_end(file, size):
        raise ArchiveRefused("polyglot", "the file is a ZIP to some readers and a tar to others")


def is_tar(file: IO[bytes]) -> bool:
    """Whether the first block is a tar's header by its sum, which also holds for tars older than their magic word."""
    file.seek(0)
    block = file.read(_BLOCK)
    digits = block[148:156].strip(b" \0")
    if len(block) < _BLOCK or not re.fullmatch(rb"[0-7]+", digits):
        return False
    return int(digits, 8) == 256 + sum(block) - sum(block[148:156])


def has_zip_end(file: IO[bytes], size: int) -> bool:
    """Whether an end record with a comment that fills the rest of the file is in the last 64 KiB."""
    start = max(0, size - 0xFFFF - _END_BYTES)
    file.seek(start, os.SEEK_SET)
    tail = file.read()
    place = tail.find(b"PK\x05\x06")
    while place >= 0:
        comment = int.from_bytes(tail[place + 20 : place + 22], "little")
        if place + _END_BYTES + comment == len(tail):
            return True
        place = tail.find(b"PK\x05\x06", place + 1)
    return False
