"""`Cursor`: where a page of a list ended, as text that a client hands back to get the next page.

It holds the sort keys of the page's last row and nothing else: what the page itself shows. No number of a row is in it
(those tell how much is hidden on this hub), and none is looked up when it comes back, so whatever a client writes into
one, it learns nothing that the list does not say anyway. What it names may be gone by then; the list goes on behind it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hub_server.errors import BadRequest

LONGEST = 1_000
Key = str | int | float | datetime


def write_cursor(sort: str, keys: Sequence[Key]) -> str:
    """`sort` names the list's order; keys of one order do not fit another."""
    shown = [key.isoformat() if isinstance(key, datetime) else key for key in keys]
    text = json.dumps([sort, *shown], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(text: str, sort: str, kinds: Sequence[type[Key]]) -> list[Any]:
    """The keys, of these kinds. Raises BadRequest (`bad_cursor`)."""
    try:
        if len(text) > LONGEST:
            raise ValueError(text)
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        named, *values = found
        if named != sort or len(values) != len(kinds):
            raise ValueError(named)
        return [_key(value, kind) for value, kind in zip(values, kinds, strict=True)]
    except (ValueError, TypeError, RecursionError, OverflowError):  # halves of letters, the end of the last year
        raise BadRequest(
            "'after' is not the 'next' of a page of this list: begin again without it", code="bad_cursor"
        ) from None


def _key(value: Any, kind: type[Key]) -> Key:
    """Raises ValueError, TypeError, OverflowError for what a database could not compare."""
    if kind is datetime:
        return datetime.fromisoformat(value).astimezone(UTC)
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind is int and type(value) is int and abs(value) < 1 << 62:
        return value
    if kind is str and isinstance(value, str) and b"\0" not in value.encode():
        return value
    raise ValueError(f"{value!r} is no {kind.__name__}")
