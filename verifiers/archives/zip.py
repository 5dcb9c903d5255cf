"""`ZipFile`: a ZIP read record by record, so that every reader of it sees the same members.

Python's `zipfile`, uv and streaming readers trust different parts of a ZIP: the directory at the end, or the headers
in front of the members. Here both are read and must agree, record after record, from the first byte to the last, with
nothing before, between or behind them. Section numbers are those of the ZIP specification (APPNOTE 6.3).
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from verifiers.archives.limits import Budget, Limits
from verifiers.archives.members import MAX_PATH_BYTES, Entry
from verifiers.archives.refusal import ArchiveRefused, shown

CHUNK = 1 << 16
_OUT = 1 << 18

_LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7
_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
_END = struct.Struct("<4s4H2LH")  # 4.3.16
_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
_END_64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
_FULL_16, _FULL_32 = 0xFFFF, 0xFFFFFFFF
_STORED, _DEFLATED = 0, 8
_UTF8 = 1 << 11
_ALLOWED_FLAGS = _UTF8 | 0b110  # bits 1 and 2 tell how hard the compressor tried
_MAX_EXTRA = 1024
_ZIP64_EXTRA = 0x0001
_OTHER_NAMES = {0x7075, 0x6375}  # a second path or comment that only some readers use


@dataclass(frozen=True, slots=True)
class Record:
    """One member as the directory describes it."""

    name: bytes
    path: str  # without the slash at the end of a folder
    is_folder: bool
    executable: bool
    flags: int
    method: int
    crc: int
    packed_bytes: int
    size_bytes: int
    offset: int  # of the local header


def zip_entries(file: IO[bytes], size: int, limits: Limits) -> Iterator[Entry]:
    """The members in order. Their chunks must be read before the next one is asked for. Raises ArchiveRefused."""
    records, directory = read_directory(file, size, limits)
    budget = Budget(limits, size)
    budget.refuse_above(sum(record.size_bytes for record in records))  # cheap, and only for those who tell the truth
    position = 0
    for record in records:
        if record.offset != position:
            raise ArchiveRefused(
                "hidden_data",
                f"there are bytes that belong to no member before {shown(record.path)}, or members overlap",
            )
        start = data_start(file, record)
        position = start + record.packed_bytes
        if position > directory:
            raise ArchiveRefused("header_mismatch", f"{shown(record.path)} reaches into the directory of the ZIP")
        yield Entry(record.path, record.is_folder, record.executable, unpacked(file, start, record, budget))
    if position != directory:
        raise ArchiveRefused("hidden_data", "there are bytes that belong to no member before the directory of the ZIP")


def read_directory(file: IO[bytes], size: int, limits: Limits) -> tuple[list[Record], int]:
    """The records of the directory in their order, and where it begins."""
    count, start, length = _read_end(file, size)
    if count > limits.max_members:
        raise ArchiveRefused("too_many_members", f"{count:,} members are more than {limits.max_members:,}")
    if length > count * (_CENTRAL.size + MAX_PATH_BYTES + _MAX_EXTRA):
        raise ArchiveRefused("corrupt", "the directory of the ZIP is longer than its entries can be")
    file.seek(start)
    data = _exactly(file, length)
    records, position = list[Record](), 0
    for _ in range(count):
        record, position = _read_record(data, position)
        if record.offset >= start:
            raise ArchiveRefused("header_mismatch", f"{shown(record.path)} lies behind the directory of the ZIP")
        records.append(record)
    if position != length:
        raise ArchiveRefused("hidden_data", "the directory of the ZIP holds more than its entries")
    return records, start


def _read_end(file: IO[bytes], size: int) -> tuple[int, int, int]:
    """Number of members, offset and length of the directory, out of the end record, which must be the file's last
    bytes: a comment after it could hold a second end record."""
    if size < _END.size:
        raise ArchiveRefused("not_zip", f"a file of {size} bytes is no ZIP")
    file.seek(0)
    if _exactly(file, 4) not in (b"PK\x03\x04", b"PK\x05\x06"):
        raise ArchiveRefused("not_zip", "the file does not begin as a ZIP does")
    place = size - _END.size
    file.seek(place)
    signature, disk, first_disk, here, count, length, start, comment = _END.unpack(_exactly(file, _END.size))
    if signature != b"PK\x05\x06":
        raise ArchiveRefused("trailing_data", "the ZIP is cut off, or something follows its end record")
    if comment or disk not in (0, _FULL_16) or first_disk not in (0, _FULL_16):
        raise ArchiveRefused("corrupt", "the end record of the ZIP tells of a comment or of further disks")
    end = _read_end_64(file, place)
    if end is not None:
        place, here_64, count_64, length_64, start_64 = end
        pairs = [(here, here_64, _FULL_16), (count, count_64, _FULL_16), (length, length_64, _FULL_32)]
        if any(small not in (big, full) for small, big, full in [*pairs, (start, start_64, _FULL_32)]):
            raise ArchiveRefused("zip64", "the two end records of the ZIP contradict each other")
        here, count, length, start = here_64, count_64, length_64, start_64
    if here != count:
        raise ArchiveRefused("corrupt", "the ZIP is one of several parts")
    if start + length != place:
        raise ArchiveRefused(
            "hidden_data", "the directory of the ZIP is not where its end record says: bytes were added"
        )
    return count, start, length


def _read_end_64(file: IO[bytes], end: int) -> tuple[int, int, int, int, int] | None:
    """Offset of the ZIP64 end record and what it says; `None` when there is no locator for one."""
    place = end - _LOCATOR.size
    if place < 0:
        return None
    file.seek(place)
    signature, disk, record, disks = _LOCATOR.unpack(_exactly(file, _LOCATOR.size))
    if signature != b"PK\x06\x07":
        return None
    if disk != 0 or disks > 1 or record != place - _END_64.size:
        raise ArchiveRefused("zip64", "the ZIP64 locator does not point at the record before it")
    file.seek(record)
    fields = _END_64.unpack(_exactly(file, _END_64.size))
    signature, length, _, _, disk, first_disk, *numbers = fields
    if signature != b"PK\x06\x06" or length != _END_64.size - 12 or disk or first_disk:
        raise ArchiveRefused("zip64", "the ZIP64 end record is not one that is needed here")
    here, count, size, start = numbers
    return record, here, count, size, start


def _read_record(data: bytes, position: int) -> tuple[Record, int]:
    header = data[position : position + _CENTRAL.size]
    if len(header) < _CENTRAL.size or header[:4] != b"PK\x01\x02":
        raise ArchiveRefused("corrupt", "the directory of the ZIP is cut off, or holds something else")
    (
        _,
        _,
        _,
        flags,
        method,
        _,
        _,
        crc,
        packed,
        size,
        name_length,
        extra_length,
        comment,
        disk,
        _,
        attributes,
        offset,
    ) = _CENTRAL.unpack(header)
    position += _CENTRAL.size
    name = data[position : position + name_length]
    extra = data[position + name_length : position + name_length + extra_length]
    path = _decoded(name, flags)
    if len(extra) < extra_length:
        raise ArchiveRefused("corrupt", "the directory of the ZIP is cut off")
    _refuse_format(path, flags, method)
    if comment or disk:
        raise ArchiveRefused("comment", f"{shown(path)} has a comment, or lies in another part of the ZIP")
    wide = _wide_numbers(extra, [size, packed, offset], path)
    size, packed, offset = wide
    if method == _STORED and size != packed:
        raise ArchiveRefused("header_mismatch", f"{shown(path)} is stored as it is, but with two sizes")
    is_folder = path.endswith("/")
    _refuse_type(path, attributes, is_folder)
    if is_folder and (size or packed or crc):
        raise ArchiveRefused("member_type", f"{shown(path)} is a folder with content")
    executable = not is_folder and bool(attributes >> 16 & 0o111)
    record = Record(name, path.removesuffix("/"), is_folder, executable, flags, method, crc, packed, size, offset)
    return record, position + name_length + extra_length


def _decoded(name: bytes, flags: int) -> str:
    if not name or len(name) > MAX_PATH_BYTES + 1:
        raise ArchiveRefused("member_path", f"a member's path has {len(name)} bytes; 1 to {MAX_PATH_BYTES} are taken")
    try:
        return name.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        raise ArchiveRefused(
            "member_path", f"the member {shown(name)} does not have its path in UTF-8 with the flag for it"
        ) from None


def _refuse_format(path: str, flags: int, method: int) -> None:
    if flags & (1 | 1 << 6 | 1 << 13):
        raise ArchiveRefused("encrypted", f"{shown(path)} is encrypted")
    if flags & 1 << 3:
        raise ArchiveRefused(
            "data_descriptor", f"{shown(path)} has its sizes behind its content. Write the ZIP to a file, not to a pipe"
        )
    if flags & ~_ALLOWED_FLAGS:
        raise ArchiveRefused("corrupt", f"{shown(path)} has flags of the ZIP format that mean nothing here")
    if method not in (_STORED, _DEFLATED):
        raise ArchiveRefused(
            "compression", f"{shown(path)} is packed by method {method}; only deflate is read everywhere"
        )


def _refuse_type(path: str, attributes: int, is_folder: bool) -> None:
    mode = attributes >> 16
    kind = stat.S_IFMT(mode)
    right = stat.S_IFDIR if is_folder else stat.S_IFREG
    if kind not in (0, right) or (attributes & 0x10 and not is_folder):
        raise ArchiveRefused("member_type", f"{shown(path)} is no plain file: links, devices and the like are refused")
    if mode & stat.S_ISUID or (mode & (stat.S_ISGID | stat.S_ISVTX) and not is_folder):
        raise ArchiveRefused("member_type", f"{shown(path)} would run with the rights of its owner (set-uid)")


def _wide_numbers(extra: bytes, numbers: list[int], path: str, *, may_repeat: bool = False) -> list[int]:
    """The numbers with those at their 32-bit limit replaced by the ones of the ZIP64 field (4.5.3), which must be
    there exactly when it is needed. `may_repeat`: or say the same once more, as zipfile did before Python 3.11.4."""
    fields, position = dict[int, bytes](), 0
    while position < len(extra):
        if position + 4 > len(extra):
            raise ArchiveRefused("extra_field", f"{shown(path)} has a torn extra field")
        kind, length = struct.unpack_from("<2H", extra, position)
        value = extra[position + 4 : position + 4 + length]
        if kind in fields or kind in _OTHER_NAMES or len(value) != length or len(extra) > _MAX_EXTRA:
            raise ArchiveRefused(
                "extra_field", f"{shown(path)} has an extra field that is torn, doubled or another name"
            )
        fields[kind] = value
        position += 4 + length
    full = [number == _FULL_32 for number in numbers]
    value = fields.get(_ZIP64_EXTRA, b"")
    if may_repeat and value == struct.pack(f"<{len(numbers)}Q", *numbers):
        return numbers
    if len(value) != 8 * sum(full):
        raise ArchiveRefused("zip64", f"{shown(path)} has ZIP64 sizes that are missing or not needed")
    wide = iter(struct.unpack(f"<{sum(full)}Q", value))
    return [next(wide) if is_full else number for is_full, number in zip(full, numbers, strict=True)]


def data_start(file: IO[bytes], record: Record) -> int:
    """Offset of the member's content. Raises ArchiveRefused when the header before it differs from the directory."""
    file.seek(record.offset)
    header = _exactly(file, _LOCAL.size)
    signature, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(header)
    if signature != b"PK\x03\x04" or name_length != len(record.name) or extra_length > _MAX_EXTRA:
        raise ArchiveRefused("header_mismatch", f"{shown(record.path)} has no header of its own where it should be")
    name = _exactly(file, name_length)
    size, packed = _wide_numbers(_exactly(file, extra_length), [size, packed], record.path, may_repeat=True)
    here = (name, flags, method, crc, packed, size)
    there = (record.name, record.flags, record.method, record.crc, record.packed_bytes, record.size_bytes)
    if here != there:
        raise ArchiveRefused(
            "header_mismatch", f"{shown(record.path)}: its header and the directory of the ZIP contradict each other"
        )
    return record.offset + _LOCAL.size + name_length + extra_length


def unpacked(file: IO[bytes], start: int, record: Record, budget: Budget) -> Iterator[bytes]:
    """The member's content, counted while it comes and compared with its CRC at the end."""
    pieces = _inflated(file, start, record) if record.method == _DEFLATED else _stored(file, start, record)
    size = crc = 0
    for piece in pieces:
        size += len(piece)
        if size > record.size_bytes:
            raise ArchiveRefused("header_mismatch", f"{shown(record.path)} unpacks to more than its header says")
        budget.spend(len(piece))
        crc = zlib.crc32(piece, crc)
        yield piece
    if size != record.size_bytes or crc != record.crc:
        raise ArchiveRefused("corrupt", f"{shown(record.path)} does not have the size and CRC that its header says")


def _stored(file: IO[bytes], start: int, record: Record) -> Iterator[bytes]:
    file.seek(start)
    remaining = record.packed_bytes
    while remaining:
        piece = _exactly(file, min(CHUNK, remaining))
        remaining -= len(piece)
        yield piece


def _inflated(file: IO[bytes], start: int, record: Record) -> Iterator[bytes]:
    file.seek(start)
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    remaining, waiting = record.packed_bytes, b""
    try:
        while not unpacker.eof:
            if not waiting and remaining:
                waiting = _exactly(file, min(CHUNK, remaining))
                remaining -= len(waiting)
            piece = unpacker.decompress(waiting, _OUT)
            if not piece and not waiting and not unpacker.eof:
                raise ArchiveRefused("corrupt", f"the content of {shown(record.path)} is cut off")
            waiting = unpacker.unconsumed_tail
            if piece:
                yield piece
    except zlib.error as error:
        raise ArchiveRefused("corrupt", f"the content of {shown(record.path)} cannot be unpacked: {error}") from None
    if remaining or unpacker.unused_data:
        raise ArchiveRefused("hidden_data", f"something follows the packed content of {shown(record.path)}")


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise ArchiveRefused("truncated", "the ZIP is cut off")
    return data
