"""Passwords: argon2id, at sign-in and nowhere else. Programs use tokens, which need no slow hash."""

from __future__ import annotations

import threading
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from hub_server.errors import BadRequest

MIN_CHARS = 10
MAX_CHARS = 1_000

_HASHER = PasswordHasher(time_cost=3, memory_cost=32 * 1024, parallelism=1)  # 32 MiB, about 50 ms
_AT_ONCE = threading.Semaphore(2)  # guards memory: a flood of sign-ins takes 64 MiB, however many threads there are


def hashed(password: str) -> str:
    """Raises BadRequest for one that is too short or too long."""
    if not MIN_CHARS <= len(password) <= MAX_CHARS:
        raise BadRequest(
            f"a password has {MIN_CHARS} to {MAX_CHARS} characters; this one has {len(password)}",
            code="password_length",
        )
    with _AT_ONCE:
        return _HASHER.hash(_encoded(password))


def is_right(password: str, password_hash: str | None) -> bool:
    """Takes as long without a hash as with one, so that the time does not tell which names exist."""
    with _AT_ONCE:
        try:
            matches = _HASHER.verify(password_hash or _nobodys(), _encoded(password[: MAX_CHARS + 1]))
        except (VerificationError, InvalidHashError):
            return False
    return matches and password_hash is not None


def is_outdated(password_hash: str) -> bool:
    """Whether it was made with other parameters than today's: hash again at the next sign-in."""
    return _HASHER.check_needs_rehash(password_hash)


@cache
def _nobodys() -> str:
    return _HASHER.hash("the password of an account that is not there")


def _encoded(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
