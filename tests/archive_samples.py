"""Wheels and sdists for tests: good ones, and ones that are wrong in exactly one way."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import struct
import tarfile
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from verifiers import archives
from verifiers.archives import ArchiveRefused, Limits

NAME, VERSION = "zz-game", "0.1.0"
FOLDER = "zz_game-0.1.0"
INFO = f"{FOLDER}.dist-info"
WHEEL_NAME = f"{FOLDER}-py3-none-any.whl"
SDIST_NAME = f"{FOLDER}.tar.gz"
MODULE = b"def load_environment(**kwargs):\n    return None\n"
METADATA = b"""Metadata-Version: 2.4
Name: zz-game
Version: 0.1.0
Summary: A game
Requires-Python: >=3.11
License-Expression: Apache-2.0
License-File: LICENSE
Keywords: game,train
Author-email: Ada <ada@example.com>
Project-URL: Source, https://example.com/zz
Description-Content-Type: text/markdown
Requires-Dist: verifiers>=1.0.0
Requires-Dist: numpy>=2

# Zz

A game.
"""
WHEEL = b"Wheel-Version: 1.0\nGenerator: samples\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
PYPROJECT = b"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "zz-game"
version = "0.1.0"
tags = ["game"]

[tool.verifiers]
task_type = "multi-turn"
tools = ["guess"]
datasets = ["example/words", { name = "example/more", revision = "abc", split = "train", license = "MIT" }]
splits = { train = 100, eval = 10 }
required_keys = ["OPENAI_API_KEY"]
publish_answers = true

[tool.verifiers.eval]
num_examples = 5
rollouts_per_example = 3

[tool.verifiers.validate]
reference_reward = 1.0
"""
FORM = {
    ":action": ["file_upload"],
    "protocol_version": ["1"],
    "metadata_version": ["2.4"],
    "name": ["zz-game"],
    "version": ["0.1.0"],
    "requires_python": [">=3.11"],
    "requires_dist": ["verifiers>=1.0.0", "numpy>=2"],
}

DEFAULTS = Limits()

Files = dict[str, bytes]


def wheel_files(**changes: bytes | None) -> Files:
    """The files of a good wheel without RECORD. `changes`: METADATA, WHEEL, entry_points; `None` leaves one out."""
    parts: dict[str, bytes | None] = {"METADATA": METADATA, "WHEEL": WHEEL, **changes}
    files = {"zz_game/__init__.py": MODULE, "zz_game/words.txt": b"apple\n" * 50}
    names = {"entry_points": "entry_points.txt", "pyproject": "extra_metadata/pyproject.toml"}
    for part, content in parts.items():
        if content is not None:
            files[f"{INFO}/{names.get(part, part)}"] = content
    files[f"{INFO}/licenses/LICENSE"] = b"Apache License\n"
    return files


def record_of(files: Files, path: str = f"{INFO}/RECORD") -> bytes:
    rows = [f"{name},{record_hash(content)},{len(content)}" for name, content in files.items()]
    return "\n".join([*rows, f"{path},,", ""]).encode()


def record_hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def with_record(files: Files) -> Files:
    return {**files, f"{INFO}/RECORD": record_of(files)}


def wheel(files: Files | None = None, **changes: bytes | None) -> bytes:
    """A good wheel, or one with these files and a true RECORD."""
    return zip_of(with_record(wheel_files(**changes) if files is None else files))


def zip_of(files: Files) -> bytes:
    return raw_zip([ZipMember(name.encode(), content) for name, content in files.items()])


@dataclass(frozen=True)
class ZipMember:
    """A member whose two headers can be made to say anything."""

    name: bytes
    content: bytes = b""
    method: int = 8
    flags: int | None = None  # None: the flag for UTF-8 when it is needed
    attributes: int = 0o100644 << 16
    packed: bytes | None = None  # instead of what `content` packs to
    local: dict[str, Any] = field(default_factory=dict)  # what the local header says otherwise
    central: dict[str, Any] = field(default_factory=dict)
    before: bytes = b""  # between the last member and this one's header
    behind: bytes = b""  # between the content and what follows
    extra: bytes = b""
    comment: bytes = b""


def raw_zip(
    members: list[ZipMember],
    *,
    start: bytes = b"",
    before_directory: bytes = b"",
    in_directory: bytes = b"",
    before_end: bytes = b"",
    end: dict[str, int] | None = None,
    comment: bytes = b"",
    behind: bytes = b"",
    count_from_start: bool = False,  # offsets as they would be without `start`, as in a self-extracting file
) -> bytes:
    out, directory = bytearray(start), bytearray()
    shift = len(start) if count_from_start else 0
    for member in members:
        out += member.before
        packed = member.packed
        if packed is None:
            packed = deflated(member.content) if member.method == 8 else member.content
        plain_flags = 0 if member.name.isascii() else 0x800
        says: dict[str, Any] = {
            "name": member.name,
            "flags": plain_flags if member.flags is None else member.flags,
            "method": member.method,
            "crc": zlib.crc32(member.content),
            "packed": len(packed),
            "size": len(member.content),
            "extra": member.extra,
        }
        here, there = {**says, **member.local}, {**says, "offset": len(out) - shift, **member.central}
        out += struct.pack(
            "<4s5H3L2H", b"PK\x03\x04", 20, here["flags"], here["method"], 0, 0x21, here["crc"], here["packed"],
            here["size"], len(here["name"]), len(here["extra"]),
        ) + here["name"] + here["extra"]  # fmt: skip
        out += packed + member.behind
        directory += struct.pack(
            "<4s6H3L5H2L", b"PK\x01\x02", 0x0314, 20, there["flags"], there["method"], 0, 0x21, there["crc"],
            there["packed"], there["size"], len(there["name"]), len(there["extra"]), len(member.comment), 0, 0,
            there.get("attributes", member.attributes), there["offset"],
        ) + there["name"] + there["extra"] + member.comment  # fmt: skip
    directory += in_directory
    out += before_directory
    said = {
        "disk": 0, "count": len(members), "length": len(directory), "offset": len(out) - shift, **(end or {}),
    }  # fmt: skip
    out += directory + before_end
    out += struct.pack(
        "<4s4H2LH", b"PK\x05\x06", said["disk"], 0, said.get("here", said["count"]), said["count"], said["length"],
        said["offset"], len(comment),
    )  # fmt: skip
    return bytes(out + comment + behind)


def deflated(content: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


def zip64_extra(*numbers: int) -> bytes:
    return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers)


def good_members() -> list[ZipMember]:
    return [ZipMember(name.encode(), content) for name, content in with_record(wheel_files()).items()]


def changed_member(number: int = 0, **changes: object) -> list[ZipMember]:
    """A good wheel's members with one changed."""
    members = good_members()
    members[number] = replace(members[number], **changes)  # type: ignore[arg-type]
    return members


# sdists


def sdist_files(**changes: bytes | None) -> Files:
    """Paths with the top folder. `changes`: PKG_INFO, pyproject; `None` leaves one out."""
    parts: dict[str, bytes | None] = {"PKG_INFO": METADATA, "pyproject": PYPROJECT, **changes}
    names = {"PKG_INFO": "PKG-INFO", "pyproject": "pyproject.toml"}
    files = {f"{FOLDER}/{names[part]}": content for part, content in parts.items() if content is not None}
    return {
        **files,
        f"{FOLDER}/LICENSE": b"Apache License\n",
        f"{FOLDER}/README.md": b"# Zz\n",
        f"{FOLDER}/zz_game/__init__.py": MODULE,
        f"{FOLDER}/zz_game/words.txt": b"apple\n" * 50,
    }


def sdist(files: Files | None = None, **changes: bytes | None) -> bytes:
    return tar_gz([TarMember(path, content) for path, content in (files or sdist_files(**changes)).items()])


@dataclass(frozen=True)
class TarMember:
    path: str
    content: bytes = b""
    type: bytes = tarfile.REGTYPE
    mode: int = 0o644
    link: str = ""
    pax: dict[str, str] = field(default_factory=dict)


def sdist_members(*more: TarMember) -> list[TarMember]:
    return [*(TarMember(path, content) for path, content in sdist_files().items()), *more]


def tar_of(members: list[TarMember], format: int = tarfile.PAX_FORMAT, pax: dict[str, str] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, pax_headers=pax) as opened:
        for member in members:
            info = tarfile.TarInfo(member.path)
            info.size, info.type, info.mode = len(member.content), member.type, member.mode
            info.linkname, info.pax_headers = member.link, dict(member.pax)
            opened.addfile(info, io.BytesIO(member.content))
    return out.getvalue()


def tar_gz(members: list[TarMember], format: int = tarfile.PAX_FORMAT, pax: dict[str, str] | None = None) -> bytes:
    return gzip.compress(tar_of(members, format, pax), 9, mtime=0)


def tar_header(path: bytes, size: int = 0, kind: bytes = b"0", mode: int = 0o644, **fields: Any) -> bytes:
    """One block; `fields` may set `magic`, `prefix`, `size_field`, `time_field` and `sum_field`."""
    block = bytearray(512)
    block[: len(path)] = path
    block[100:108] = b"%07o\0" % mode
    block[124:136] = fields.get("size_field", b"%011o\0" % size)
    block[136:148] = fields.get("time_field", b"%011o\0" % 0)
    block[156:157] = kind
    block[257:265] = fields.get("magic", b"ustar\x0000")
    prefix = fields.get("prefix", b"")
    block[345 : 345 + len(prefix)] = prefix
    block[148:156] = b" " * 8
    block[148:156] = fields.get("sum_field", b"%06o\0 " % sum(block))
    return bytes(block)


def tar_member(path: bytes, content: bytes = b"", kind: bytes = b"0", **fields: Any) -> bytes:
    return tar_header(path, len(content), kind, **fields) + content + bytes(-len(content) % 512)


def good_blocks() -> bytes:
    """A good sdist's tar without its end mark."""
    return b"".join(tar_member(path.encode(), content) for path, content in sdist_files().items())


def gz(blocks: bytes, *, end: bytes = bytes(1024)) -> bytes:
    return gzip.compress(blocks + end, 9, mtime=0)


def pax_record(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = len(body) + 1
    while len(str(length)) + len(body) != length:
        length += 1
    return str(length).encode() + body


# what upload tools send along


def form_of(data: bytes, kind: str = "wheel", **changes: list[str]) -> dict[str, list[str]]:
    """The form of a good upload; an empty list takes a field away."""
    own = {"filetype": ["bdist_wheel"], "pyversion": ["py3"]}
    if kind == "sdist":
        own = {"filetype": ["sdist"], "pyversion": ["source"]}
    digests = {
        "sha256_digest": [hashlib.sha256(data).hexdigest()],
        "md5_digest": [hashlib.md5(data).hexdigest()],
        "blake2_256_digest": [hashlib.blake2b(data, digest_size=32).hexdigest()],
    }
    form = {**FORM, **own, **digests, **changes}
    return {field: values for field, values in form.items() if values}


# what becomes of them


def check(data: bytes, filename: str, limits: Limits = DEFAULTS) -> archives.Checked:
    return archives.check(io.BytesIO(data), filename, limits)


def refused(data: bytes, filename: str, *codes: str, limits: Limits = DEFAULTS) -> ArchiveRefused:
    """Checks that the file is refused with one of the codes and a reason that can be shown."""
    with pytest.raises(ArchiveRefused) as caught:
        check(data, filename, limits)
    error = caught.value
    assert error.code in codes, f"{error.code}: {error.detail}"
    assert error.detail and error.detail.isprintable() and len(error.detail) < 1000
    return error


def refused_wheel(data: bytes, *codes: str, limits: Limits = DEFAULTS) -> ArchiveRefused:
    return refused(data, WHEEL_NAME, *codes, limits=limits)


def refused_sdist(data: bytes, *codes: str, limits: Limits = DEFAULTS) -> ArchiveRefused:
    return refused(data, SDIST_NAME, *codes, limits=limits)


def wheel_with(path: str, content: bytes = b"x") -> bytes:
    return wheel({**wheel_files(), path: content})


def changed(text: bytes, old: str, new: str) -> bytes:
    assert old.encode() in text
    return text.replace(old.encode(), new.encode())


def metadata_with(old: str, new: str) -> bytes:
    return changed(METADATA, old, new)


def refused_metadata(metadata: bytes, *codes: str, limits: Limits = DEFAULTS) -> ArchiveRefused:
    """In the wheel and in the sdist alike."""
    refused_sdist(sdist(PKG_INFO=metadata), *codes, limits=limits)
    return refused_wheel(wheel(METADATA=metadata), *codes, limits=limits)
