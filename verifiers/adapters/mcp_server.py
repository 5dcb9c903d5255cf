"""`MCPServer`: one server of the Model Context Protocol, kept running and spoken to from any event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from verifiers.calls import time_limit
from verifiers.errors import ConfigError, InfraError, ToolError, one_line
from verifiers.tools import cut
from verifiers.types import Tool

ANSWER_LIMIT_S = 10.0  # how long a server whose call failed may take to show that it is still there
LAST_WORDS_S = 0.5  # longer only if a child of the process holds the pipe
STOP_LIMIT_S = 10.0  # how long servers may take to end before they are left to themselves
_KEYS = ("name", "command", "args", "env", "cwd", "url", "headers", "description")


class ToolRefusal(ToolError):
    """A call that the server, or its end, answered with a failure. Its text is for the model."""


class ServerLoop:
    """An event loop in a thread of its own, started on first use.

    Connections belong to the loop that opened them, and an environment is run from several: by `asyncio.run` for each
    evaluation, by a trainer's threads.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()  # only used in this loop: one rollout at a time starts the servers
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # two threads may ask for the first time at once

    async def run(self, work: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Awaits `work(*args)` there. A cancel here cancels it."""

        async def inside() -> Any:
            return await work(*args)

        loop = self._running()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(inside(), loop))

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._is_closed:
                raise InfraError("the MCP servers of this environment were stopped by its teardown; make it anew")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="vf-mcp", daemon=True)
                self._thread.start()
            return self._loop

    async def close(self, servers: Sequence[MCPServer]) -> None:
        """Stops the servers, then the thread, for good."""
        with self._starting:
            self._is_closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        stopping = [asyncio.wrap_future(asyncio.run_coroutine_threadsafe(server.stop(), loop)) for server in servers]
        await asyncio.gather(*stopping, return_exceptions=True)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_LIMIT_S)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


@dataclass
class MCPServer:
    """A server by its description: `command` with `args`, `env` and `cwd`, or `url` with `headers`."""

    name: str
    loop: ServerLoop
    start_timeout_s: float
    command: str | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] | None = None
    description: str = ""
    _connection: _Connection | None = field(default=None, init=False, repr=False)
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)

    @classmethod
    def described(cls, server: Mapping[str, Any] | Any, loop: ServerLoop, start_timeout_s: float) -> MCPServer:
        """From a dict, or an object with such attributes. Raises ConfigError."""
        given = dict(server) if isinstance(server, Mapping) else dict(vars(server))
        if unknown := sorted(set(given) - set(_KEYS)):
            raise ConfigError(f"an MCP server has no '{unknown[0]}'; it is described by: {', '.join(_KEYS)}")
        if not given.get("name"):
            raise ConfigError(f"an MCP server needs a 'name', got {', '.join(given) or 'nothing'}")
        if bool(given.get("command")) == bool(given.get("url")):
            raise ConfigError(
                f"MCP server '{given['name']}' needs either a 'command' (with 'args') that starts it, or its 'url'"
            )
        return cls(loop=loop, start_timeout_s=start_timeout_s, **{k: v for k, v in given.items() if v is not None})

    async def tools(self) -> list[Tool]:
        """What it offers. In the servers' loop. Raises InfraError."""
        connection = await self._connected()
        found: list[Tool] = []
        cursor = None
        try:
            while True:
                page = _plain(await connection.list_tools(cursor))
                found += [_definition(tool) for tool in page.get("tools") or ()]
                cursor = page.get("nextCursor")
                if not cursor:
                    return found
        except Exception as error:
            raise InfraError(f"MCP server '{self.name}' does not list its tools: {one_line(error)}") from error

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """One call, from any event loop; its result as plain values.

        Raises ToolRefusal when the server refuses it or ends during it, and InfraError when there is no server.
        """
        return await self.loop.run(self._call, tool, arguments)

    async def _call(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        connection = await self._connected()
        try:
            return _plain(await connection.call(tool, dict(arguments)))
        except Exception as error:
            if await connection.answers():
                raise ToolRefusal(str(error) or one_line(error)) from error
            await connection.stop()
            raise ToolRefusal(f"the server '{self.name}' has stopped; the next call starts it again") from error

    async def _connected(self) -> _Connection:
        async with self._connecting:
            if self._connection is None or self._connection.has_ended:
                self._connection = await self._opened()
            return self._connection

    async def _opened(self) -> _Connection:
        connection = _Connection(self)
        try:
            async with time_limit(self.start_timeout_s, "its start"):
                await connection.start()
        except BaseException as error:
            await connection.stop()
            if not isinstance(error, Exception):
                raise
            raise InfraError(
                f"MCP server '{self.name}' ({self.address}) does not start: {one_line(error)}{connection.said}"
            ) from error
        return connection

    @property
    def address(self) -> str:
        """For messages: without arguments and headers, which may hold secrets."""
        return self.url or self.command or ""

    async def stop(self) -> None:
        if self._connection is not None:
            await self._connection.stop()
            self._connection = None


class _Connection:
    """One session with a server, opened and closed in one task, as its cancel scopes demand."""

    def __init__(self, server: MCPServer) -> None:
        self._server = server
        self._session: Any = None
        self._output: deque[str] = deque(maxlen=5)
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        return self._task is None or self._task.done()

    @property
    def said(self) -> str:
        """The last lines that a process wrote to its standard error, for messages."""
        return f". It wrote: {' | '.join(self._output)}" if self._output else ""

    async def start(self) -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready))
        await ready

    async def _live(self, ready: asyncio.Future[None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                self._session = await self._open(stack)
                ready.set_result(None)
                await self._stop.wait()
        except BaseException as error:  # a cancel only comes from `stop`, which waits for no result
            if not ready.done():
                ready.set_exception(_innermost(error) if isinstance(error, Exception) else InfraError("it was stopped"))

    async def _open(self, stack: AsyncExitStack) -> Any:
        from mcp import ClientSession

        streams = await stack.enter_async_context(self._transport())
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        await session.initialize()
        return session

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        server = self._server
        if server.url:
            from mcp.client.streamable_http import streamable_http_client
            from mcp.shared._httpx_utils import create_mcp_http_client

            async with (
                create_mcp_http_client(headers=dict(server.headers or {})) as client,
                streamable_http_client(server.url, http_client=client) as streams,
            ):
                yield streams
            return
        from mcp import StdioServerParameters, stdio_client

        command = StdioServerParameters(
            command=server.command or "", args=[str(a) for a in server.args], env=dict(server.env or {}), cwd=server.cwd
        )
        with _lines_to(self._output) as errors:
            async with stdio_client(command, errlog=errors) as streams:
                yield streams

    async def list_tools(self, cursor: str | None) -> Any:
        from mcp.types import PaginatedRequestParams

        return await self._session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return await self._session.call_tool(tool, arguments)

    async def answers(self) -> bool:
        """Whether there is still a server at the other end."""
        if self.has_ended:
            return False
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await self.list_tools(None)
        except Exception:
            return False
        return True

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        self._stop.set()
        _, waiting = await asyncio.wait([task], timeout=STOP_LIMIT_S)
        if waiting:
            task.cancel()


def _plain(result: Any) -> dict[str, Any]:
    """An answer of the `mcp` package as plain values under the protocol's own names, which its releases spell alike."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _definition(tool: Mapping[str, Any]) -> Tool:
    return Tool(tool["name"], tool.get("description") or "", tool.get("inputSchema"))


def _innermost(error: BaseException) -> BaseException:
    """What went wrong, out of the groups that task groups wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def _lines_to(kept: deque[str]) -> Iterator[TextIO]:
    """A file for a process to write to; its last lines are kept, so that they don't run across the display."""
    reading, writing = os.pipe()

    def read() -> None:
        with open(reading, encoding="utf-8", errors="replace") as lines:
            kept.extend(cut(line, 200) for line in map(str.strip, lines) if line)

    reader = threading.Thread(target=read, name="vf-mcp-errors", daemon=True)
    reader.start()
    try:
        with open(writing, "w", encoding="utf-8") as file:
            yield file
    finally:
        reader.join(LAST_WORDS_S)  # a process that has just ended may have written why
