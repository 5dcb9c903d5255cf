"""Secrets that the hub hands out: tokens of programs (`vfh_`), sessions of browsers (`vfs_`), waiting devices (`vfd_`).

A secret is a prefix, 256 random bits in base 62 and a checksum: scanners find it in a leaked file, and a mistyped one
is refused without a look into the database. The hub keeps its SHA-256 alone; random bits need no slow hash.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from dataclasses import dataclass
from typing import Literal

Kind = Literal["vfh_", "vfs_", "vfd_"]

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM_CHARS = 43  # 62 ** 43 > 2 ** 256
_CHECKSUM_CHARS = 6  # 62 ** 6 > 2 ** 32
_SHOWN_CHARS = 12  # of the secret, so that people recognise it; more than 200 bits stay unknown
_FORM = re.compile(rf"vf[hsd]_[0-9A-Za-z]{{{_RANDOM_CHARS + _CHECKSUM_CHARS}}}")


@dataclass(frozen=True, slots=True)
class Secret:
    text: str  # shown once, kept nowhere
    prefix: str
    sha256: str


def make(kind: Kind = "vfh_") -> Secret:
    body = kind + _base62(secrets.randbits(256), _RANDOM_CHARS)
    text = body + _checksum(body)
    return Secret(text, text[:_SHOWN_CHARS], sha256_of(text))


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_wellformed(text: str, kind: Kind = "vfh_") -> bool:
    """Whether `make` could have made it; most typing errors and other services' tokens could not."""
    if not text.startswith(kind) or not _FORM.fullmatch(text):
        return False
    return text[-_CHECKSUM_CHARS:] == _checksum(text[:-_CHECKSUM_CHARS])


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_CHARS)


def _base62(number: int, width: int) -> str:
    digits: list[str] = []
    for _ in range(width):
        number, rest = divmod(number, 62)
        digits.append(_DIGITS[rest])
    return "".join(reversed(digits))
