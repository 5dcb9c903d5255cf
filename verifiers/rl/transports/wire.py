"""The messages of the socket transport: msgpack, each behind its length in 8 bytes, big-endian."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec

from verifiers.rl.transports.transport import TransportError

PROTOCOL = 1
MAX_MESSAGE_BYTES = 1 << 36
LAST_WORDS_S = 1.0


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A rank's first words on a connection: it wants `next_step` and what follows."""

    protocol: int
    rank: int
    world_size: int
    next_step: int
    released: int


class Batch(msgspec.Struct, frozen=True, tag=True):
    step: int
    payload: bytes


class Received(msgspec.Struct, frozen=True, tag=True):
    """The rank has the whole batch of this step."""

    step: int


class Release(msgspec.Struct, frozen=True, tag=True):
    """The rank will not ask for this step or an earlier one again."""

    step: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """What was asked for cannot be had, now or later. The connection ends."""

    reason: str


Message = Hello | Batch | Received | Release | Refused

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Message)


def put(writer: asyncio.StreamWriter, message: Message) -> None:
    data = _encoder.encode(message)
    writer.write(len(data).to_bytes(8, "big"))
    writer.write(data)


async def take(reader: asyncio.StreamReader) -> Message:
    """Raises ConnectionError at the end of the stream, TransportError for what is no message of ours."""
    try:
        length = int.from_bytes(await reader.readexactly(8), "big")
        if length > MAX_MESSAGE_BYTES:
            raise TransportError(f"a message of {length} bytes: the other end speaks another language")
        data = await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the other end hung up") from error
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise TransportError(f"the other end speaks another language ({error})") from error


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Closes a connection for good; what the other end does not take within a moment is dropped."""
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), LAST_WORDS_S)
    except (OSError, TimeoutError):
        writer.transport.abort()


def keep_alive(writer: asyncio.StreamWriter) -> None:
    """Has the kernel notice an end that is gone without a word, within about a minute. The kernel answers for a
    process that is merely busy, which a heartbeat of its own would take for dead."""
    wire = writer.get_extra_info("socket")
    if wire is None:
        return
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
