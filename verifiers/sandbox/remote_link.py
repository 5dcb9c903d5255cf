"""`RemoteLink`: a client's way to a gateway. It alone decides what is asked again.

A request is asked again when it surely was not begun (no connection, or the gateway said so), and else only when it may
be repeated. A program may not.
"""

from __future__ import annotations

import asyncio
import io
import random
import weakref
from collections.abc import AsyncGenerator
from typing import NamedTuple

import aiohttp
import msgspec

from verifiers.clients.endpoint import is_loopback
from verifiers.clients.pool import raise_file_limit
from verifiers.errors import SandboxError, SetupError, one_line
from verifiers.sandbox.gateway_messages import BEAT, BEAT_S, MAX_FRAME_BYTES, Problem, Problems, SandboxGone, error_of

_ATTEMPTS = 4
_CONNECT_S = 10.0
_SILENCE_S = 4 * BEAT_S
_KEEPALIVE_S = 15.0  # shorter than the gateway's
_CONNECTIONS = 4096
_COME_AGAIN = (429, 503)


class Answer(NamedTuple):
    body: bytes
    attempts: int


class RemoteLink:
    """Serves any event loop; the connections of one close with it."""

    def __init__(self, url: str, token: str, patience_s: float) -> None:
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise SetupError(f"the gateway's address is {url!r}; it begins with http:// or https://")
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "verifiers"}
        self._patience_s = patience_s
        self._sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = weakref.WeakKeyDictionary()

    async def call(self, path: str, body: bytes | None = None, *, may_repeat: bool = True) -> Answer:
        """The answer, beats left out. Raises what the gateway says, and SandboxError when there is no answer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        attempt = 1
        while True:
            try:
                status, found, pause_s = await self._ask(path, body)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                if attempt >= _ATTEMPTS:
                    raise SandboxError(f"the gateway {self.url} is not reached: {_words(error)}") from None
                pause_s = 0.2 * 2**attempt
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                if not may_repeat:
                    raise SandboxError(
                        f"the connection to the gateway {self.url} broke ({_words(error)}); the program may have run, "
                        "so it is not run again"
                    ) from None
                if attempt >= _ATTEMPTS:
                    raise SandboxError(f"the gateway {self.url} does not answer: {_words(error)}") from None
                pause_s = 0.2 * 2**attempt
            else:
                problem = _problem(self.url, status, found)
                if problem is None:
                    return Answer(found, attempt)
                if problem.kind not in ("full", "draining") or loop.time() + pause_s > until:
                    raise error_of(problem)
            attempt += 1
            await asyncio.sleep(pause_s * random.uniform(0.75, 1.25))

    async def connect(self, path: str) -> aiohttp.ClientWebSocketResponse:
        """A connection for one process. Nothing has been started when this fails."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._session().ws_connect(
                    self.url + path,
                    heartbeat=2 * BEAT_S,
                    max_msg_size=MAX_FRAME_BYTES,
                )
            except aiohttp.WSServerHandshakeError as error:
                if error.status in (401, 403):
                    raise SetupError(f"the gateway {self.url} does not know this token") from None
                if error.status in (404, 410):
                    raise SandboxGone("the sandbox has ended: it was closed, or its time is over") from None
                raise SandboxError(f"the gateway {self.url} opens no process: HTTP {error.status}") from None
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                if attempt == _ATTEMPTS:
                    raise SandboxError(f"the gateway {self.url} is not reached: {_words(error)}") from None
            await asyncio.sleep(0.2 * 2**attempt * random.uniform(0.75, 1.25))
        raise AssertionError

    async def close(self) -> None:
        """The connections of this event loop."""
        kept = self._sessions.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept.keeper.aclose()

    async def _ask(self, path: str, body: bytes | None) -> tuple[int, bytes, float]:
        method = "GET" if body is None else "POST"
        data = None if body is None else io.BytesIO(body)  # is sent in pieces
        async with self._session().request(method, self.url + path, data=data) as response:
            found = (await response.read()).lstrip(BEAT)
            wait = response.headers.get("Retry-After", "")
            return response.status, found, float(wait) if wait.isdigit() else 1.0

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        kept = self._sessions.get(loop)
        if kept is None:
            raise_file_limit()
            session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_KEEPALIVE_S),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S),
                trust_env=not is_loopback(self.url.split("://")[1].split("/")[0].rsplit(":", 1)[0].strip("[]")),
                auto_decompress=False,
            )
            kept = self._sessions[loop] = _Kept(session, _close_with_loop(session))
            kept.start()
        return kept.session


class _Kept:
    def __init__(self, session: aiohttp.ClientSession, keeper: AsyncGenerator[None, None]) -> None:
        self.session, self.keeper = session, keeper

    def start(self) -> None:
        """Runs the keeper to its `yield`, which waits for nothing."""
        try:
            self.keeper.__anext__().__await__().send(None)
        except StopIteration:
            pass


async def _close_with_loop(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    """Suspended for the life of the session. A loop finishes its generators before it closes."""
    try:
        yield
    finally:
        await session.close()
        await asyncio.sleep(0)  # lets the transports say goodbye


def _problem(url: str, status: int, body: bytes) -> Problem | None:
    """One that came up late has the status of an answer."""
    if status < 400 and not body.startswith(b'{"error"'):
        return None
    try:
        return msgspec.json.decode(body, type=Problems).error
    except msgspec.MsgspecError:
        kind = "draining" if status in _COME_AGAIN else "sandbox"  # of what stands before the gateway
        return Problem(kind=kind, message=f"{url} answers HTTP {status}, and is no gateway or has another before it")


def _words(error: BaseException) -> str:
    return one_line(error)
