"""`Engine`: a container engine's HTTP API, which is Docker's; podman answers it too.

The only file here that knows aiohttp. A program's streams use the socket itself: the API leaves HTTP there, and a
connection of ours is simpler than one taken from a library.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp

from verifiers.errors import ConfigError, SandboxError

CONNECT_TIMEOUT_S = 10.0
_LARGEST_FRAME = 16 << 20
_READ_AHEAD = 1 << 20


class EngineError(SandboxError):
    """The engine refused, failed or did not answer; the last when `status` is None, and `why` says what happened."""

    def __init__(self, message: str, status: int | None = None, why: str = "") -> None:
        super().__init__(message, status, why)
        self.status = status
        self.why = why

    def __str__(self) -> str:
        return str(self.args[0])


class Engine:
    """At `unix:///path` or `tcp://host:port`. Holds no connection between calls, so any event loop may use it."""

    def __init__(self, host: str) -> None:
        parts = urlsplit(host)
        self.host = host
        self._path = parts.path if parts.scheme == "unix" else None
        self._address = (parts.hostname or "", parts.port or 2375)
        if parts.scheme not in ("unix", "tcp", "http") or not (self._path or parts.hostname):
            raise ConfigError(f"a container engine is at unix:///path or tcp://host:port, not at {host!r}")

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        timeout_s: float = 60.0,
    ) -> Any:
        """The JSON of the answer, None without one. Raises EngineError for every other end."""
        async with self._session(timeout_s) as session:
            try:
                async with session.request(method, _url(path, query), json=body) as reply:
                    data = await reply.read()
                    status = reply.status
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise self._silent(error, f"{method} {path}") from error
        if status >= 400:
            raise EngineError(f"the container engine refused {method} {path}: {status} {_reason(data)}", status)
        try:
            return json.loads(data) if data.strip() else None
        except ValueError:
            return None  # "OK" and the like

    async def lines(self, path: str, query: Mapping[str, Any], *, silence_s: float) -> AsyncIterator[dict[str, Any]]:
        """An answer that comes line by line, each one a JSON object. It may pause for `silence_s`."""
        async with self._session(None, silence_s) as session:
            try:
                async with session.post(_url(path, query)) as reply:
                    if reply.status >= 400:
                        reason = _reason(await reply.read())
                        raise EngineError(f"the container engine refused: {reply.status} {reason}", reply.status)
                    async for line in reply.content:
                        if line.strip():
                            yield json.loads(line)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                raise self._silent(error, f"POST {path}") from error

    async def attach(self, exec_id: str) -> Streams:
        """Starts a program that was made ready, and gives its streams."""
        path = f"/exec/{exec_id}/start"
        body = b'{"Detach": false, "Tty": false}'
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await self._open()
        except (OSError, TimeoutError) as error:
            raise self._silent(error, f"POST {path}") from error
        try:
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n"
                f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(None, 2)[1])
            if status >= 400:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    reason = _reason(await reader.read(_READ_AHEAD))
                raise EngineError(f"the container engine refused to start a program: {status} {reason}", status)
        except (OSError, EOFError, ValueError, IndexError, TimeoutError, asyncio.LimitOverrunError) as error:
            writer.close()
            raise self._silent(error, f"POST {path}") from error
        except BaseException:
            writer.close()
            raise
        return Streams(reader, writer)

    def send_now(self, method: str, path: str) -> None:
        """Without an event loop, as the interpreter ends; the answer is not waited for long."""
        with socket.socket(socket.AF_UNIX if self._path else socket.AF_INET) as client:
            client.settimeout(5.0)
            client.connect(self._path or self._address)
            client.sendall(f"{method} {path} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n".encode())
            client.recv(1024)

    def _session(self, timeout_s: float | None, silence_s: float | None = None) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector() if self._path is None else aiohttp.UnixConnector(self._path)
        base = "http://engine" if self._path is not None else f"http://{self._address[0]}:{self._address[1]}"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S, sock_read=silence_s)
        return aiohttp.ClientSession(base, connector=connector, timeout=timeout)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._path is not None:
            return await asyncio.open_unix_connection(self._path, limit=_READ_AHEAD)
        return await asyncio.open_connection(*self._address, limit=_READ_AHEAD)

    def _silent(self, error: BaseException, what: str) -> EngineError:
        cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
        how = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        how = "timed out" if isinstance(error, TimeoutError) else how
        return EngineError(f"the container engine at {self.host} does not answer to {what}: {how}", why=how)


class Streams:
    """stdin, stdout and stderr of one program, in one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> tuple[int, bytes] | None:
        """1 for stdout or 2 for stderr, and some of it; None at the end. Raises EngineError when it is torn off."""
        try:
            head = await self._reader.readexactly(8)
            stream, size = struct.unpack(">BxxxI", head)
            if stream > 2 or size > _LARGEST_FRAME:
                raise EngineError(f"the container engine sent what is no part of a program's output: {head!r}")
            return stream, await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            if not error.partial and error.expected == 8:
                return None
            raise EngineError("the container engine hung up while a program ran") from None
        except OSError as error:
            raise EngineError(f"the container engine hung up while a program ran: {error}") from error

    async def send(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise EngineError(f"the program's stdin is closed: {error}") from error

    def close_stdin(self) -> None:
        try:
            self._writer.write_eof()
        except (OSError, RuntimeError):
            pass  # closed already

    def close(self) -> None:
        self._writer.close()


def docker_hosts(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Where Docker may answer: what the user says, else the usual sockets."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    home = environ.get("HOME", "")
    return _hosts(
        environ.get("DOCKER_HOST"),
        ["/var/run/docker.sock", f"{home}/.docker/run/docker.sock", *([f"{runtime}/docker.sock"] if runtime else [])],
    )


def podman_hosts(environ: Mapping[str, str] = os.environ) -> list[str]:
    runtime = environ.get("XDG_RUNTIME_DIR")
    rootless = [f"{runtime}/podman/podman.sock"] if runtime else []
    return _hosts(environ.get("CONTAINER_HOST"), [*rootless, "/run/podman/podman.sock"])


def _hosts(said: str | None, usual: list[str]) -> list[str]:
    if said:
        return [said]
    there = [path for path in usual if os.path.exists(path)]
    return [f"unix://{path}" for path in there or usual[:1]]


def _url(path: str, query: Mapping[str, Any] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _reason(data: bytes) -> str:
    text = data.decode("utf-8", "replace").strip()
    start = text.find("{")
    try:
        message = json.loads(text[start : text.rindex("}") + 1])["message"]
    except (ValueError, KeyError, TypeError):
        message = text
    return " ".join(str(message).split())[:500]
