"""The package index over HTTP: `/{owner}/{env}/simple/`, `/{owner}/simple/`, `/simple/`, as JSON and HTML.

Plain ASGI, and what is in memory is answered in the event loop: `uv` asks for a page per dependency.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hub_server.http import principal
from hub_server.hub import Hub
from hub_server.services.index_pages import At, IndexPages, Page
from hub_server.services.page_store import PageStore
from verifiers.refs import normalised

JSON = "application/vnd.pypi.simple.v1+json"
HTML = "application/vnd.pypi.simple.v1+html"
PLAIN_HTML = "text/html"
OFFERED = (JSON, HTML, PLAIN_HTML)
MAX_AGE_S = 600  # of a page that everyone sees, as on the public index; clients that revalidate see news at once
MIN_GZIP_BYTES = 1_000
_QUALITY = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")

RawHeaders = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One representation: type and encoding chosen, headers ready."""

    etag: str
    start: dict[str, object]  # the ASGI message with status 200
    body: dict[str, Any]
    unchanged: dict[str, object]  # with status 304
    route: object  # that was asked for it


class HeldPages:
    """Middleware that answers, before anything is routed, what nobody in particular was shown before: nearly every
    request of an installer. Routing costs more than the rest of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and "/simple/" in scope["path"] and scope["method"] in ("GET", "HEAD"):
            accept = encoding = tags = None
            is_anonymous = True
            for name, value in scope["headers"]:
                if name == b"accept":
                    accept = value
                elif name == b"accept-encoding":
                    encoding = value
                elif name == b"if-none-match":
                    tags = value
                elif name in (b"authorization", b"cookie"):
                    is_anonymous = False
            pages = _pages(scope)
            if is_anonymous and pages.is_open:
                answer = pages.answers.get((scope["path"], scope["query_string"], accept, encoding))
                if answer is not None:
                    scope["route"] = answer.route  # for the metrics
                    await _send(scope, send, answer, tags)
                    return
        await self._app(scope, receive, send)


class Index:
    """An ASGI endpoint for one kind of index page. `has_slash`: the address is complete."""

    def __init__(self, *, has_slash: bool) -> None:
        self._has_slash = has_slash

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parameters: dict[str, str] = scope["path_params"]
        name = parameters.get("name")
        wanted = None if name is None else normalised(name)
        if not self._has_slash or wanted != name:
            await _redirect(scope, send, wanted, is_complete=self._has_slash)
            return
        headers = dict(scope["headers"])
        accept, encoding = headers.get(b"accept"), headers.get(b"accept-encoding")
        kind = chosen(accept.decode("latin-1") if accept else None, scope["query_string"])
        owner, env = parameters.get("owner"), parameters.get("env")
        at = At(owner.lower() if owner else None, normalised(env) if env else None)
        who = await principal(Request(scope))
        pages = _pages(scope)
        generation = pages.answers.generation()
        page = pages.index.held(who, at, wanted)
        if page is None:
            page = await run_in_threadpool(pages.index.build, who, at, wanted)
        is_gzip = takes_gzip(encoding.decode("latin-1") if encoding else None)
        answer = page.answers.get((kind, is_gzip, at.env is None))
        if answer is None:
            varies = not page.is_shared or at.env is None
            answer = answer_of(page, kind, is_gzip=is_gzip, varies=varies, route=scope.get("route"))
            page.answers[kind, is_gzip, at.env is None] = answer
        if b"authorization" not in headers and b"cookie" not in headers:
            asked = (scope["path"], scope["query_string"], accept, encoding)
            pages.answers.keep(asked, answer, generation, 1_000 + len(answer.body["body"]))
        await _send(scope, send, answer, headers.get(b"if-none-match"))


async def _send(scope: Scope, send: Send, answer: Answer, tags: bytes | None) -> None:
    """`tags`: the value of `If-None-Match`."""
    if tags is not None and is_unchanged(tags.decode("latin-1"), answer.etag):
        await send(answer.unchanged)
        await send(_EMPTY)
        return
    await send(answer.start)
    await send(answer.body if scope["method"] == "GET" else _EMPTY)


@dataclass(frozen=True, slots=True)
class Pages:
    """What one application holds."""

    index: IndexPages
    answers: PageStore[Answer]  # for whoever sends neither token nor cookie
    is_open: bool  # to those at all


_EMPTY = {"type": "http.response.body", "body": b""}


def _pages(scope: Scope) -> Pages:
    state = scope["app"].state
    try:
        return state.index
    except AttributeError:
        hub: Hub = state.hub
        state.index = Pages(IndexPages(hub), PageStore(hub.database.freshness), not hub.settings.is_private)
        return state.index


def answer_of(page: Page, kind: str, *, is_gzip: bool, varies: bool, route: object) -> Answer:
    """`varies`: the page depends on who asks, too."""
    body = page.json if kind == JSON else page.html
    is_gzip = is_gzip and len(body) >= MIN_GZIP_BYTES
    # Of the bytes before compression, because gzip's output differs between its versions; strong all the same, since
    # type and encoding are in it: uv revalidates with strong tags only.
    etag = hashlib.sha256(kind.encode() + (b"+gzip\0" if is_gzip else b"\0") + body).hexdigest()[:40]
    caching = f"public, max-age={MAX_AGE_S}" if page.is_shared else "private, no-cache"
    shared: RawHeaders = [
        (b"etag", f'"{etag}"'.encode()),
        (b"vary", b"Accept, Accept-Encoding, Authorization" if varies else b"Accept, Accept-Encoding"),
        (b"cache-control", caching.encode()),
    ]
    if is_gzip:
        body = gzip.compress(body, 6, mtime=0)
        shared.append((b"content-encoding", b"gzip"))
    kind_sent = kind if kind == JSON else f"{kind}; charset=utf-8"
    whole = [*shared, (b"content-type", kind_sent.encode()), (b"content-length", str(len(body)).encode())]
    return Answer(
        etag=f'"{etag}"',
        start={"type": "http.response.start", "status": 200, "headers": whole},
        body={"type": "http.response.body", "body": body},
        unchanged={"type": "http.response.start", "status": 304, "headers": shared},
        route=route,
    )


def is_unchanged(tags: str, etag: str) -> bool:
    """Whether the value of `If-None-Match` has this tag."""
    return tags == etag or tags.strip() == "*" or etag in (tag.strip().removeprefix("W/") for tag in tags.split(","))


def chosen(accept: str | None, query: bytes) -> str:
    """The content type to answer with. Raises HTTPException 406 when none of ours is acceptable."""
    asked = parse_qs(query.decode("latin-1")).get("format") if query else None
    kind = negotiated(asked[0] if asked else accept)
    if kind is None:
        raise HTTPException(406, f"this index speaks {', '.join(OFFERED)}; '{(asked or [accept])[0]}' is none of them")
    return kind


@lru_cache(maxsize=256)
def negotiated(accept: str | None) -> str | None:
    """The type of the highest quality; of equals the one named most exactly. What takes anything gets HTML,
    which people read.

    >>> negotiated("application/vnd.pypi.simple.v1+json, text/html;q=0.01")
    'application/vnd.pypi.simple.v1+json'
    >>> negotiated("*/*")
    'text/html'
    """
    if not accept or accept.isspace():
        return PLAIN_HTML
    ranges = [_media_range(part) for part in accept.split(",")]
    best: tuple[float, int, int] = (0.0, 0, 0)
    found = None
    for preference, offered in enumerate(OFFERED):
        kinds = {offered: 3, offered.replace(".v1+", ".latest+"): 3, f"{offered.split('/')[0]}/*": 2, "*/*": 1}
        fitting = [(kinds[kind], quality) for kind, quality in ranges if kind in kinds]
        if not fitting:
            continue
        exactness, quality = max(fitting)
        # JSON goes first, but to whoever takes anything at all plain HTML.
        rank = (quality, exactness, preference if exactness == 1 else -preference)
        if quality > 0 and (found is None or rank > best):
            best, found = rank, offered
    return found


def _media_range(part: str) -> tuple[str, float]:
    kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            return kind, float(value) if _QUALITY.fullmatch(value.strip()) else 0.0
    return kind, 1.0


@lru_cache(maxsize=256)
def takes_gzip(accept_encoding: str | None) -> bool:
    qualities = dict(_media_range(part) for part in (accept_encoding or "").split(","))
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


async def _redirect(scope: Scope, send: Send, name: str | None, *, is_complete: bool) -> None:
    """To the address with the normalised name and the slash, relative: right under every mount path. The name is
    quoted: `http:…` before the slash would lead to another host."""
    target = "simple/" if name is None else f"{quote(name, safe='', errors='replace')}/"
    if is_complete:
        target = f"../{target}"
    query: bytes = scope["query_string"]
    location = target.encode() + (b"?" + query if query else b"")
    headers: RawHeaders = [(b"location", location), (b"content-length", b"0"), (b"cache-control", b"max-age=86400")]
    await send({"type": "http.response.start", "status": 301, "headers": headers})
    await send(_EMPTY)


routes: list[BaseRoute] = [
    Route(f"{base}/simple{rest}", Index(has_slash=rest.endswith("/")), methods=["GET"], name="index")
    for rest in ("/{name}/", "/", "/{name}", "")
    for base in ("/{owner}/{env}", "/{owner}", "")
]
