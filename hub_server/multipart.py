"""`received_form` and `received_file`: a body on its way to the disk, within limits on size, fields and pace.

Nothing of a file is kept in memory but the piece that is being written, and nothing stays on the disk once the block
that asked for it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from hub_server.errors import BadRequest, TooLarge, TooSlow
from hub_server.models import now
from hub_server.services.arrived import Arrived
from hub_server.settings import MIB, Settings
from hub_server.storage import full_disk_named

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

WRITE_BYTES = 1 * MIB  # gathered before a thread is asked to write them
PROGRESS_BYTES = 64 << 10  # so many bytes at least must come in each `body_timeout_s`: a trickle holds no disk
MAX_FIELDS_BYTES = 8 * MIB  # all fields together, with their headers


@dataclass(frozen=True, slots=True)
class Form:
    fields: dict[str, list[str]]  # every value, in order
    file: Arrived | None  # the part `content`


@contextlib.asynccontextmanager
async def received_form(request: Request, settings: Settings) -> AsyncIterator[Form]:
    """The upload form of the package index. Raises BadRequest, TooLarge, TooSlow, StorageFull."""
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise _malformed("send multipart/form-data with a boundary, as twine and uv publish do")
    began_at = now()
    with _temporary(settings) as (path, file):
        sink = _Sink(file, settings.max_file_bytes)
        reader = _FormReader(sink, settings)
        try:
            parser = MultipartParser(boundary, reader.callbacks())
            async for piece in _pieces(request, settings, settings.max_file_bytes + MAX_FIELDS_BYTES):
                parser.write(piece)
                await sink.flush(at_least=WRITE_BYTES)
        except FormParserError as error:
            raise _malformed(str(error)) from None
        if not reader.is_whole:
            raise _malformed("it ends before its last boundary")
        await sink.flush()
        arrived = None if reader.filename is None else sink.arrived(path, reader.filename, began_at)
        yield Form(reader.fields, arrived)


@contextlib.asynccontextmanager
async def received_file(request: Request, settings: Settings, filename: str) -> AsyncIterator[Arrived]:
    """A body that is nothing but one file. Raises BadRequest, TooLarge, TooSlow, StorageFull."""
    began_at = now()
    with _temporary(settings) as (path, file):
        sink = _Sink(file, settings.max_file_bytes)
        async for piece in _pieces(request, settings, settings.max_file_bytes):
            sink.take(piece)
            await sink.flush(at_least=WRITE_BYTES)
        await sink.flush()
        yield sink.arrived(path, filename, began_at)


@contextlib.contextmanager
def _temporary(settings: Settings) -> Iterator[tuple[Path, FileIO]]:
    path = settings.temporary / f"upload-{secrets.token_hex(12)}"
    with full_disk_named():
        file = FileIO(path, "x")
    try:
        with file:
            yield path, file
    finally:
        path.unlink(missing_ok=True)


async def _pieces(request: Request, settings: Settings, max_bytes: int) -> AsyncIterator[bytes]:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(settings)
    stream = request.stream()
    clock = asyncio.get_running_loop().time
    total = paid_for = 0
    due = clock() + settings.body_timeout_s
    while True:
        try:
            async with asyncio.timeout_at(due):
                piece = await anext(stream, None)
        except TimeoutError:
            raise TooSlow(
                f"the body came too slowly: fewer than {PROGRESS_BYTES:,} bytes in {settings.body_timeout_s:g} s"
            ) from None
        if piece is None:
            return
        total += len(piece)
        if total > max_bytes:
            raise _too_large(settings)
        if total - paid_for >= PROGRESS_BYTES:
            paid_for, due = total, clock() + settings.body_timeout_s
        yield piece


def _too_large(settings: Settings) -> TooLarge:
    return TooLarge(f"this hub takes files of at most {settings.max_file_bytes:,} bytes")


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"the upload form cannot be read: {why}", code="form_invalid")


@dataclass(slots=True)
class _Sink:
    """Hashes and writes what it is given, in a thread and not too often."""

    file: FileIO
    max_bytes: int
    size_bytes: int = 0
    _waiting: bytearray = field(default_factory=bytearray)
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def take(self, data: bytes) -> None:
        self.size_bytes += len(data)
        if self.size_bytes > self.max_bytes:
            raise TooLarge(f"this hub takes files of at most {self.max_bytes:,} bytes")
        self._waiting += data

    async def flush(self, *, at_least: int = 1) -> None:
        if len(self._waiting) >= at_least:
            data, self._waiting = self._waiting, bytearray()
            await run_in_threadpool(self._write, data)

    def _write(self, data: bytearray) -> None:
        self._hash.update(data)
        with full_disk_named():
            left = memoryview(data)
            while left:  # an unbuffered write may take less than all
                left = left[self.file.write(left) :]

    def arrived(self, path: Path, filename: str, began_at: datetime) -> Arrived:
        return Arrived(path, filename, self.size_bytes, self._hash.hexdigest(), began_at)


class _FormReader:
    """What the parser calls. Fields are kept, the part `content` goes to the sink, other files are passed over."""

    def __init__(self, sink: _Sink, settings: Settings) -> None:
        self.fields: dict[str, list[str]] = {}
        self.filename: str | None = None
        self.is_whole = False
        self._sink = sink
        self._settings = settings
        self._parts = 0
        self._fields_bytes = 0
        self._header = (bytearray(), bytearray())
        self._disposition = b""
        self._name = ""
        self._value = bytearray()
        self._kind = "field"  # content, field, passed over

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._whole,
        }

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > self._settings.max_form_fields:
            raise _malformed(f"it has more than {self._settings.max_form_fields:,} fields")
        self._disposition, self._value = b"", bytearray()

    def _header_end(self) -> None:
        name, value = (bytes(part) for part in self._header)
        if name.lower() == b"content-disposition":
            self._disposition = value
        self._header = (bytearray(), bytearray())

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise _malformed("a part has no name")
        self._name = _text(options[b"name"])
        filename = options.get(b"filename")
        self._kind = "field" if filename is None else "content" if self._name == "content" else "passed over"
        if self._name == "content":
            if filename is None:
                raise _malformed("'content' is not sent as a file, with a file name")
            if self.filename is not None:
                raise _malformed("'content' is there twice")
            self.filename = _text(filename)

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._kind == "content":
            self._sink.take(data[start:end])
            return
        size = end - start
        self._fields_bytes += size
        if len(self._value) + size > self._settings.max_form_field_bytes or self._fields_bytes > MAX_FIELDS_BYTES:
            raise _malformed(
                f"a field has more than {self._settings.max_form_field_bytes:,} bytes, or all together too many"
            )
        if self._kind == "field":
            self._value += data[start:end]

    def _end(self) -> None:
        if self._kind == "field":
            self.fields.setdefault(self._name, []).append(_text(bytes(self._value)))

    def _whole(self) -> None:
        self.is_whole = True


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _malformed("a field is not UTF-8") from None
