"""`Pool`: the connections of one client in one event loop. The only file that knows aiohttp.

One connector without a limit of its own (`Limiter` decides how much is asked), one session for each replica. The pool
closes with its event loop: nobody has to remember to.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import io
import os
import time
import urllib.request
import zlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from verifiers.clients.deadlines import Deadlines
from verifiers.clients.endpoint import Endpoint, is_loopback
from verifiers.clients.limiter import Limiter, Pace
from verifiers.clients.retry import Fault

KEEPALIVE_S = 60.0
READ_BUFFER_BYTES = 4 << 20  # a reply with log-probabilities should not be stopped and started on its way in
LARGE_BODY_BYTES = 1 << 20  # from here on aiohttp wants a file, so that it can send in pieces
RESERVED_FILES = 256  # for the results, sandboxes and the rest of the program
REST_S, LONGEST_REST_S = 2.0, 60.0  # of a replica that refused a connection, doubled each time

_NO_HEADERS: Mapping[str, str] = {}
_TLS_FAULTS = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError, aiohttp.ClientSSLError)


class Replica:
    """One server of a pool: its session, its places, and how it has been doing."""

    def __init__(
        self, endpoint: Endpoint, connector: aiohttp.BaseConnector, deadlines: Deadlines, ceiling: int
    ) -> None:
        self.endpoint = endpoint
        self.deadlines = deadlines
        self.limiter = Limiter(min(endpoint.max_connections, ceiling))
        self.proven = False  # it has answered a request of ours
        self.rested_until = 0.0
        self.proxy, self.proxy_headers = proxy_for(endpoint)
        self.session = _session(endpoint, connector)
        if self.proxy_headers and endpoint.base_url.startswith("http:"):  # else only the CONNECT request carries them
            self.session.headers.update(self.proxy_headers)
        self._rest_s = REST_S
        self._urls: dict[str, URL] = {}
        self._heads: dict[tuple[str, str], bytes] = {}
        self._connector = connector
        self._timeout = self.session.timeout
        self._is_direct = self.proxy is None and self.url("").user is None
        # aiohttp asks a request where to connect to; this one is never sent
        self._destination = aiohttp.ClientRequest(
            "POST", self.url(""), loop=asyncio.get_running_loop(), session=self.session
        )

    def url(self, path: str) -> URL:
        url = self._urls.get(path)
        if url is None:
            base = self.endpoint.base_url
            if path.startswith("/inference/"):  # vLLM serves these beside /v1, not below
                base = base.removesuffix("/v1")
            url = self._urls[path] = URL(base + path).extend_query(dict(self.endpoint.query))
        return url

    def answered(self) -> None:
        self.proven = True
        self._rest_s = REST_S

    def rest(self) -> None:
        """It takes no connections: leave it alone for a while."""
        now = time.monotonic()
        if now >= self.rested_until:
            self.rested_until = now + self._rest_s
            self._rest_s = min(LONGEST_REST_S, 2 * self._rest_s)

    async def send(
        self, method: str, path: str, body: bytes | None, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One attempt: status, headers and whole body. Raises Fault. Cancelling closes the connection."""
        task = self.deadlines.start(timeout_s)
        try:
            if self._is_direct:
                return await self._exchange(method, path, body, headers)
            return await self._exchange_by_session(method, path, body, headers)
        except asyncio.CancelledError:
            if self.deadlines.is_up(task):
                raise Fault("timeout", f"no complete answer within {timeout_s:g} s") from None
            raise
        except aiohttp.ConnectionTimeoutError:
            raise Fault("unreachable", f"no connection within {self.endpoint.connect_timeout_s:g} s") from None
        except _TLS_FAULTS as error:
            raise Fault("final", f"no secure connection: {error}") from None
        except aiohttp.ClientConnectorError as error:
            raise _not_connected(error) from None
        except HttpProcessingError as error:
            raise Fault("reset", f"the answer is no HTTP ({error.message})", soft=True) from None
        except aiohttp.ServerDisconnectedError:
            raise Fault("reset", "the server closed the connection without an answer", soft=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Fault("reset", f"the connection broke ({_in_words(error)})", soft=True) from None
        except RuntimeError as error:
            if not self.session.closed:
                raise
            raise Fault("final", f"the client was closed ({error})") from None
        finally:
            self.deadlines.end(task)

    async def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Over a connection of the pool, without aiohttp's request and response objects.

        These cost twice what all the rest of a request does; what they would work out anew each time (request line,
        headers) is the same for every request to a server.
        """
        data = b"" if body is None else body
        head = self._head(method, path) if headers is None else self._head_with(method, path, headers)
        try:
            connection = await self._connector.connect(self._destination, [], self._timeout)
        except TimeoutError:
            raise Fault("unreachable", f"no connection within {self.endpoint.connect_timeout_s:g} s") from None
        try:
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None:
                raise aiohttp.ServerDisconnectedError()
            protocol.set_response_params(
                skip_payload=False, read_until_eof=True, auto_decompress=True, read_bufsize=READ_BUFFER_BYTES
            )
            transport.write(head % len(data) + data)
            message, payload = await protocol.read()
            while 100 <= message.code < 200:  # "go on" and the like
                message, payload = await protocol.read()
            whole = await payload.read()
        except BaseException:
            connection.close()
            raise
        connection.release()
        return message.code, _NO_HEADERS if message.code == 200 else message.headers, whole

    def _head(self, method: str, path: str) -> bytes:
        """Request line and headers, with a gap for the length of the body."""
        head = self._heads.get((method, path))
        if head is None:
            head = self._heads[method, path] = _head(method, self.url(path), self.session.headers)
        return head

    def _head_with(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        own = self.session.headers.copy()
        own.update(headers)
        return _head(method, self.url(path), own)

    async def _exchange_by_session(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """The whole of aiohttp: for proxies and for addresses with a user in them."""
        data: Any = body if body is None or len(body) < LARGE_BODY_BYTES else io.BytesIO(body)
        reply = await self.session.request(
            method,
            self.url(path),
            data=data,
            headers=headers,
            allow_redirects=False,
            proxy=self.proxy,
            proxy_headers=self.proxy_headers,
        )
        # read to its end the connection goes back to the pool, and is closed if that fails
        whole = await reply.read()
        return reply.status, _NO_HEADERS if reply.status == 200 else reply.headers, whole


class Pool:
    """The replicas of one endpoint, reached from one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._connector = aiohttp.TCPConnector(
            limit=0, ttl_dns_cache=300, keepalive_timeout=KEEPALIVE_S, happy_eyeballs_delay=None
        )
        files = raise_file_limit()
        ceiling = max(files // 2, files - RESERVED_FILES) // len(endpoint.all_replicas)
        deadlines = Deadlines()
        self.replicas = [Replica(e, self._connector, deadlines, ceiling) for e in endpoint.all_replicas]
        self.pace = Pace()
        self._salts = [zlib.crc32(f"{i} {r.endpoint.base_url}".encode()) for i, r in enumerate(self.replicas)]
        self._turn = -1
        self._keeper = _close_with_loop(self._connector, deadlines, [r.session for r in self.replicas])
        _start(self._keeper)

    def pick(self, affinity: str | None) -> Replica:
        """Replicas in turn, or by `affinity` always the same one; those at rest are passed over."""
        replicas = self.replicas
        if len(replicas) == 1:
            return replicas[0]
        now = time.monotonic()
        awake = [i for i, r in enumerate(replicas) if r.rested_until <= now]
        if not awake:
            return min(replicas, key=lambda r: r.rested_until)
        if affinity is not None:  # rendezvous hashing: a replica that rests moves only the requests that were its own
            key = affinity.encode()
            return replicas[max(awake, key=lambda i: zlib.crc32(key, self._salts[i]) * 2654435761 % 2**32)]
        self._turn += 1
        return replicas[awake[self._turn % len(awake)]]

    def has_another(self, replica: Replica) -> bool:
        """Is there a replica that takes connections now?"""
        now = time.monotonic()
        return any(r is not replica and r.rested_until <= now for r in self.replicas)

    async def close(self) -> None:
        await self._keeper.aclose()


async def _close_with_loop(
    connector: aiohttp.BaseConnector, deadlines: Deadlines, sessions: list[aiohttp.ClientSession]
) -> AsyncGenerator[None, None]:
    """Suspended for the life of the pool. The loop finishes its generators before it closes, and those dropped."""
    try:
        yield
    finally:
        deadlines.close()
        for session in sessions:
            session.detach()
        await connector.close()
        await asyncio.sleep(0)  # lets the transports, thousands perhaps, say goodbye


def _start(keeper: AsyncGenerator[None, None]) -> None:
    """Run to its `yield`, which does not wait for anything."""
    try:
        keeper.__anext__().__await__().send(None)
    except StopIteration:
        pass


def _head(method: str, url: URL, headers: Mapping[str, str]) -> bytes:
    """Raises Fault for a header that would break out of its line."""
    lines = [f"{method} {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any(c in line for line in lines for c in "\r\n\0"):
        raise Fault("final", "a header or the address has a line break in it")
    head = "\r\n".join(lines).replace("%", "%%")
    return f"{head}\r\nContent-Length: %d\r\n\r\n".encode()


def _session(endpoint: Endpoint, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    encodings = "identity" if is_loopback(endpoint.host) else "gzip, deflate"
    headers = {"Accept": "application/json", "Accept-Encoding": encodings, "User-Agent": "verifiers"}
    headers["Content-Type"] = "application/json"
    if key := endpoint.key():
        headers["Authorization"] = f"Bearer {key}"
    given = dict(endpoint.headers)
    names = {name.lower() for name in given}
    headers = {name: value for name, value in headers.items() if name.lower() not in names} | given
    return aiohttp.ClientSession(
        connector=connector,
        connector_owner=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=endpoint.connect_timeout_s),
        read_bufsize=READ_BUFFER_BYTES,
    )


def proxy_for(endpoint: Endpoint) -> tuple[URL | None, dict[str, str] | None]:
    """The proxy that the environment names for this endpoint, looked up once; never one for this very machine."""
    parts = urlsplit(endpoint.base_url)
    host = parts.hostname or ""
    found = urllib.request.getproxies()
    proxy = found.get(parts.scheme) or found.get("all")
    if not proxy or is_loopback(host) or urllib.request.proxy_bypass(host):
        return None, None
    split = urlsplit(proxy if "://" in proxy else "http://" + proxy)
    netloc = split.netloc.rpartition("@")[2]
    headers = None
    if split.username:
        user = f"{unquote(split.username)}:{unquote(split.password or '')}"
        headers = {"Proxy-Authorization": "Basic " + base64.b64encode(user.encode()).decode()}
    return URL(urlunsplit((split.scheme, netloc, split.path, "", ""))), headers


def raise_file_limit() -> int:
    """Lift this process's soft limit of open files to its hard one. Returns the limit that holds afterwards."""
    try:
        import resource
    except ImportError:  # Windows
        return 1 << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = 1 << 20 if hard == unlimited else hard
    if soft == unlimited or soft >= wanted:
        return 1 << 20 if soft == unlimited else soft
    for limit in (wanted, 10_240):  # macOS refuses more than its OPEN_MAX
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
            return max(soft, limit)
        except (ValueError, OSError):
            continue
    return soft


def _not_connected(error: aiohttp.ClientConnectorError) -> Fault:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return Fault("descriptors", "this process can open no more files")
    return Fault("refused", _in_words(error.os_error))


def _in_words(error: BaseException) -> str:
    """The operating system's own words; asyncio and aiohttp wrap them in text that repeats the address."""
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0 and number in errno.errorcode:
        return os.strerror(number).lower()
    return str(error) or type(error).__name__
