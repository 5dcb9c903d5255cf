"""`SocketSender`, `SocketReceiver`: batches over TCP, acknowledged one by one.

The orchestrator listens, each rank connects and says which step it wants. A connection that breaks is made again and
goes on where it was; nothing is sent into the void. There is no encryption and no key: listen on an address that only
the cluster reaches.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from itertools import count

from verifiers.rl.transports import wire
from verifiers.rl.transports.transport import TransportError, check_order, checked
from verifiers.rl.types import RankBatch

logger = logging.getLogger("verifiers")

PATIENCE_S = 600.0
LONGEST_WAIT_S = 2.0  # between two attempts to connect
BUFFER_BYTES = 1 << 22


class _Rank:
    """What a sender knows of one rank."""

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}
        self.received = -1
        self.released = -1
        self.writer: asyncio.StreamWriter | None = None  # of its newest connection

    def release(self, step: int) -> None:
        self.released = max(step, self.released)
        for old in [old for old in self.kept if old <= step]:
            del self.kept[old]


class SocketSender:
    """`port` 0 takes a free one, which `port` says once `start` has returned."""

    def __init__(self, world_size: int, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.world_size, self.host, self.port = world_size, host, port
        self._ranks = [_Rank() for _ in range(world_size)]
        self._last: int | None = None
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, limit=BUFFER_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def send(self, step: int, payloads: Sequence[bytes]) -> None:
        if len(payloads) != self.world_size:
            raise TransportError(f"{len(payloads)} payloads for {self.world_size} ranks")
        check_order(step, self._last, self._last, min(rank.released for rank in self._ranks))
        async with self._changed:
            for rank, payload in zip(self._ranks, payloads, strict=True):
                for void in [void for void in rank.kept if void > step]:
                    del rank.kept[void]
                if step > rank.released:
                    rank.kept[step] = payload
            self._last = step
            self._changed.notify_all()

    async def flush(self) -> None:
        """Returns when every rank has acknowledged the last step."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._last is None or all(rank.received >= self._last for rank in self._ranks)
            )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for serving in self._serving:
                serving.cancel()
            if self._serving:
                await asyncio.wait(self._serving)
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire.keep_alive(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            hello = await wire.take(reader)
            if not isinstance(hello, wire.Hello):
                raise TransportError(f"a rank begins with a hello, not with {type(hello).__name__}")
            if reason := self._objection(hello):
                wire.put(writer, wire.Refused(reason))
                await writer.drain()
            else:
                await self._serve_rank(hello, reader, writer)
        except (OSError, TransportError) as error:
            logger.info("a rank's connection ended: %s", error)
        except asyncio.CancelledError:
            pass  # by `close`; the streams of Python 3.11 would tell of it as of a failure
        finally:
            await wire.hang_up(writer)
            self._serving.discard(task)

    def _objection(self, hello: wire.Hello) -> str:
        """Why a rank cannot be served; empty: it can."""
        if hello.protocol != wire.PROTOCOL:
            return f"this orchestrator speaks version {wire.PROTOCOL} of the transport, the rank {hello.protocol}"
        if hello.world_size != self.world_size or not 0 <= hello.rank < self.world_size:
            return f"rank {hello.rank} of {hello.world_size} asks, and batches are made for {self.world_size} ranks"
        return self._gap(hello.rank, hello.next_step)

    def _gap(self, rank: int, step: int) -> str:
        """Why a rank will never get a step; empty: it will, or nobody can tell before the first batch."""
        if self._last is None:
            return ""
        if step > self._last + 1:
            return (
                f"rank {rank} asks for step {step}, and this orchestrator is at step {self._last}: "
                f"start it from the state of step {step}"
            )
        if step <= self._last and step not in self._ranks[rank].kept:
            there = sorted(self._ranks[rank].kept)
            return (
                f"rank {rank} asks for step {step}, which it has released or this orchestrator has never had "
                f"(kept: {there or 'none'}): start the orchestrator from the state of step {step}"
            )
        return ""

    async def _serve_rank(self, hello: wire.Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rank = self._ranks[hello.rank]
        if rank.writer is not None:
            rank.writer.close()  # the rank has come back before its old connection was noticed to be gone
        rank.writer = writer
        rank.received = hello.next_step - 1
        rank.release(hello.released)
        sending = asyncio.ensure_future(self._send_all(hello, writer))
        try:
            while True:
                match await wire.take(reader):
                    case wire.Received(step):
                        rank.received = max(step, rank.received)
                    case wire.Release(step):
                        rank.release(step)
                    case message:
                        raise TransportError(f"a rank does not say {type(message).__name__}")
                async with self._changed:
                    self._changed.notify_all()
        finally:
            sending.cancel()
            await asyncio.wait([sending])
            if not sending.cancelled():
                sending.exception()  # of a broken connection, as the reader has found too
            if rank.writer is writer:
                rank.writer = None

    async def _send_all(self, hello: wire.Hello, writer: asyncio.StreamWriter) -> None:
        for step in count(hello.next_step):
            payload = await self._payload(hello.rank, step)
            if payload is None:
                wire.put(writer, wire.Refused(self._gap(hello.rank, step)))
                await writer.drain()
                writer.close()
                return
            wire.put(writer, wire.Batch(step, payload))
            await writer.drain()

    async def _payload(self, rank: int, step: int) -> bytes | None:
        """Waits for the batch of a step. None: it will never come."""
        async with self._changed:
            while step not in self._ranks[rank].kept:
                if self._gap(rank, step):
                    return None
                await self._changed.wait()
            return self._ranks[rank].kept[step]


class SocketReceiver:
    """Connects when it is first asked, and again whenever the connection breaks, with `patience_s` to find an end."""

    def __init__(self, host: str, port: int, rank: int, world_size: int, *, patience_s: float = PATIENCE_S) -> None:
        self.host, self.port, self._rank, self._world_size = host, port, rank, world_size
        self._patience_s = patience_s
        self._released = -1
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._next = 0  # what the connection will bring

    async def receive(self, step: int) -> RankBatch:
        while True:
            try:
                reader, writer = await self._connected(step)
                message = await wire.take(reader)
                if isinstance(message, wire.Refused):
                    raise TransportError(message.reason)
                if not isinstance(message, wire.Batch) or message.step != step:
                    raise TransportError(f"rank {self._rank} waits for step {step} and was sent {_named(message)}")
                batch = checked(message.payload, step, self._rank)
                self._next = step + 1
                with contextlib.suppress(ConnectionError):  # the hello of the next connection says as much
                    wire.put(writer, wire.Received(step))
                    await writer.drain()
                return batch
            except OSError as error:
                logger.info("rank %d lost the orchestrator: %s", self._rank, error)
                await self._hang_up()
            except TransportError:
                await self._hang_up()
                raise

    async def _connected(self, step: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection that brings `step` next, made if need be."""
        if self._streams is not None and self._next == step:
            return self._streams
        await self._hang_up()
        loop = asyncio.get_running_loop()
        deadline_s, wait_s = loop.time() + self._patience_s, 0.05
        while True:
            try:
                reader, writer = await asyncio.open_connection(self.host, self.port, limit=BUFFER_BYTES)
                break
            except OSError as error:
                if loop.time() + wait_s > deadline_s:
                    raise TransportError(
                        f"rank {self._rank}: no orchestrator at {self.host}:{self.port} for {self._patience_s:g} s "
                        f"({error})"
                    ) from error
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        wire.keep_alive(writer)
        wire.put(writer, wire.Hello(wire.PROTOCOL, self._rank, self._world_size, step, self._released))
        await writer.drain()
        self._streams, self._next = (reader, writer), step
        return self._streams

    async def release(self, step: int) -> None:
        self._released = max(step, self._released)
        if self._streams is not None:
            try:
                wire.put(self._streams[1], wire.Release(step))
                await self._streams[1].drain()
            except OSError:
                await self._hang_up()  # the hello of the next connection says it

    async def close(self) -> None:
        await self._hang_up()

    async def _hang_up(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            await wire.hang_up(streams[1])


def _named(message: wire.Message) -> str:
    return f"step {message.step}" if isinstance(message, wire.Batch) else type(message).__name__
