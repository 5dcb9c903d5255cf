"""`Arrived`: a file that a client sent, whole and on the disk, before anybody has looked at it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Arrived:
    """`path` is gone when the request ends."""

    path: Path
    filename: str  # as the client says
    size_bytes: int
    sha256: str
    began_at: datetime  # when its request began
