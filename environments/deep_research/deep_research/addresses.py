"""`AddressGuard`: which addresses may be fetched. What a model names must not reach into the network it runs in.

A host name is looked up once and all its addresses are looked at; the connection then goes to one of exactly these,
so that a name cannot change its mind between the check and the connection. Redirects are addresses like any other.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from deep_research.provider import PageError, Unavailable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Lookup = Callable[[str, int, socket.AddressFamily], Awaitable[Sequence[ResolveResult]]]

URL_CHARS = 2_000
_PORTS = frozenset({80, 443})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # holds an IPv4 address in its last 32 bits


def is_public(address: Address) -> bool:
    """Whether an address belongs to the internet at large, also when it wraps another one.

    >>> [is_public(ipaddress.ip_address(text)) for text in ("9.9.9.9", "169.254.169.254", "::ffff:10.0.0.1")]
    [True, False, False]
    """
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved


class AddressGuard(AbstractResolver):
    """A resolver for aiohttp that gives no address which `is_allowed` refuses; `check` does the same for URLs.

    `ports`: those that may be asked; `None`: all.
    """

    def __init__(
        self,
        is_allowed: Callable[[Address], bool] = is_public,
        ports: frozenset[int] | None = _PORTS,
        lookup: Lookup | None = None,
    ) -> None:
        self.is_allowed = is_allowed
        self.ports = ports
        self._lookup: Lookup = lookup or _system_lookup

    def check(self, text: str) -> URL:
        """The URL, with http or https, that may be asked for. Raises PageError saying why not."""
        shown = text[:200]
        if "://" not in text:
            text = f"https://{text}"
        try:
            url = URL(text)
            host, port = url.raw_host, url.port  # as it is asked for, other digits than ours written as ours
        except ValueError as error:
            raise PageError(f"{shown!r} is no address: {error}") from None
        if len(text) > URL_CHARS or any(not c.isprintable() or c.isspace() for c in text):
            raise PageError(f"{shown!r} is no address")
        if url.scheme not in ("http", "https") or not host or ("." not in host and ":" not in host):
            raise PageError(f"{shown!r} is no address of a web page; one starts with https://")
        if url.user or url.password:
            raise PageError(f"{url.host}: an address with a user or a password is not opened")
        if self.ports is not None and port not in self.ports:
            raise PageError(f"{host}: port {port} is not opened, only {', '.join(map(str, sorted(self.ports)))}")
        # no look-up comes between these and the connection, and the system reads 127.1 as an address too
        if (":" in host or host.replace(".", "").isdigit()) and not self._allows(host):
            raise _internal(host)
        return url

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The host's addresses, if all of them are allowed. Raises PageError; Unavailable when names cannot be looked
        up at all."""
        try:
            found = await self._lookup(host, port, family)
        except OSError as error:
            if _code_of(error) == socket.EAI_AGAIN:
                raise Unavailable(f"the name service of this machine does not answer ({host})") from None
            raise PageError(f"there is no host {host}") from None
        if not found or not all(self._allows(one["host"]) for one in found):
            raise _internal(host)
        return list(found)

    def socket_for(self, info: tuple[Any, ...]) -> socket.socket:
        """The socket of a connection that is about to be made: the last look at its address. Raises OSError."""
        family, kind, protocol, _, address = info
        if not self._allows(str(address[0])):
            raise OSError(f"{address[0]} is not allowed")
        return socket.socket(family, kind, protocol)

    def _allows(self, host: str) -> bool:
        address = _literal(host)
        return address is not None and self.is_allowed(address)

    async def close(self) -> None:
        pass


async def _system_lookup(host: str, port: int, family: socket.AddressFamily) -> Sequence[ResolveResult]:
    return await ThreadedResolver().resolve(host, port, family)


def _code_of(error: OSError) -> int | None:
    """The number of the failed look-up; aiohttp wraps the error that has it."""
    cause = error.__cause__ if isinstance(error.__cause__, socket.gaierror) else error
    return cause.errno


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _internal(host: str) -> PageError:
    return PageError(f"{host} is an address of an internal network, which is not opened")
