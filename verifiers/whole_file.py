"""`replace_file`: a file that is there as a whole or not at all, whatever dies meanwhile."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, *parts: bytes | memoryview) -> None:
    """All at once, and on the disk when it returns: a reader sees the old content or the new. One writer at a time.

    Raises OSError; the old file is then still there.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        with new.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    sync(path.parent)  # a rename is on the disk when its folder is


def sync(path: Path) -> None:
    """To the disk itself: a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
