"""What orchestrator and trainer say to each other where weights are sent: a line of JSON each, over one connection.

The trainer's first rank listens, and leaves an `Address` in the run's folder. The orchestrator connects, and names the
servers that are to be given weights. Who has just connected is the orchestrator; an older connection ends.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from verifiers.rl.transports import wire
from verifiers.rl.ways import Backend, TensorSpec
from verifiers.whole_file import replace_file

PROTOCOL = 1
LINE_BYTES = 1 << 26  # a manifest has all names and shapes of a model


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the trainer of a run is, in a folder that only its owner can read."""

    host: str
    port: int
    secret: str
    version: int  # of the weights that it began with
    is_done: bool = False  # it has trained the last step, and its weights are the run's `model` folder

    @classmethod
    def read(cls, run: Path) -> Address | None:
        """None: the run has had no trainer that sends."""
        try:
            return msgspec.json.decode(_path(run).read_bytes(), type=Address)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, run: Path) -> None:
        _path(run).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(_path(run), msgspec.json.encode(self))


def _path(run: Path) -> Path:
    return run / "sending" / "address.json"


# --- from the orchestrator ------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, tag=True):
    protocol: int
    secret: str


class Connect(msgspec.Struct, frozen=True, tag=True):
    """Form a group with the workers of this server. Answered by `Connected`."""

    number: int
    url: str


class Disconnect(msgspec.Struct, frozen=True, tag=True):
    """The next update to this server forms a new group."""

    url: str


class Send(msgspec.Struct, frozen=True, tag=True):
    """Send these weights to servers that wait for them. Answered by `Sent`."""

    number: int
    version: int
    urls: list[str]


class GoOn(msgspec.Struct, frozen=True, tag=True):
    """Weights up to this version need not be held any more."""

    version: int


Order = Hello | Connect | Disconnect | Send | GoOn


# --- from the trainer -----------------------------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """What it sends each time, and how."""

    backend: Backend
    manifest: list[TensorSpec]


class Refused(msgspec.Struct, frozen=True, tag=True):
    reason: str


class Holding(msgspec.Struct, frozen=True, tag=True):
    """The weights of this version can be had; it waits for `GoOn` before it changes them."""

    version: int


class Busy(msgspec.Struct, frozen=True, tag=True):
    """A step has begun: nothing can be had until the next `Holding`."""


class Connected(msgspec.Struct, frozen=True, tag=True):
    number: int
    problem: str | None  # None: there is a group now


class Sent(msgspec.Struct, frozen=True, tag=True):
    number: int
    failures: dict[str, str]  # by URL; who is not named has been sent everything


Answer = Welcome | Refused | Holding | Busy | Connected | Sent

orders: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def put(writer: asyncio.StreamWriter | None, message: Order | Answer) -> None:
    """To whoever is there: a connection that is gone takes nothing, and its end is noticed by who reads."""
    if writer is not None and not writer.is_closing():
        writer.write(msgspec.json.encode(message) + b"\n")


async def take(reader: asyncio.StreamReader) -> bytes:
    """One line. Raises ConnectionError at the end."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise ConnectionError("the other end hung up")
    return line


keep_alive = wire.keep_alive
