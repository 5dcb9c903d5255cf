"""`Door`: what every request passes before it is routed and every answer on its way out. Plain ASGI with next to no
work, because an index page costs little more than this.

In: proxies that are trusted, a Host that is ours, no state change from another site's page, a body that keeps its size
and pace. Out: headers that tie browsers' hands, one line in the log, one count in the metrics, and a mistake of ours
as a plain 500.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hub_server import metrics
from hub_server.answers import problem
from hub_server.errors import BadRequest, Forbidden, HubError, TooLarge, TooSlow
from hub_server.http import LOOPBACK_COOKIE, SECURE_COOKIE
from hub_server.logs import Logger
from hub_server.proxies import Proxies
from hub_server.settings import Settings

MAX_PLAIN_BODY_BYTES = 4 << 20  # of forms and JSON, which are read into memory
PROGRESS_BYTES = 64 << 10  # so many at least must come in each `body_timeout_s`: a trickle holds no connection
CLIENT_LEFT = 499  # nginx's status for it, in the log alone

_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
# Routes that read their body in pieces and have limits of their own.
_STREAMED = re.compile(
    r"/(?:[^/]+/)?legacy/?|/api/v1/projects/[^/]+/[^/]+/releases/[^/]+/files(?:/[^/]+)?|/api/v1/evaluations/[^/]+/samples"
)
_CSP_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_CSP_OTHER = "default-src 'none'; frame-ancestors 'none'; sandbox"
_EVERYWHERE = [
    (b"x-content-type-options", b"nosniff"),
    # Not `no-referrer`: browsers would then send `Origin: null` with our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_PAGE = [*_EVERYWHERE, (b"content-security-policy", _CSP_PAGE.encode())]
_OTHER = [*_EVERYWHERE, (b"content-security-policy", _CSP_OTHER.encode())]


class Door:
    def __init__(self, app: ASGIApp, settings: Settings, log: Logger) -> None:
        self._app = app
        self._log = log
        self._proxies = Proxies(settings.trusted_proxies)
        self._allowed = _Hosts(settings)
        self._public_origin = _origin(settings.public_url)
        self._body_timeout_s = settings.body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._proxies:
            scope = self._proxies.applied(scope)
        state = scope.setdefault("state", {})
        request_id = state.setdefault("request_id", os.urandom(8).hex())
        passage = _Passage(send)
        error: Exception | None = None
        try:
            host = self._host(scope)
            if "\0" in scope["path"] or b"%00" in scope["query_string"]:
                raise BadRequest("an address holds no NUL", code="bad_address")
            if scope["method"] not in _SAFE:
                self._refuse_foreign_origin(scope, host)
                receive = _Body(scope, receive, self._body_timeout_s)
            await self._app(scope, receive, passage.send)
        except ClientDisconnect:
            passage.status = CLIENT_LEFT
        except HubError as refused:
            await problem(refused, request_id)(scope, receive, passage.send)
        except Exception as mistake:
            error = mistake
            if not passage.status:
                await problem(mistake, request_id)(scope, receive, passage.send)
        finally:
            self._tell(scope, passage, error)

    def _host(self, scope: Scope) -> bytes:
        found: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"host":
                if found is not None:
                    raise BadRequest("a request has one Host header", code="bad_host")
                found = value
        if found is None or not self._allowed.knows(found):
            if scope["path"].startswith("/healthz"):
                return b""  # probes of clusters ask by the machine's address
            raise BadRequest(
                "this hub does not go by the name in the Host header. Whoever runs it can add the name to "
                "VF_HUB_ALLOWED_HOSTS or set VF_HUB_PUBLIC_URL",
                code="bad_host",
            )
        return found

    def _refuse_foreign_origin(self, scope: Scope, host: bytes) -> None:
        """A state change must not come from a page of another site (CSRF). Programs send none of these headers."""
        headers = dict(scope["headers"])
        site = headers.get(b"sec-fetch-site")
        origin = headers.get(b"origin")
        if site is not None and site not in (b"same-origin", b"none"):
            raise Forbidden("this request comes from a page of another site", code="foreign_origin")
        if origin is not None:
            own = scope["scheme"].encode() + b"://" + host
            if origin.lower() not in (own.lower(), self._public_origin) and site != b"same-origin":
                raise Forbidden(
                    f"this request comes from a page of '{origin.decode('latin-1')[:200]}', not from this hub. If that "
                    "is the hub's own address, VF_HUB_PUBLIC_URL or VF_HUB_TRUSTED_PROXIES is not set right",
                    code="foreign_origin",
                )
        elif site is None and b"authorization" not in headers and _has_session(headers.get(b"cookie", b"")):
            raise Forbidden("a browser's request with a session must say its Origin", code="no_origin")

    def _tell(self, scope: Scope, passage: _Passage, error: Exception | None) -> None:
        seconds = time.perf_counter() - passage.started
        method, path, status = scope["method"], scope["path"], passage.status
        route = getattr(scope.get("route"), "path", "none")
        if path.startswith("/api/v1/") and route != "none":
            route = f"/api/v1{route}"
        metrics.count_request(method if method in _METHODS else "other", route, status, seconds)
        if error is not None:
            metrics.count_error()
        elif path.startswith("/healthz") or path == "/metrics":
            return
        query = scope["query_string"]
        client = scope.get("client")
        state = scope["state"]
        (self._log.info if error is None else self._log.error)(
            "request" if error is None else "mistake",
            id=state["request_id"],
            method=method,
            path=path,
            query=query.decode("latin-1") if query else "",
            status=status,
            ms=round(seconds * 1000, 2),
            bytes=passage.size_bytes,
            address=client[0] if client else "",
            who=state.get("who", ""),
            **({} if error is None else {"exc_info": error}),
        )


_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"))


class _Passage:
    """The way out of one request."""

    __slots__ = ("_send", "size_bytes", "started", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = time.perf_counter()
        self.status = 0  # no answer yet
        self.size_bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            is_page = has_policy = has_cache = False
            headers = list(message.get("headers", ()))
            for name, value in headers:
                if name == b"content-type":
                    is_page = value.startswith(b"text/html")
                elif name == b"content-security-policy":
                    has_policy = True
                elif name == b"cache-control":
                    has_cache = True
            headers += _EVERYWHERE if has_policy else _PAGE if is_page else _OTHER
            if not has_cache:
                # What a route says nothing about depends on who asks: no shared cache may keep it.
                headers.append((b"cache-control", b"private, no-cache"))
            message = {**message, "headers": headers}  # routes may hold theirs and send it again
        elif message["type"] == "http.response.body":
            self.size_bytes += len(message.get("body", b""))
        await self._send(message)


class _Body:
    """`receive` of a request that changes something: raises TooLarge and TooSlow to whoever reads the body."""

    def __init__(self, scope: Scope, receive: Receive, timeout_s: float) -> None:
        self._receive = receive
        self._timeout_s = self._patience_s = timeout_s
        self._progress_bytes = 0
        self._left = None if _STREAMED.fullmatch(scope["path"]) else MAX_PLAIN_BODY_BYTES
        self._is_whole = False
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if self._left is not None and declared.isdigit() and int(declared) > self._left:
            raise self._too_large()

    async def __call__(self) -> Message:
        if self._is_whole:  # what follows is waiting for the client to leave, which may take as long as it likes
            return await self._receive()
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._patience_s):
                message = await self._receive()
        except TimeoutError:
            raise TooSlow(
                f"the body came too slowly: fewer than {PROGRESS_BYTES:,} bytes in {self._timeout_s:g} s"
            ) from None
        self._is_whole = not message.get("more_body", False)
        size = len(message.get("body", b""))
        self._patience_s -= clock() - began  # our own work in between costs the client nothing
        self._progress_bytes += size
        if self._progress_bytes >= PROGRESS_BYTES:
            self._progress_bytes, self._patience_s = 0, self._timeout_s
        if self._left is not None:
            self._left -= size
            if self._left < 0:
                raise self._too_large()
        return message

    def _too_large(self) -> TooLarge:
        return TooLarge(f"a request of this kind has at most {MAX_PLAIN_BODY_BYTES} bytes")


class _Hosts:
    """The names that the hub goes by; `*` in the settings lets all pass."""

    def __init__(self, settings: Settings) -> None:
        names = {name.lower() for name in settings.allowed_hosts}
        public = urlsplit(settings.public_url or "").hostname
        if public:
            names.add(f"[{public}]" if ":" in public else public)
        self._names = names
        self._known: set[bytes] = set()  # headers that passed, with their port

    def knows(self, header: bytes) -> bool:
        if header in self._known:
            return True
        text = header.decode("latin-1").lower()
        found = _HOST.fullmatch(text)
        if found is None or not ("*" in self._names or found[1] in self._names):
            return False
        if len(self._known) < 64:
            self._known.add(header)
        return True


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")


def _has_session(cookie: bytes) -> bool:
    return SECURE_COOKIE.encode() in cookie or LOOPBACK_COOKIE.encode() in cookie


def _origin(url: str | None) -> bytes | None:
    if url is None:
        return None
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower().encode()
