"""`TarGz`: a gzip-compressed tar, read once from front to back.

Python's `tarfile` believes sizes out of extended headers and holds those headers in memory. Here a header may be small
only, every byte is counted while it is unpacked, and what readers understand in different ways is refused: links,
sparse files, sizes in extended headers, a second gzip stream, anything behind the end.
"""

from __future__ import annotations

import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from verifiers.archives.limits import KIB, Budget, Limits
from verifiers.archives.members import MAX_PATH_BYTES, Entry
from verifiers.archives.refusal import ArchiveRefused, shown

CHUNK = 1 << 16
_OUT = 1 << 18
BLOCK = 512
MAX_EXTENDED_BYTES = 64 * KIB  # one PAX or GNU header
_ZEROS = bytes(BLOCK)
_MAX_EXTENDED = 2  # headers before one member
_GZIP_FLAGS = 0x01 | 0x02 | 0x08  # text, header checksum, file name; not: extra field, comment

# PAX keywords that change nothing which is read here; a vendor's own have a dot in them
_PAX_IGNORED = {"mtime", "atime", "ctime", "uid", "gid", "uname", "gname", "comment"}
_IGNORED_FIELDS = ((108, 116), (116, 124), (136, 148), (329, 337), (337, 345))  # owner, group, time, device
_IGNORED_NUMBER = re.compile(rb"[ \0]*[0-7]*[ \0]*|[\x80\xff].*", re.S)  # the second form is the binary one of GNU tar
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,7}) ")


def tar_entries(file: IO[bytes], size: int, limits: Limits) -> Iterator[Entry]:
    """The members in order. Their chunks must be read before the next one is asked for. Raises ArchiveRefused."""
    stream = _Stream(_gunzipped(file, Budget(limits, size)))
    count, pending = 0, _Pending()
    while (block := stream.take(BLOCK)) != _ZEROS:
        header = _read_header(block)
        if header.kind in "xgL":
            _read_extended(header, stream, pending)
            continue
        count += 1
        if count > limits.max_members:
            raise ArchiveRefused("too_many_members", f"there are more than {limits.max_members:,} members")
        path = pending.path if pending.path is not None else header.path
        is_folder = header.kind == "5"
        _refuse_type(header, path)
        if not is_folder and path.endswith("/"):
            raise ArchiveRefused("member_type", f"{shown(path)} has the name of a folder and the type of a file")
        if pending.size_bytes not in (None, header.size_bytes):
            raise ArchiveRefused(
                "extended_header", f"{shown(path)} has two sizes, of which readers take the one or other"
            )
        pending = _Pending()
        content = stream.pieces(header.size_bytes)
        yield Entry(path.removesuffix("/"), is_folder, bool(header.mode & 0o111) and not is_folder, content)
        if not content.exhausted:
            raise AssertionError("the chunks of an entry are to be read before the next entry")
        stream.take(-header.size_bytes % BLOCK)
    if pending.headers:
        raise ArchiveRefused("corrupt", "an extended header at the end of the tar belongs to no member")
    if stream.take(BLOCK) != _ZEROS:
        raise ArchiveRefused("trailing_data", "the tar goes on after its end mark")
    stream.only_zeros()


@dataclass(frozen=True, slots=True)
class _Header:
    path: str
    kind: str
    size_bytes: int
    mode: int


@dataclass(slots=True)
class _Pending:
    """What extended headers said about the member that comes next."""

    path: str | None = None
    size_bytes: int | None = None
    headers: int = 0


def _read_header(block: bytes) -> _Header:
    if _number(block[148:156]) != 256 + sum(block) - sum(block[148:156]):
        raise ArchiveRefused("corrupt", "a header of the tar does not have the sum that it says")
    magic = block[257:265]
    name = _text(block[:100])
    if magic == b"ustar\x0000":
        prefix = _text(block[345:500])
        name = f"{prefix}/{name}" if prefix else name
    elif magic != b"ustar  \x00" or any(block[345:500]):
        raise ArchiveRefused("corrupt", f"{shown(name)} has a header that is neither POSIX nor GNU tar")
    if not all(_IGNORED_NUMBER.fullmatch(block[start:end]) for start, end in _IGNORED_FIELDS):
        raise ArchiveRefused("corrupt", f"{shown(name)} has a header with a number that readers cannot read")
    kind = chr(block[156]) if block[156] else "0"
    return _Header(name, kind, _number(block[124:136]), _number(block[100:108]))


def _text(field: bytes) -> str:
    text, _, rest = field.partition(b"\0")
    if rest.strip(b"\0"):
        raise ArchiveRefused("member_path", f"the member {shown(text)} has a path that goes on after a NUL")
    return _decoded(text)


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise ArchiveRefused("member_path", f"the member {shown(text)} does not have its path in UTF-8") from None


def _number(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if not re.fullmatch(rb"[0-7]+", digits):
        raise ArchiveRefused("corrupt", "a header of the tar has a number that is not written in octal digits")
    return int(digits, 8)


def _refuse_type(header: _Header, path: str) -> None:
    if header.kind not in ("0", "5"):
        raise ArchiveRefused(
            "member_type", f"{shown(path)} is no plain file: links, devices, sparse files and the like are refused"
        )
    if header.kind == "5" and header.size_bytes:
        raise ArchiveRefused("member_type", f"{shown(path)} is a folder with content")
    # folders may carry set-gid: a shared folder's does, and nobody takes it over
    if header.mode & stat.S_ISUID or (header.mode & (stat.S_ISGID | stat.S_ISVTX) and header.kind == "0"):
        raise ArchiveRefused("member_type", f"{shown(path)} would run with the rights of its owner (set-uid)")


def _read_extended(header: _Header, stream: _Stream, pending: _Pending) -> None:
    if header.size_bytes > MAX_EXTENDED_BYTES:
        raise ArchiveRefused("extended_header", f"an extended header has more than {MAX_EXTENDED_BYTES:,} bytes")
    pending.headers += 1
    if pending.headers > _MAX_EXTENDED:
        raise ArchiveRefused("extended_header", "several extended headers describe one member")
    data = stream.take(header.size_bytes)
    stream.take(-header.size_bytes % BLOCK)
    records = {"path": data} if header.kind == "L" else _pax_records(data)
    if header.kind == "g" and records:
        raise ArchiveRefused("extended_header", "an extended header gives one path or size to all members")
    if "size" in records:
        pending.size_bytes = _decimal(records["size"])
    if "path" not in records:
        return
    path = _text(records["path"])
    if pending.path is not None:
        raise ArchiveRefused("extended_header", f"{shown(path)} and {shown(pending.path)} are paths of one member")
    if len(path.encode()) > MAX_PATH_BYTES + 1:
        raise ArchiveRefused("member_path", f"the member {shown(path)} has a path of more than {MAX_PATH_BYTES} bytes")
    pending.path = path


def _pax_records(data: bytes) -> dict[str, bytes]:
    """`path` and `size` among the records of a PAX header. Raises ArchiveRefused for other keywords that change what a
    member is."""
    found, position = dict[str, bytes](), 0
    while position < len(data):
        match = _PAX_RECORD.match(data, position)
        end = position + int(match[1]) if match else 0
        if match is None or end <= match.end() or data[end - 1 : end] != b"\n":
            raise ArchiveRefused("extended_header", "an extended header is torn")
        keyword, equals, value = data[match.end() : end - 1].partition(b"=")
        key = _decoded(keyword)
        if not equals or key in found or not _is_harmless(key):
            raise ArchiveRefused(
                "extended_header", f"an extended header says {shown(key)}, which is refused or said twice"
            )
        found[key] = value
        position = end
    return {key: found[key] for key in ("path", "size") if key in found}


def _is_harmless(key: str) -> bool:
    if "sparse" in key or key.endswith("realsize"):
        return False
    return key in _PAX_IGNORED or key in ("path", "size") or "." in key


def _decimal(text: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,18}", text):
        raise ArchiveRefused("extended_header", f"an extended header has the size {shown(text)}")
    return int(text)


class _Stream:
    """Bytes out of pieces of any length, by count."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._source = pieces
        self._piece = memoryview(b"")

    def take(self, count: int) -> bytes:
        return b"".join(self.pieces(count))

    def pieces(self, count: int) -> _Pieces:
        return _Pieces(self, count)

    def some(self, most: int) -> bytes:
        """1 to `most` bytes; none at the end."""
        while not self._piece:
            piece = next(self._source, None)
            if piece is None:
                return b""
            self._piece = memoryview(piece)
        some, self._piece = self._piece[:most], self._piece[most:]
        return bytes(some)

    def only_zeros(self) -> None:
        while some := self.some(CHUNK):
            if some.strip(b"\0"):
                raise ArchiveRefused("trailing_data", "the tar goes on after its end mark")


class _Pieces:
    """Exactly `count` bytes of a stream. Raises ArchiveRefused when it ends before."""

    def __init__(self, stream: _Stream, count: int) -> None:
        self._stream = stream
        self._remaining = count

    @property
    def exhausted(self) -> bool:
        return self._remaining == 0

    def __iter__(self) -> Iterator[bytes]:
        while self._remaining:
            piece = self._stream.some(min(_OUT, self._remaining))
            if not piece:
                raise ArchiveRefused("truncated", "the tar is cut off: it has no end mark")
            self._remaining -= len(piece)
            yield piece


def _gunzipped(file: IO[bytes], budget: Budget) -> Iterator[bytes]:
    """What the one gzip stream of the file unpacks to, counted while it comes."""
    file.seek(0)
    waiting = file.read(CHUNK)
    if len(waiting) < 10 or waiting[:3] != b"\x1f\x8b\x08":
        raise ArchiveRefused("not_gzip", "the file does not begin as a gzip file does")
    if waiting[3] & ~_GZIP_FLAGS:
        raise ArchiveRefused("hidden_data", "the gzip header has a comment or an extra field, where data can hide")
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        while not unpacker.eof:
            if not waiting:
                waiting = file.read(CHUNK)
            piece = unpacker.decompress(waiting, _OUT)
            if not piece and not waiting and not unpacker.eof:
                raise ArchiveRefused("truncated", "the gzip stream is cut off")
            waiting = unpacker.unconsumed_tail
            if piece:
                budget.spend(len(piece))
                yield piece
    except zlib.error as error:
        raise ArchiveRefused("corrupt", f"the gzip stream cannot be unpacked: {error}") from None
    if unpacker.unused_data or file.read(1):
        raise ArchiveRefused("trailing_data", "something follows the gzip stream")
