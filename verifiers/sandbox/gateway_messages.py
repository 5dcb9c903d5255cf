"""What a gateway and its clients say to each other: JSON for what is decided by, raw bytes for what is carried.

A message is the length of its head in four bytes, the head as JSON, and the bytes carried, back to back. A plain JSON
answer begins with a brace, a message with a zero, and what takes long is preceded by line feeds, one each `BEAT_S`.
Of a process that is talked to, each WebSocket message is one letter and what belongs to it.
"""

from __future__ import annotations

import tarfile
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from verifiers.errors import ConfigError, NoSandboxError, SandboxError, SetupError
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import Capabilities, ExecResult, SandboxSpec

BEAT_S = 10.0  # the other side is dead when nothing comes for some of these
BEAT = b"\n"
MAX_HEAD_BYTES = (1 << 24) - 1  # the first byte of a message is 0, so that it is told from JSON and from a beat
MAX_FRAME_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20  # of what a process is given or asked for in one frame

Head = TypeVar("Head", bound="msgspec.Struct")


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    capabilities: Capabilities
    lease_s: float


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `files` are carried. Asking again with the same `creation` gives no second sandbox."""

    creation: str
    spec: SandboxSpec
    files: dict[str, int] = {}


class Created(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    work: str
    lease_s: float
    limits: SandboxLimits  # as the gateway grants them
    lifetime_s: float


class Exec(msgspec.Struct, frozen=True, kw_only=True):
    """stdin is carried."""

    command: list[str] | str
    limits: SandboxLimits | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    user: str | None = None


class RunOnce(msgspec.Struct, frozen=True, kw_only=True):
    """The program, stdin and the contents of `files` are carried."""

    program: int
    stdin: int = 0
    limits: SandboxLimits = SandboxLimits()
    env: dict[str, str] = {}
    files: dict[str, int] = {}


class File(msgspec.Struct, frozen=True, kw_only=True):
    """What is written is carried there, what is read is carried back."""

    path: str
    mode: int = 0o644
    max_bytes: int | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended; stdout and stderr are carried."""

    result: ExecResult
    stdout: int
    stderr: int


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Sandboxes by their ids, by how they were created, or by their run."""

    ids: list[str] | None = None
    creation: str | None = None
    run_id: str | None = None


class These(msgspec.Struct, frozen=True):
    ids: list[str]


class SandboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox that is not `alive` has ended, or never was; then the rest is not known."""

    alive: bool
    run_id: str | None = None
    calls: int = 0  # that go on now
    age_s: float | None = None
    idle_s: float | None = None
    lease_s: float | None = None  # left, unless it is renewed
    ends_in_s: float | None = None


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    sandboxes: dict[str, SandboxStatus]
    places: int  # that the gateway has, for all its clients
    free: int
    waiting: int
    warm: int
    draining: bool


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer. `kind` is a key of one of the tables below."""

    kind: str
    message: str


class Problems(msgspec.Struct, frozen=True):
    error: Problem


class SandboxGone(SandboxError):
    """The gateway no longer has this sandbox, or never had it."""


# kind → HTTP status, of what the gateway itself refuses
KINDS = {
    "bad-request": 400,
    "unauthorized": 401,
    "unknown": 404,
    "ended": 410,
    "too-large": 413,
    "full": 429,
    "internal": 500,
    "draining": 503,
}
# kind → error on both sides, and the HTTP status that goes with it; the first that fits is taken
RAISED: dict[str, tuple[type[Exception], int]] = {
    "no-sandbox": (NoSandboxError, 422),
    "config": (ConfigError, 400),
    "setup": (SetupError, 422),
    "sandbox": (SandboxError, 502),
}
# the same, of what is done to files; elsewhere such an error is the gateway's machine's own
OF_FILES: dict[str, tuple[type[Exception], int]] = {
    "not-found": (FileNotFoundError, 422),
    "is-folder": (IsADirectoryError, 422),
    "no-folder": (NotADirectoryError, 422),
    "no-permission": (PermissionError, 422),
    "file": (OSError, 422),
}


def problem_of(error: Exception, is_of_file: bool = False) -> tuple[Problem, int] | None:
    """None: an error that nobody expects of a backend."""
    is_of_file = is_of_file and not isinstance(error, (ConnectionError, TimeoutError))
    for kind, (made, status) in (RAISED | OF_FILES if is_of_file else RAISED).items():
        if isinstance(error, made):
            return Problem(kind=kind, message=str(error)), status
    if is_of_file and isinstance(error, tarfile.TarError):
        return Problem(kind="file", message=str(error)), 422
    return None


def error_of(problem: Problem) -> Exception:
    found = (RAISED | OF_FILES).get(problem.kind)
    if found is not None:
        return found[0](problem.message)
    if problem.kind == "unauthorized":
        return SetupError(problem.message)
    if problem.kind in ("unknown", "ended"):
        return SandboxGone(problem.message)
    return (ConfigError if problem.kind == "bad-request" else SandboxError)(problem.message)


def pack(head: msgspec.Struct, *carried: bytes) -> bytes:
    text = msgspec.json.encode(head)
    if len(text) > MAX_HEAD_BYTES:
        raise ConfigError(f"{len(text)} bytes of names and variables are too many for one message")
    return b"".join([len(text).to_bytes(4, "big"), text, *carried])


def unpack(message: bytes, kind: type[Head]) -> tuple[Head, memoryview]:
    """The head, and what is carried. Raises ConfigError for what is no message of this kind."""
    length = int.from_bytes(message[:4], "big")
    if len(message) < 4 + length:
        raise ConfigError(f"no message: it has {len(message)} bytes, and a head of {length} is announced")
    view = memoryview(message)
    try:
        return msgspec.json.decode(view[4 : 4 + length], type=kind), view[4 + length :]
    except msgspec.MsgspecError as error:
        raise ConfigError(f"no {kind.__name__}: {error}") from None


def pack_result(result: ExecResult) -> bytes:
    bare = msgspec.structs.replace(result, stdout=b"", stderr=b"")
    head = Ended(result=bare, stdout=len(result.stdout), stderr=len(result.stderr))
    return pack(head, result.stdout, result.stderr)


def unpack_result(message: bytes) -> ExecResult:
    head, carried = unpack(message, Ended)
    stdout, stderr = split(carried, [head.stdout, head.stderr])
    return msgspec.structs.replace(head.result, stdout=stdout, stderr=stderr)


def split(carried: memoryview, sizes: Sequence[int]) -> list[bytes]:
    if min(sizes, default=0) < 0 or sum(sizes) != len(carried):
        raise ConfigError(f"{sum(sizes)} bytes are announced, and {len(carried)} are carried")
    found, begin = [], 0
    for size in sizes:
        found.append(bytes(carried[begin : begin + size]))
        begin += size
    return found


def sizes_of(files: Mapping[str, bytes]) -> dict[str, int]:
    return {path: len(data) for path, data in files.items()}


def as_json(value: Any) -> bytes:
    return msgspec.json.encode(value)
