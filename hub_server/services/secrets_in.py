"""Secrets of this hub in what is sent to be kept: refused, so that whoever sent them learns of the leak."""

from __future__ import annotations

import re

from hub_server.errors import Unprocessable
from hub_server.tokens import is_wellformed

_LOOKS_LIKE = re.compile(rb"vf[hsd]_[0-9A-Za-z]{49}(?![0-9A-Za-z])")


def refuse_hub_secrets(data: bytes, where: str) -> None:
    """Raises Unprocessable (code `hub_secret`) when a token or session of a hub stands in `data`; never repeats it."""
    if b"vfh_" not in data and b"vfs_" not in data and b"vfd_" not in data:
        return
    for match in _LOOKS_LIKE.finditer(data):
        text = match[0].decode()
        if is_wellformed(text, kind=text[:4]):  # pyright: ignore[reportArgumentType]
            raise Unprocessable(
                f"{where} contains a token of a hub (it begins with {text[:8]}). Revoke it, take it out of the "
                "results, and send them again",
                code="hub_secret",
            )
