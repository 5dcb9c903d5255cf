"""`OpenEnvServer`: a server of OpenEnv environments, and the sessions that are held with it.

A session is one WebSocket connection, with an environment of its own behind it; on it one message is answered by one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from verifiers.clients.endpoint import Endpoint
from verifiers.errors import EnvironmentFault, InfraError, one_line
from verifiers.types import Tool

MAX_MESSAGE_BYTES = 100 << 20  # screenshots and whole web pages are observations too
CLOSE_LIMIT_S = 5.0  # how long the server may take to end a session before the connection is dropped
FIRST_REST_S, LONGEST_REST_S = 0.1, 5.0  # between tries while others hold all of the server's sessions


@dataclass(frozen=True)
class Step:
    """What the environment answered to a reset or an action."""

    observation: Any
    reward: float | None  # None: the environment gave none
    is_over: bool


class ActionRefused(ValueError):
    """The action does not fit the environment's schema. Its text is for the model."""


class ServerFull(Exception):
    """The server holds as many sessions as it takes."""

    def __init__(self, max_sessions: int | None) -> None:
        super().__init__(max_sessions)
        self.max_sessions = max_sessions


class OpenEnvServer:
    """Where it is, and how many sessions it takes at a time, as far as it has said so.

    By default it takes one: sessions that would be refused wait for those before them.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        start_timeout_s: float = 30.0,
        start_poll_s: float = 1.0,
        message_timeout_s: float = 60.0,
    ) -> None:
        address = base_url.strip()
        if address.startswith(("ws://", "wss://")):
            address = "http" + address.removeprefix("ws")
        self.endpoint = Endpoint(address.rstrip("/").removesuffix("/ws"), headers=headers or {})
        self.start_timeout_s, self.start_poll_s = start_timeout_s, start_poll_s
        self.message_timeout_s = message_timeout_s
        self._has_answered = False
        self._places_of: WeakKeyDictionary[asyncio.AbstractEventLoop, Places] = WeakKeyDictionary()
        self._schema: dict[str, Any] | None = None

    @property
    def address(self) -> str:
        return self.endpoint.base_url

    async def begin(self, seed: int) -> tuple[OpenEnvSession, Step, float]:
        """A new session, its first observation, and the seconds spent waiting for a place.

        Raises InfraError when the server is not there, EnvironmentFault when its environment fails.
        """
        places, waited_s, rest_s = self._places(), 0.0, FIRST_REST_S
        while True:
            waited_s += await places.take()
            session = OpenEnvSession(self, places)
            try:
                await session.connect()
                return session, await session.reset(seed), waited_s
            except ServerFull as full:
                await session.close()
                places.limit = max(1, full.max_sessions or places.taken)
                if places.taken < places.limit:  # somebody else's sessions: nothing here says when they end
                    await asyncio.sleep(rest_s)
                    waited_s, rest_s = waited_s + rest_s, min(2 * rest_s, LONGEST_REST_S)
            except BaseException:
                await session.close()
                raise

    async def action_schema(self) -> dict[str, Any]:
        """The JSON Schema of its actions, asked for once. Raises InfraError."""
        if self._schema is None:
            import aiohttp

            url = f"{self.address}/schema"
            try:
                async with (
                    self.http_session() as http,
                    http.get(url, **self.way()) as reply,
                ):
                    reply.raise_for_status()
                    found = msgspec.json.decode(await reply.read(), type=dict[str, Any])
            except (aiohttp.ClientError, msgspec.DecodeError, OSError) as error:  # a TimeoutError is an OSError
                raise InfraError(f"the OpenEnv server at {url} does not tell its schema: {one_line(error)}") from error
            self._schema = dict(found.get("action") or {})
        return self._schema

    async def connected(self, http: Any) -> Any:
        """The WebSocket. A server that has not answered before may still be starting. Raises InfraError."""
        import aiohttp

        deadline = time.monotonic() + (0.0 if self._has_answered else self.start_timeout_s)
        while True:
            try:
                socket = await http.ws_connect(f"{self.address}/ws", max_msg_size=MAX_MESSAGE_BYTES, **self.way())
                self._has_answered = True
                return socket
            except (aiohttp.ClientError, OSError) as error:
                status = getattr(error, "status", None)
                if status is not None and 400 <= status < 500:
                    raise InfraError(
                        f"{self.address}/ws answers HTTP {status}: no OpenEnv server, or one from before there were "
                        "sessions (openenv-core 0.2)"
                    ) from error
                if time.monotonic() >= deadline:
                    raise InfraError(
                        f"no OpenEnv server answers at {self.address}: {one_line(error)}. Is it running?"
                    ) from error
            await asyncio.sleep(self.start_poll_s)

    def http_session(self) -> Any:
        """One of aiohttp; its time limit is that of the first answer, not of a WebSocket's life."""
        import aiohttp

        limit = aiohttp.ClientTimeout(total=self.message_timeout_s)
        return aiohttp.ClientSession(headers=dict(self.endpoint.headers), timeout=limit)

    def way(self) -> dict[str, Any]:
        """The proxy that the environment names for it, for a request."""
        from verifiers.clients.pool import proxy_for

        proxy, headers = proxy_for(self.endpoint)
        return {"proxy": proxy, "proxy_headers": headers} if proxy is not None else {}

    def _places(self) -> Places:
        """Those of the running event loop."""
        loop = asyncio.get_running_loop()
        places = self._places_of.get(loop)
        if places is None:
            places = self._places_of[loop] = Places()
        return places


class Places:
    """How many sessions are open, and how many may be (None: the server has refused none yet)."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self.taken = 0
        self._freed = asyncio.Condition()

    async def take(self) -> float:
        """Waits for a place; returns the seconds."""
        began = time.perf_counter()
        async with self._freed:
            await self._freed.wait_for(lambda: self.limit is None or self.taken < self.limit)
            self.taken += 1
        return time.perf_counter() - began

    async def give_back(self) -> None:
        self.taken -= 1
        async with self._freed:
            self._freed.notify()


class Reply(msgspec.Struct):
    """A message of the server."""

    type: str
    data: dict[str, Any] = {}


class OpenEnvSession:
    """One connection. Use `OpenEnvServer.begin`; belongs to the event loop that opened it."""

    def __init__(self, server: OpenEnvServer, places: Places) -> None:
        self._server, self._places = server, places
        self._http: Any = None
        self._socket: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._replies: asyncio.Queue[str | bytes | None] = asyncio.Queue()  # None: the connection has ended
        self._is_closed = False

    async def connect(self) -> None:
        self._http = self._server.http_session()
        self._socket = await self._server.connected(self._http)
        # pings are answered where the socket is read: without a reader the server would hang up on a slow model
        self._reader = asyncio.create_task(self._read())

    async def reset(self, seed: int) -> Step:
        return self._step(await self._ask("reset", {"seed": seed}))

    async def step(self, action: Mapping[str, Any]) -> Step:
        """Raises ActionRefused when the action does not fit the schema, EnvironmentFault when the step fails."""
        try:
            return self._step(await self._ask("step", dict(action)))
        except _Invalid as refused:
            raise refused.about(action) from None

    async def state(self) -> dict[str, Any]:
        """What the server tells of the episode, such as `step_count`."""
        return (await self._ask("state")).data

    async def tools(self) -> list[Tool]:
        """The tools of an environment that is played by calling them."""
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        answer = (await self._ask("mcp", call)).data
        listed = (answer.get("result") or {}).get("tools")
        if not listed:
            raise EnvironmentFault(
                f"the OpenEnv server at {self._server.address} lists no tools: {answer.get('error')}"
            )
        return [
            Tool(t["name"], t.get("description") or "", t.get("input_schema") or t.get("inputSchema")) for t in listed
        ]

    async def close(self) -> None:
        """Ends the session at the server, then the connection. Does nothing the second time."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._reader is not None and not self._reader.done():
                with suppress(Exception):  # it may be gone
                    await self._socket.send_str('{"type":"close"}')
                    await asyncio.wait([self._reader], timeout=CLOSE_LIMIT_S)
        finally:
            if self._reader is not None:
                self._reader.cancel()
            if self._http is not None:
                await self._http.close()
            if self._socket is not None:  # which a connection that was cut has not let go of
                with suppress(Exception):
                    await self._socket.close()
            await self._places.give_back()

    async def _read(self) -> None:
        import aiohttp

        try:
            while True:
                message = await self._socket.receive()
                if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                    return
                self._replies.put_nowait(message.data)
        finally:
            self._replies.put_nowait(None)

    async def _ask(self, kind: str, data: Mapping[str, Any] | None = None) -> Reply:
        message = {"type": kind} if data is None else {"type": kind, "data": data}
        with suppress(ConnectionError):  # it hung up, perhaps with a reason that lies there to be read
            await self._socket.send_str(msgspec.json.encode(message).decode())
        limit_s, where = self._server.message_timeout_s, f"the OpenEnv server at {self._server.address}"
        try:
            async with asyncio.timeout(limit_s):
                text = await self._replies.get()
        except TimeoutError:
            raise InfraError(f"{where} did not answer '{kind}' within {limit_s:g} s") from None
        if text is None:
            raise InfraError(f"{where} closed the session before it answered '{kind}'")
        try:
            reply = msgspec.json.decode(text, type=Reply)
        except msgspec.DecodeError as error:
            raise InfraError(f"{where} answered '{kind}' with what is no message of OpenEnv: {error}") from error
        if reply.type != "error":
            return reply
        code, said = reply.data.get("code"), reply.data.get("message")
        if code == "CAPACITY_REACHED":
            raise ServerFull(reply.data.get("max_sessions"))
        fault = f"{where} failed in '{kind}': {said} ({code})"
        if code == "VALIDATION_ERROR":
            raise _Invalid(fault, reply.data.get("errors"))
        raise EnvironmentFault(fault)

    def _step(self, reply: Reply) -> Step:
        reward = reply.data.get("reward")
        if reward is not None and not isinstance(reward, (int, float)):
            raise EnvironmentFault(f"the OpenEnv server at {self._server.address} gave no number as reward: {reward!r}")
        is_over = bool(reply.data.get("done"))
        return Step(reply.data.get("observation"), None if reward is None else float(reward), is_over)


def _definition(tool: Mapping[str, Any]) -> Tool:
    return Tool(tool["name"], tool.get("description") or "", tool.get("input_schema") or tool.get("inputSchema"))


class _Invalid(EnvironmentFault):
    """The server found something invalid: the action, or what its environment made of it."""

    def __init__(self, fault: str, errors: Any) -> None:
        super().__init__(fault)
        self.errors = [e for e in errors or () if isinstance(e, Mapping)]

    def about(self, action: Mapping[str, Any]) -> Exception:
        """ActionRefused when every complaint is of something in the action; else the environment's fault."""
        if not self.errors or not all(_is_of(error, dict(action)) for error in self.errors):
            return EnvironmentFault(str(self))
        return ActionRefused("; ".join(f"{_place(error)}{error.get('msg')}" for error in self.errors))


def _is_of(error: Mapping[str, Any], action: dict[str, Any]) -> bool:
    """Whether it is the action that is invalid, and not an observation that the environment made of it."""
    given, place = error.get("input"), (error.get("loc") or [None])[0]
    is_known = place is None or place in action or place in _values(action) or error.get("type") == "missing"
    return is_known and (given == action or given in _values(action))


def _values(value: Any) -> list[Any]:
    """All that is inside, at any depth."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return inner + [deeper for item in inner for deeper in _values(item)]


def _place(error: Mapping[str, Any]) -> str:
    where = ".".join(map(str, error.get("loc") or ()))
    return f"{where}: " if where else ""
