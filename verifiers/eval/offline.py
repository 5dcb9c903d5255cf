"""`Watch`: what a piece of code asks of the network beyond this machine, noted and, if told so, refused.

It rests on the interpreter's audit events, which come from inside `socket`, so that no library passes by them. Other
processes are not seen.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_EVENTS = {"socket.connect": 1, "socket.sendto": 1, "socket.getaddrinfo": 0, "socket.gethostbyname": 0}
_NEAR = {"localhost", "ip6-localhost", "", "*"}


class RefusedHere(ConnectionRefusedError):
    """Raised in place of a connection beyond this machine."""


class Watch:
    """The hosts that were asked for, in order, each once."""

    def __init__(self, *, refuse: bool) -> None:
        self.refuse = refuse
        self.hosts: dict[str, None] = {}

    def saw(self, host: str) -> None:
        self.hosts[host] = None
        if self.refuse:
            raise RefusedHere(f"no network while validating: {host} was asked for")


_watching: list[Watch] = []
_is_hooked = False


@contextmanager
def watched(*, refuse: bool) -> Iterator[Watch]:
    """While the body runs, in all threads, every host beyond this machine is noted."""
    global _is_hooked
    if not _is_hooked:
        sys.addaudithook(_hook)  # there is no way to take it off again: it sleeps while nothing watches
        _is_hooked = True
    watch = Watch(refuse=refuse)
    _watching.append(watch)
    try:
        yield watch
    finally:
        _watching.remove(watch)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or event not in _EVENTS:
        return
    host = _host(arguments[_EVENTS[event]])
    if host is not None and not is_near(host):
        for watch in list(_watching):
            watch.saw(host)


def _host(address: Any) -> str | None:
    """The host of an address; `None` for a Unix socket's path."""
    if isinstance(address, tuple):
        address = address[0] if len(address) >= 2 else ""
    elif isinstance(address, (str, bytes)) and (address[:1] in ("/", b"/", "\0", b"\0")):
        return None
    return address.decode("utf-8", "replace") if isinstance(address, bytes) else str(address or "")


def is_near(host: str) -> bool:
    """Whether a host name or address is this machine itself."""
    if host.lower() in _NEAR or host == socket.gethostname():
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
