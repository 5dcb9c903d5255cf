"""Unpacking a tar that somebody else made: Python's `data` filter, and the same rules where Python has none yet.

`tarfile` has filters since 3.11.4; Debian 12's Python is 3.11.2.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path


def check_member(member: tarfile.TarInfo, folder: str | Path) -> None:
    """Raises tarfile.TarError for a member that would lie outside `folder`, link out of it, or is neither file, folder
    nor link."""
    if hasattr(tarfile, "data_filter"):
        tarfile.data_filter(member, str(folder))
        return
    root = os.path.realpath(folder)
    place = os.path.realpath(os.path.join(root, member.name))
    targets = [place]
    if member.issym():
        targets.append(os.path.realpath(os.path.join(os.path.dirname(place), member.linkname)))
    elif member.islnk():
        targets.append(os.path.realpath(os.path.join(root, member.linkname)))
    elif not (member.isfile() or member.isdir()):
        raise tarfile.TarError(f"'{member.name}' is neither file, folder nor link")
    for target in targets:
        if target != root and not target.startswith(f"{root}{os.sep}"):
            raise tarfile.TarError(f"'{member.name}' leads out of the archive's folder")


def unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: str | Path) -> None:
    """Writes a member below `folder`, as ours and without special modes. Raises tarfile.TarError as `check_member`."""
    if hasattr(tarfile, "data_filter"):
        archive.extract(member, folder, filter="data")
        return
    check_member(member, folder)
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    member.mode = 0o755 if member.isdir() else (member.mode | 0o600) & 0o755
    archive.extract(member, folder, set_attrs=not member.issym())
