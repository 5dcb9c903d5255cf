"""`Gateway`: any backend over HTTP, for clients that have a token. The client is `RemoteBackend`.

An answer that takes long (a sandbox made, a program run) sends a beat every ten seconds, so that either side notices
when the other is gone. A client that hangs up ends what it ran.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import msgspec
from aiohttp import WSMsgType, web

from verifiers.errors import ConfigError, SandboxError
from verifiers.sandbox.gateway_messages import (
    BEAT,
    KINDS,
    MAX_FRAME_BYTES,
    Create,
    Created,
    Exec,
    File,
    Offer,
    Problem,
    Problems,
    RunOnce,
    These,
    Which,
    as_json,
    pack,
    pack_result,
    problem_of,
    split,
    unpack,
)
from verifiers.sandbox.gateway_process import ProcessTalk
from verifiers.sandbox.gateway_sessions import GatewaySessions, GatewaySettings, Refusal
from verifiers.sandbox.gateway_tokens import Tokens
from verifiers.sandbox.sandbox import Sandbox, SandboxBackend

logger = logging.getLogger("verifiers")

KEEPALIVE_S = 75.0  # longer than clients keep a connection, so that none is closed under a request on its way
MAX_QUESTION_BYTES = 8 << 20  # some 300,000 ids
_Kind = TypeVar("_Kind", bound=msgspec.Struct)


class Gateway:
    """Belongs to one event loop. `start`, then `drain` and `close`; `serve` does all of it until a signal comes."""

    def __init__(self, backend: SandboxBackend, tokens: Tokens, settings: GatewaySettings | None = None) -> None:
        self.backend = backend
        self.settings = settings or GatewaySettings()
        self.sessions = GatewaySessions(backend, self.settings)
        self._tokens = tokens
        self._sockets: set[web.WebSocketResponse] = set()
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Where it serves. Raises SetupError when the backend cannot run here, OSError when the port is taken."""
        self._offer = await self._find_offer()
        app = web.Application(middlewares=[self._answer_for], client_max_size=self.settings.max_body_bytes)
        app.add_routes(
            [
                web.get("/healthz", self._health),
                web.get("/v1/offer", self._tell_offer),
                web.post("/v1/create", self._create),
                web.post("/v1/run", self._run_once),
                web.post("/v1/status", self._status),
                web.post("/v1/renew", self._renew),
                web.post("/v1/close", self._close_these),
                web.post("/v1/sandboxes/{id}/exec", self._exec),
                web.get("/v1/sandboxes/{id}/process", self._process),
                web.post("/v1/sandboxes/{id}/read", self._read_file),
                web.post("/v1/sandboxes/{id}/write", self._write_file),
                web.post("/v1/sandboxes/{id}/pack", self._pack_archive),
                web.post("/v1/sandboxes/{id}/unpack", self._unpack_archive),
            ]
        )
        self._runner = web.AppRunner(
            app, handler_cancellation=True, keepalive_timeout=KEEPALIVE_S, access_log=None, shutdown_timeout=2.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024)
        await site.start()
        self.sessions.start()
        where = self._runner.addresses[0]
        return f"http://{host if ':' not in host else f'[{host}]'}:{where[1]}"

    async def drain(self) -> None:
        await self.sessions.drain()

    async def close(self) -> None:
        """Ends every sandbox, then the connections."""
        await self.sessions.close()
        for socket in list(self._sockets):
            await socket.close(code=1001)
        if self._runner is not None:
            await self._runner.cleanup()
        await self.backend.close()

    async def _find_offer(self) -> Offer:
        found = await self.backend.capabilities()
        networks = found.networks if self.settings.max_limits.network else ("none",)
        return Offer(capabilities=msgspec.structs.replace(found, networks=networks), lease_s=self.settings.lease_s)

    # Answers

    @web.middleware
    async def _answer_for(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Who asks, before anything of the body is read; and each error in one shape."""
        try:
            if request.path != "/healthz":
                self._owner(request)
                if (request.content_length or 0) > self.settings.max_body_bytes:
                    raise self._too_large()
            return await handler(request)
        except Exception as error:
            return self._failure(request, error)

    def _owner(self, request: web.Request) -> str:
        owner = self._tokens.owner_of(request.headers.get("Authorization"))
        if owner is None:
            raise Refusal("unauthorized", "the gateway does not know this token; see VF_SANDBOX_TOKEN")
        return owner

    def _failure(self, request: web.Request, error: Exception) -> web.Response:
        headers = {}
        if isinstance(error, web.HTTPRequestEntityTooLarge):
            error = self._too_large()
        if isinstance(error, Refusal):
            problem, status = Problem(kind=error.kind, message=str(error)), KINDS[error.kind]
            if error.retry_after_s is not None:
                headers["Retry-After"] = f"{error.retry_after_s:.0f}"
            if status == 401:
                headers["WWW-Authenticate"] = "Bearer"
        elif isinstance(error, web.HTTPException):
            problem, status = Problem(kind="bad-request", message=f"{request.path}: {error.reason}"), error.status
        else:
            is_of_file = request.path.endswith(("/read", "/write", "/pack", "/unpack"))
            problem, status = self._problem(error, is_of_file)
        body = as_json(Problems(problem))
        return web.Response(body=body, status=status, content_type="application/json", headers=headers)

    def _problem(self, error: Exception, is_of_file: bool = False) -> tuple[Problem, int]:
        found = problem_of(error, is_of_file)
        if found is None:
            where = "".join(traceback.format_tb(error.__traceback__))  # without its text, which may be of a program
            logger.error("the sandbox backend failed by %s\n%s", type(error).__name__, where)
            found = Problem(kind="internal", message=f"the gateway failed by {type(error).__name__}"), KINDS["internal"]
        return found

    def _too_large(self) -> Refusal:
        return Refusal("too-large", f"more than {self.settings.max_body_bytes >> 20} MB are too much for one request")

    async def _in_time(self, request: web.Request, work: Awaitable[bytes]) -> web.StreamResponse:
        """What it comes to, after a beat for each ten seconds; an error too when it has begun to answer."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task}, timeout=self.settings.beat_s)
            if task.done():
                return web.Response(body=task.result())
            response = web.StreamResponse()
            with suppress(ConnectionError):  # the client is gone
                await response.prepare(request)
                while not task.done():
                    await response.write(BEAT)
                    await asyncio.wait({task}, timeout=self.settings.beat_s)
                error = task.exception()
                if error is None:
                    await response.write(task.result())
                elif isinstance(error, Exception):
                    failure = self._failure(request, error).body
                    await response.write(failure if isinstance(failure, bytes) else b"")
                await response.write_eof()
            return response
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _health(self, request: web.Request) -> web.Response:
        """For those who balance load; needs no token."""
        text, status = ("ending\n", 503) if self.sessions.is_draining else ("ok\n", 200)
        return web.Response(text=text, status=status)

    async def _tell_offer(self, request: web.Request) -> web.Response:
        return _json(self._offer)

    # Sandboxes

    async def _create(self, request: web.Request) -> web.StreamResponse:
        head, carried = unpack(await request.read(), Create)
        files = dict(zip(head.files, split(carried, [*head.files.values()]), strict=True))
        spec = msgspec.structs.replace(head.spec, files=files)

        async def work() -> bytes:
            session = await self.sessions.create(self._owner(request), head.creation, spec)
            granted = session.spec
            return as_json(
                Created(
                    id=session.id,
                    work=session.sandbox.work,
                    lease_s=self.settings.lease_s,
                    limits=granted.limits,
                    lifetime_s=granted.lifetime_s,
                )
            )

        return await self._in_time(request, work())

    async def _run_once(self, request: web.Request) -> web.StreamResponse:
        head, carried = unpack(await request.read(), RunOnce)
        program, stdin, *contents = split(carried, [head.program, head.stdin, *head.files.values()])
        files = dict(zip(head.files, contents, strict=True))
        text = program.decode("utf-8", "surrogateescape")

        async def work() -> bytes:
            return pack_result(await self.sessions.run_once(text, stdin, head.limits, head.env, files))

        return await self._in_time(request, work())

    async def _status(self, request: web.Request) -> web.Response:
        asked = await self._json_of(request, Which)
        return _json(self.sessions.status(self._owner(request), asked.ids))

    async def _renew(self, request: web.Request) -> web.Response:
        asked = await self._json_of(request, These)
        return _json(These(self.sessions.renew(self._owner(request), asked.ids)))

    async def _close_these(self, request: web.Request) -> web.StreamResponse:
        which = await self._json_of(request, Which)

        async def work() -> bytes:
            closed = await self.sessions.close_of(self._owner(request), which.ids, which.creation, which.run_id)
            return as_json(These(closed))

        return await self._in_time(request, work())

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        head, carried = unpack(await request.read(), Exec)
        async with self.sessions.using(self._owner(request), request.match_info["id"]) as session:
            limits = session.spec.limits if head.limits is None else self.sessions.granted(head.limits)

            async def work() -> bytes:
                result = await session.sandbox.exec(
                    head.command,
                    stdin=bytes(carried),
                    limits=limits,
                    cwd=head.cwd,
                    env={**session.env, **head.env},
                    user=head.user,
                )
                return pack_result(result)

            return await self._in_time(request, work())

    async def _process(self, request: web.Request) -> web.StreamResponse:
        async with self.sessions.using(self._owner(request), request.match_info["id"]) as session:
            socket = web.WebSocketResponse(
                heartbeat=2 * self.settings.lease_s, max_msg_size=MAX_FRAME_BYTES, compress=False
            )
            await socket.prepare(request)
            self._sockets.add(socket)
            talk = ProcessTalk(session.sandbox, session.env, socket.send_bytes, lambda error: self._problem(error)[0])
            try:
                async for message in socket:
                    if message.type is not WSMsgType.BINARY:
                        break
                    await talk.hear(message.data)
            except (ConnectionError, ConfigError, SandboxError) as error:
                logger.debug("a talk with a process was broken off: %s", error)
            finally:
                self._sockets.discard(socket)
                await asyncio.shield(asyncio.ensure_future(talk.end()))
            return socket

    # Files

    async def _read_file(self, request: web.Request) -> web.StreamResponse:
        most = self.settings.max_body_bytes + 1  # so that it is seen when there is more

        async def read(sandbox: Sandbox, file: File, _: bytes) -> bytes:
            wanted = most if file.max_bytes is None else min(file.max_bytes, most)
            return await sandbox.read_file(file.path, max_bytes=wanted)

        return await self._with_file(request, read)

    async def _write_file(self, request: web.Request) -> web.StreamResponse:
        return await self._with_file(request, lambda box, file, data: box.write_file(file.path, data, mode=file.mode))

    async def _pack_archive(self, request: web.Request) -> web.StreamResponse:
        return await self._with_file(request, lambda sandbox, file, _: sandbox.get_archive(file.path))

    async def _unpack_archive(self, request: web.Request) -> web.StreamResponse:
        return await self._with_file(request, lambda sandbox, file, data: sandbox.put_archive(data, file.path))

    async def _with_file(
        self, request: web.Request, do: Callable[[Sandbox, File, bytes], Awaitable[bytes | None]]
    ) -> web.StreamResponse:
        file, carried = unpack(await request.read(), File)
        async with self.sessions.using(self._owner(request), request.match_info["id"]) as session:

            async def work() -> bytes:
                found = await do(session.sandbox, file, bytes(carried)) or b""
                if len(found) > self.settings.max_body_bytes:
                    most = self.settings.max_body_bytes >> 20
                    raise Refusal("too-large", f"{file.path} has more than {most} MB; take a part of it")
                return pack(File(path=file.path), found)

            return await self._in_time(request, work())

    async def _json_of(self, request: web.Request, kind: type[_Kind]) -> _Kind:
        body = await request.read()
        if len(body) > MAX_QUESTION_BYTES:
            raise Refusal("too-large", f"more than {MAX_QUESTION_BYTES >> 20} MB of ids are too many for one request")
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"no {kind.__name__}: {error}") from None


def _json(value: msgspec.Struct) -> web.Response:
    return web.Response(body=as_json(value), content_type="application/json")


async def serve(gateway: Gateway, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT, then drains; a second one ends it at once."""
    loop = asyncio.get_running_loop()
    signals: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]

    def told() -> None:
        next((event for event in signals if not event.is_set()), signals[-1]).set()

    try:
        url = await gateway.start(host, port)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told)
        say(url)
        await signals[0].wait()
        draining = asyncio.create_task(gateway.drain())
        hurry = asyncio.create_task(signals[1].wait())
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, hurry):
            task.cancel()
        await asyncio.gather(draining, hurry, return_exceptions=True)
    finally:
        await gateway.close()
