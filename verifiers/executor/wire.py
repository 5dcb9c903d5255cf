"""What passes between an executor and its workers: length-prefixed msgpack, the same for a process and for Ray."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from verifiers import errors
from verifiers.executor.request import EnvRows, EnvSpec, GroupRequest, RowsRequest
from verifiers.records import RolloutRecord, plain

MAX_FRAME_BYTES = 2**31  # a group of long rollouts with their tokens is some megabytes


class Start(msgspec.Struct, frozen=True, tag="start"):
    """First to a worker: the environment that it is for."""

    spec: EnvSpec


class Do(msgspec.Struct, frozen=True, tag="do"):
    number: int
    request: GroupRequest | RowsRequest


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    number: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker has loaded its environment."""

    pid: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What was asked for: the records of a group, or rows."""

    number: int
    records: list[RolloutRecord] = []
    rows: EnvRows | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A request could not be answered; without a number the environment could not be loaded."""

    number: int | None
    kind: str  # name of the exception class
    message: str


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    """The group's rollouts have ended, clean-up included."""

    number: int


ToWorker = Start | Do | Cancel
FromWorker = Ready | Done | Failed | Cancelled

_encoder = msgspec.msgpack.Encoder(enc_hook=plain)
_to_worker = msgspec.msgpack.Decoder(ToWorker)
_from_worker = msgspec.msgpack.Decoder(FromWorker)


def encode(message: ToWorker | FromWorker) -> bytes:
    return _encoder.encode(message)


def decode_order(data: bytes) -> ToWorker:
    return _to_worker.decode(data)


def decode_answer(data: bytes) -> FromWorker:
    return _from_worker.decode(data)


def failed(number: int | None, error: BaseException) -> Failed:
    return Failed(number, type(error).__name__, str(error))


def error_of(failure: Failed) -> Exception:
    """The error as it was raised over there, as far as its type is one of ours; else an EnvironmentFault."""
    kind: Any = getattr(errors, failure.kind, None)
    if kind is errors.MissingKeyError:
        return errors.ConfigError(failure.message)
    if isinstance(kind, type) and issubclass(kind, errors.Error | errors.SetupError):
        return kind(failure.message)
    return errors.EnvironmentFault(f"{failure.kind}: {failure.message}")


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """`None` at the end of the stream, also in the middle of a frame: the other side has died."""
    try:
        head = await reader.readexactly(4)
        return await reader.readexactly(int.from_bytes(head, "little"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def write_frame(writer: asyncio.StreamWriter, message: ToWorker | FromWorker) -> None:
    """Raises ValueError for more than 2 GiB."""
    data = encode(message)
    if len(data) >= MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(data)} bytes; at most {MAX_FRAME_BYTES} can be sent")
    writer.write(len(data).to_bytes(4, "little"))
    writer.write(data)
