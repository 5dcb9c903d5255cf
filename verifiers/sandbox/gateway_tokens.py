"""`Tokens`: who may use a gateway, by the hashes of bearer tokens."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from verifiers.errors import ConfigError

MIN_LENGTH = 16


class Tokens:
    """Each line is a token, or a name and a token. Tokens of one name see the same sandboxes: so one can be replaced.

    The tokens themselves are not kept.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._owners: list[tuple[bytes, str]] = []
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) > 2:
                raise ConfigError(f"line {number} of the tokens has {len(words)} words; it is TOKEN, or NAME TOKEN")
            token = words[-1]
            if len(token) < MIN_LENGTH:
                raise ConfigError(
                    f"the token of line {number} has {len(token)} characters; take at least {MIN_LENGTH}, "
                    "such as from: python3 -c 'import secrets; print(secrets.token_urlsafe())'"
                )
            digest = _digest(token)
            self._owners.append((digest, words[0] if len(words) == 2 else f"token-{digest.hex()[:8]}"))
        if not self._owners:
            raise ConfigError("no token is given, and a gateway serves nobody without one")

    def owner_of(self, authorization: str | None) -> str | None:
        """Whose the header is; None: nobody's. Takes the same time for each wrong token."""
        scheme, _, token = (authorization or "").partition(" ")
        asked = _digest(token.strip() if scheme.lower() == "bearer" else "")
        found = None
        for digest, owner in self._owners:
            if hmac.compare_digest(digest, asked):
                found = owner
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
