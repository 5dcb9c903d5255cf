"""The server of `vf view`: this machine only, reading only."""

from __future__ import annotations

import contextlib
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from verifiers.errors import SetupError
from verifiers.viewer.document import TEXT, Reply
from verifiers.viewer.pages import Site

HOST = "127.0.0.1"
# Whoever resolves their own name to this machine ("DNS rebinding") sends that name as the host, and is refused. The
# port may be another one: that of a tunnel.
OWN_NAMES = {"127.0.0.1", "localhost", "[::1]"}
REQUEST_TIMEOUT_S = 30
SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class ViewServer(ThreadingHTTPServer):
    """Serves a `Site` on 127.0.0.1. Port 0 takes any that is free.

    Raises SetupError when the port is taken.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, site: Site, port: int = 0) -> None:
        self.site = site
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise SetupError(f"port {port} cannot be had ({error.strerror}): give another by --port, or 0") from error

    @property
    def port(self) -> int:
        return self.server_port

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}"

    def server_bind(self) -> None:
        # Without the look-up of this machine's name that http.server makes, which can take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who left in the middle of a page is no error of ours."""
        import sys

        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer  # pyright: ignore[reportIncompatibleVariableOverride]  # the only server that makes one
    timeout = REQUEST_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "vf-view", ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        name = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if name.lower() not in OWN_NAMES:
            text = f"this is {HOST} and no other host: open http://{HOST}:{self.server.server_port}/"
            self._send(Reply(421, TEXT, text.encode()), with_body)
            return
        try:
            url = urlsplit(self.path)
            query = dict(parse_qsl(url.query, max_num_fields=50, errors="replace"))
        except ValueError as error:  # more fields than any page has, or a host in the address that is none
            self._send(Reply(400, TEXT, f"this address cannot be read: {error}".encode()), with_body)
            return
        self._send(self.server.site.respond(unquote(url.path, errors="replace"), query), with_body)

    def _send(self, reply: Reply, with_body: bool) -> None:
        self.send_response(reply.status)
        headers = {"Cache-Control": "no-store", **SECURITY, **reply.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", reply.media_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal belongs to the person who opened the page."""


def serve(server: ViewServer) -> None:
    """Until Ctrl-C."""
    with contextlib.closing(server.socket), contextlib.suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)
