"""Files of a cell, read and written by a process that has no more rights in it than a program."""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def do(request: dict[str, Any], work: str) -> None:
    """Bytes come by stdin and leave by stdout; a refusal leaves by stderr, as the error's name and text."""
    path = os.path.join(work, request["path"])
    try:
        _ACTIONS[request["do"]](path, request)
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _read(path: str, request: dict[str, Any]) -> None:
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        left = request.get("max_bytes")
        while left is None or left > 0:
            data = file.read(65536 if left is None else min(65536, left))
            if not data:
                break
            _write_all(1, data)
            left = None if left is None else left - len(data)


def open_regular(path: str, flags: int) -> int:
    """A program may have put a pipe or a device there, which would hold us up or never end."""
    fd = os.open(path, flags | os.O_NONBLOCK, 0o666)
    if stat.S_ISREG(os.fstat(fd).st_mode) or stat.S_ISDIR(os.fstat(fd).st_mode):  # a folder refuses by itself
        return fd
    os.close(fd)
    raise OSError(f"{path} is no regular file")


def write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path) or "/", exist_ok=True)
    with open(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(data)


def _write(path: str, request: dict[str, Any]) -> None:
    with open(0, "rb", closefd=False) as source:
        write(path, source.read())
    os.chmod(path, request.get("mode", 0o644))


def _pack(path: str, request: dict[str, Any]) -> None:
    import tarfile

    os.stat(path)
    with open(1, "wb", closefd=False) as out, tarfile.open(fileobj=out, mode="w|") as archive:
        archive.add(path, arcname=os.path.basename(os.path.normpath(path)))


def _unpack(path: str, request: dict[str, Any]) -> None:
    import tarfile

    os.makedirs(path, exist_ok=True)
    with open(0, "rb", closefd=False) as source, tarfile.open(fileobj=source, mode="r:*") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(path, filter="data")
            return
        for member in archive:  # Python before 3.11.4
            _check(member, os.path.realpath(path))
            archive.extract(member, path, set_attrs=not member.issym())


def _check(member: Any, folder: str) -> None:
    """What it names must lie in the folder, and what a link leads to as well."""
    place = os.path.realpath(os.path.join(folder, member.name))
    targets = [place]
    if member.issym():
        targets.append(os.path.realpath(os.path.join(os.path.dirname(place), member.linkname)))
    elif member.islnk():
        targets.append(os.path.realpath(os.path.join(folder, member.linkname)))
    elif not (member.isfile() or member.isdir()):
        raise OSError(f"the archive has {member.name}, which is neither file, folder nor link")
    for target in targets:
        if target != folder and not target.startswith(f"{folder}/"):
            raise OSError(f"the archive's {member.name} leads out of {folder}")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


_ACTIONS = {"read": _read, "write": _write, "pack": _pack, "unpack": _unpack}
