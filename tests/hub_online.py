"""A hub that answers on 127.0.0.1 in this process, `vf` as a user types it, and servers that misbehave on purpose."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import uvicorn
from hub_world import World
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hub_server.app import create_app
from hub_server.hub import Hub
from hub_server.settings import Settings


@dataclass
class Seen:
    """A request as it reached the server."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Online:
    url: str
    hub: Hub
    world: World
    seen: list[Seen]


@contextlib.contextmanager
def online(data: Path, **settings: Any) -> Iterator[Online]:
    """A hub over a new data folder, served by uvicorn in a thread. What arrives is written down in `seen`."""
    hub = Hub.open(Settings(data=data, **settings))
    seen: list[Seen] = []
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(_recorded(create_app(hub=hub), seen), log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Online(f"http://127.0.0.1:{listener.getsockname()[1]}", hub, World(hub), seen)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
        hub.close()


def _recorded(app: ASGIApp, seen: list[Seen]) -> ASGIApp:
    async def recording(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request = Seen(scope["method"], scope["path"], headers)
        seen.append(request)

        async def noted() -> Message:
            message = await receive()
            request.body += message.get("body", b"")
            return message

        await app(scope, noted, send)

    return recording


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Home:
    """A user's home and working folder. Commands run in this process, as their programs run them."""

    def __init__(self, folder: Path, monkeypatch: Any) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.config, self.cache = folder / "config", folder / "cache"
        monkeypatch.chdir(self.folder)
        for name in [*os.environ]:
            if name.startswith("VF_HUB_"):
                monkeypatch.delenv(name)
        for name, place in (("CONFIG", self.config), ("CACHE", self.cache), ("DATA", folder / "data")):
            monkeypatch.setenv(f"XDG_{name}_HOME", str(place))
        self._monkeypatch = monkeypatch

    @property
    def credentials(self) -> Path:
        return self.config / "verifiers" / "hub.toml"

    def use(self, hub: Online, token: str | None) -> None:
        """By the variables, as in CI."""
        self._monkeypatch.setenv("VF_HUB_URL", hub.url)
        if token is None:
            self._monkeypatch.delenv("VF_HUB_TOKEN", raising=False)
        else:
            self._monkeypatch.setenv("VF_HUB_TOKEN", token)

    def vf(self, *arguments: str, code: int = 0, stdin: str = "") -> Said:
        """`vf ARGUMENTS…`; its exit code is checked."""
        from verifiers.cli.main import main

        out, err = io.StringIO(), io.StringIO()
        self._monkeypatch.setattr(sys, "argv", ["vf", *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        said = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                said = int(end.code or 0)
        assert said == code, f"exit code {said}\n{out.getvalue()}\n{err.getvalue()}"
        return Said(said, out.getvalue(), err.getvalue())


# Servers that are no hub, or a bad one


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cut_after: int | None = None  # bytes of the body, then the connection ends


@dataclass
class Scripted:
    url: str
    seen: list[Seen]
    answer: Callable[[Seen], Answer]

    def paths(self) -> list[str]:
        return [request.path for request in self.seen]


@contextlib.contextmanager
def scripted(answer: Callable[[Seen], Answer]) -> Iterator[Scripted]:
    """A server that answers each request with what `answer` makes of it; `.answer` may be changed on the way."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    found = Scripted(f"http://127.0.0.1:{server.server_address[1]}", [], answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Seen(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            found.seen.append(request)
            said = found.answer(request)
            self.send_response(said.status)
            for name, value in ({"Content-Length": str(len(said.body))} | said.headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said.body[: said.cut_after])
            self.close_connection = said.cut_after is not None

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server.RequestHandlerClass = Handler
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def told(value: Any, status: int = 200, **headers: str) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})


def problem(status: int, code: str, detail: str, **headers: str) -> Answer:
    return told({"code": code, "detail": detail}, status, **{name.replace("_", "-"): v for name, v in headers.items()})
