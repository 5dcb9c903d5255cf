"""`Proxies`: whose `X-Forwarded-…` headers are believed, and what a request looks like once they are."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from starlette.types import Scope

from hub_server.errors import BadRequest

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")


class Proxies:
    """`trusted` are addresses and networks, such as `10.0.0.0/8`; `unix` stands for a Unix socket."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._unix = False
        self._networks: list[Network] = []
        for text in trusted:
            if text == "unix":
                self._unix = True
                continue
            try:
                self._networks.append(ipaddress.ip_network(text, strict=False))
            except ValueError as error:
                raise BadRequest(f"VF_HUB_TRUSTED_PROXIES: '{text}' is no address or network ({error})") from error

    def __bool__(self) -> bool:
        return self._unix or bool(self._networks)

    def trusts(self, address: str) -> bool:
        if not address:
            return self._unix
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)

    def applied(self, scope: Scope) -> Scope:
        """The request as the outermost trusted proxy got it; the same scope when it came from anywhere else."""
        client = scope.get("client")
        if not self.trusts(client[0] if client else ""):
            return scope
        told: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            if name.startswith(b"x-forwarded-") or name == b"x-request-id":
                told.setdefault(name, []).append(value.decode("latin-1"))
        scope = dict(scope)
        scope["client"] = (self._client(",".join(told.get(b"x-forwarded-for", []))) or (client or ("",))[0], 0)
        scheme = ",".join(told.get(b"x-forwarded-proto", [])).rpartition(",")[2].strip().lower()
        if scheme in ("http", "https"):
            scope["scheme"] = scheme
        host = ",".join(told.get(b"x-forwarded-host", [])).rpartition(",")[2].strip()
        if host:
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope["headers"] = [(b"host", host.encode("latin-1")), *others]
        request_id = told.get(b"x-request-id", [""])[-1]
        if _REQUEST_ID.fullmatch(request_id):
            scope["state"] = {**scope.get("state", {}), "request_id": request_id}
        return scope

    def _client(self, forwarded_for: str) -> str | None:
        """The last address that no trusted proxy of ours has: what stands further left anybody can have written."""
        found = None
        for part in reversed(forwarded_for.split(",")):
            address = _without_port(part.strip())
            try:
                ipaddress.ip_address(address)
            except ValueError:
                return found
            found = address
            if not self.trusts(address):
                return found
        return found


def _without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
