"""Files over HTTP: `/{owner}/{env}/files/{sha256}/{filename}`, a wheel's `.metadata`, and the hub's own wheel.

The address has the file's hash, so that what it gives never changes. Ranges, conditions and HEAD as RFC 9110 has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hub_server.api.index import RawHeaders, is_unchanged
from hub_server.errors import CorruptFile, HubError
from hub_server.http import principal
from hub_server.services.downloads import Downloads, StoredBytes
from verifiers.refs import normalised

COUNTS_EVERY_S = 10.0
FOR_EVER_S = 365_000_000
_RANGE = re.compile(r"bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})", re.I)

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Writes down now and then, and at the end, what was downloaded."""
    downloads = app.state.downloads = Downloads(app.state.hub)
    task = asyncio.create_task(_write_counts(downloads))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await run_in_threadpool(downloads.write_counts)


async def _write_counts(downloads: Downloads) -> None:
    while True:
        await asyncio.sleep(COUNTS_EVERY_S)
        try:
            await run_in_threadpool(downloads.write_counts)
        except HubError as error:  # the counts are kept for the next time
            log.warning("downloads were not counted: %s", error.message)


async def send_file(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI endpoint of a project's files."""
    request = Request(scope)
    who = await principal(request)
    parameters: dict[str, str] = scope["path_params"]
    place = (
        parameters["owner"].lower(), normalised(parameters["env"]), parameters["sha256"], parameters["filename"]
    )  # fmt: skip
    downloads: Downloads = scope["app"].state.downloads
    stored = downloads.held(who, *place)
    if stored is None:
        stored = await run_in_threadpool(downloads.find, who, *place)
    await _answer(request, send, downloads, stored)


async def send_own(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI endpoint of the hub's own wheel."""
    request = Request(scope)
    await principal(request)
    parameters: dict[str, str] = scope["path_params"]
    downloads: Downloads = scope["app"].state.downloads
    stored = await run_in_threadpool(downloads.own, parameters["sha256"], parameters["filename"])
    await _answer(request, send, downloads, stored)


async def _answer(request: Request, send: Send, downloads: Downloads, stored: StoredBytes) -> None:
    etag = f'"{stored.sha256}"'
    headers = _headers_of(stored, etag)
    if _is_unchanged(request.headers, stored, etag):
        await _send(send, 304, headers)
        return
    status, start, length = selected(request.headers, stored, etag)
    if status == 206:
        headers.append((b"content-range", f"bytes {start}-{start + length - 1}/{stored.size_bytes}".encode()))
    if status == 416:
        headers.append((b"content-range", f"bytes */{stored.size_bytes}".encode()))
    headers.append((b"content-length", str(length).encode()))
    if status == 416 or request.method == "HEAD":
        await _send(send, status, headers)
        return
    await _send_bytes(request, send, downloads, stored, status, headers, start, length)
    if status == 200:
        downloads.count(stored)


def _headers_of(stored: StoredBytes, etag: str) -> RawHeaders:
    caching = f"public, max-age={FOR_EVER_S}, immutable" if stored.is_public else f"private, max-age={FOR_EVER_S}"
    return [
        (b"etag", etag.encode()),
        (b"last-modified", format_datetime(_seconds(stored.modified_at), usegmt=True).encode()),
        (b"cache-control", caching.encode()),
        (b"accept-ranges", b"bytes"),
        (b"content-type", b"application/octet-stream"),
        (b"content-disposition", b"attachment"),
        *([] if stored.is_public else [(b"vary", b"Authorization")]),
    ]


def _seconds(at: datetime) -> datetime:
    """HTTP's dates have whole seconds."""
    return at.astimezone(UTC).replace(microsecond=0)


def _is_unchanged(headers: Headers, stored: StoredBytes, etag: str) -> bool:
    tags = headers.get("if-none-match")
    if tags is not None:
        return is_unchanged(tags, etag)
    since = _date(headers.get("if-modified-since"))
    return since is not None and _seconds(stored.modified_at) <= since


def _date(text: str | None) -> datetime | None:
    try:
        return None if text is None else parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def selected(headers: Headers, stored: StoredBytes, etag: str) -> tuple[int, int, int]:
    """Status, first byte and number of bytes. Several ranges at once, and what is no range, get the whole file."""
    size = stored.size_bytes
    whole = (200, 0, size)
    text, condition = headers.get("range"), headers.get("if-range")
    if text is None or (condition is not None and not _is_same(condition, stored, etag)):
        return whole
    match = _RANGE.fullmatch(text.strip())
    if match is None or not (match[1] or match[2]):
        return whole
    if not match[1]:  # the last so many bytes
        start, end = max(0, size - int(match[2])), size
    else:
        start, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
        if match[2] and int(match[2]) < start:
            return whole
    return (416, 0, 0) if start >= size else (206, start, end - start)


def _is_same(condition: str, stored: StoredBytes, etag: str) -> bool:
    """`If-Range`: a strong tag, or the exact date."""
    return condition == etag or _date(condition) == _seconds(stored.modified_at)


async def _send_bytes(
    request: Request,
    send: Send,
    downloads: Downloads,
    stored: StoredBytes,
    status: int,
    headers: RawHeaders,
    start: int,
    length: int,
) -> None:
    if stored.content is not None:
        await _send(send, status, headers, stored.content[start : start + length])
        return
    if downloads.verifies:
        await run_in_threadpool(downloads.verify, stored)
    path = downloads.local_path(stored)
    if path is not None and status == 200 and "http.response.pathsend" in (request.scope.get("extensions") or {}):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.pathsend", "path": str(path)})
        return
    pieces, piece = await run_in_threadpool(_opened, downloads, stored, start, length)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    left = length - len(piece)
    await send({"type": "http.response.body", "body": piece, "more_body": left > 0})
    while left > 0:
        piece = await run_in_threadpool(next, pieces, b"")
        if not piece:
            # Breaks the connection: the client sees that bytes are missing.
            raise CorruptFile(f"the stored file {stored.sha256} ended {left} bytes early")
        left -= len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": left > 0})


def _opened(downloads: Downloads, stored: StoredBytes, start: int, length: int) -> tuple[Iterator[bytes], bytes]:
    """The pieces and the first of them, in one change of threads."""
    pieces = downloads.pieces(stored.key, start, length)
    return pieces, next(pieces, b"")


async def _send(send: Send, status: int, headers: RawHeaders, body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Sha256(Convertor[str]):
    """In routes, `{sha256:sha256}`: 64 hexadecimal digits."""

    regex = "[0-9a-f]{64}"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("sha256", Sha256())


class _Endpoint:
    """Makes Starlette hand the ASGI call over as it is, instead of a request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


routes: list[BaseRoute] = [
    Route("/files/{sha256:sha256}/{filename}", _Endpoint(send_own), methods=["GET"], name="own_wheel"),
    Route("/{owner}/{env}/files/{sha256:sha256}/{filename}", _Endpoint(send_file), methods=["GET"], name="file"),
]
