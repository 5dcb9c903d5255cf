"""Messages between launcher and cell: sockets that keep them whole, and send open files along."""

from __future__ import annotations

import _socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_FILES = 16
_CLOSE_ON_EXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)


def receive(source: _socket.socket) -> tuple[bytes, list[int]]:
    """Nothing, when the other end has hung up."""
    fds: list[int] = []
    try:
        message, extra, _, _ = source.recvmsg(4096, _socket.CMSG_SPACE(_MAX_FILES * 4), _CLOSE_ON_EXEC)
    except ConnectionError:
        return b"", []
    for level, kind, data in extra:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    return message, fds


def say(target: _socket.socket, message: dict[str, Any], fds: list[int] | None = None) -> bool:
    """False when nobody listens."""
    extra = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    try:
        target.sendmsg([text(message)], extra)
    except OSError:
        return False
    return True


def text(message: dict[str, Any]) -> bytes:
    """Lines of a name and a value."""
    lines = (f"{name} {' '.join(str(value).split())[:1000]}" for name, value in message.items())
    return "\n".join(lines).encode()
