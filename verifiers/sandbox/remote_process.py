"""`RemoteProcess`: a program behind a gateway that is talked to while it runs, over a connection of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

from verifiers.errors import SandboxError
from verifiers.sandbox.gateway_messages import CHUNK_BYTES, Exec, Problem, as_json, error_of, unpack_result
from verifiers.sandbox.sandbox import ExecResult, SandboxProcess


class RemoteProcess(SandboxProcess):
    """Frames as in `gateway_process`. Those of one letter are answered in the order in which they were sent."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._waiting: dict[bytes, deque[asyncio.Future[bytes]]] = {}
        self._unread = {b"o": bytearray(), b"e": bytearray()}
        self._asked: dict[bytes, asyncio.Future[bytes]] = {}  # stream → a read that the gateway is to answer still
        self._reading = {b"o": asyncio.Lock(), b"e": asyncio.Lock()}  # one read of a stream at a time
        self._result: ExecResult | None = None
        self._is_over = False
        self._listening = asyncio.ensure_future(self._listen())

    @classmethod
    async def open(cls, connection: Any, asked: Exec) -> RemoteProcess:
        process = cls(connection)
        try:
            await process._ask(b"O", as_json(asked))
        except BaseException:
            await asyncio.shield(process.hang_up())
            raise
        return process

    async def write(self, data: bytes) -> None:
        for begin in range(0, len(data), CHUNK_BYTES):
            await self._ask(b"w", data[begin : begin + CHUNK_BYTES])

    async def close_stdin(self) -> None:
        if not self._is_over:
            await self._ask(b"c")

    async def read(self, size_bytes: int = 65536) -> bytes:
        return await self._read(b"o", size_bytes)

    async def read_error(self, size_bytes: int = 65536) -> bytes:
        return await self._read(b"e", size_bytes)

    async def wait(self) -> ExecResult:
        if self._result is None:
            found = unpack_result(await self._ask(b"x"))
            out, err = (self._take(stream) for stream in (b"o", b"e"))
            self._result = msgspec.structs.replace(found, stdout=out + found.stdout, stderr=err + found.stderr)
            await self.hang_up()
        return self._result

    async def kill(self) -> None:
        if not self._is_over:
            await self._ask(b"k")

    async def hang_up(self) -> None:
        """The gateway kills what still runs."""
        self._end()
        await self._connection.close()
        self._listening.cancel()

    async def _read(self, stream: bytes, size_bytes: int) -> bytes:
        """One that is cancelled stays asked for, and its answer is the next one's."""
        async with self._reading[stream]:
            if not self._unread[stream] and self._result is None:
                if stream not in self._asked:
                    self._asked[stream] = self._expect(stream)
                    await self._send(stream + min(size_bytes, CHUNK_BYTES).to_bytes(4, "big"))
                await asyncio.wait({self._asked[stream]})
            return self._take(stream, size_bytes)

    def _take(self, stream: bytes, size_bytes: int | None = None) -> bytes:
        unread, asked = self._unread[stream], self._asked.get(stream)
        if asked is not None and asked.done():
            del self._asked[stream]
            unread += asked.result()
        found = bytes(unread[:size_bytes])
        del unread[:size_bytes]
        return found

    async def _ask(self, letter: bytes, rest: bytes = b"") -> bytes:
        answer = self._expect(letter)
        await self._send(letter + rest)
        return await answer

    def _expect(self, letter: bytes) -> asyncio.Future[bytes]:
        if self._is_over:
            raise SandboxError("the process is no longer talked to: it has ended, or the connection broke")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(letter, deque()).append(answer)
        return answer

    async def _send(self, frame: bytes) -> None:
        try:
            await self._connection.send_bytes(frame)
        except (OSError, RuntimeError) as error:  # aiohttp's own for a connection that is gone is among them
            self._end()
            raise SandboxError(f"the connection to the process broke: {error}") from None

    async def _listen(self) -> None:
        try:
            async for message in self._connection:
                if isinstance(message.data, bytes):
                    self._hear(message.data)
        finally:
            self._end()

    def _hear(self, frame: bytes) -> None:
        is_problem = frame[:1] == b"!"
        letter, rest = (frame[1:2], frame[2:]) if is_problem else (frame[:1], frame[1:])
        waiting = self._waiting.get(letter)
        if not waiting:
            return
        answer = waiting.popleft()
        if answer.done():
            return  # cancelled
        if is_problem:
            answer.set_exception(error_of(msgspec.json.decode(rest, type=Problem)))
        else:
            answer.set_result(rest)

    def _end(self) -> None:
        self._is_over = True
        for waiting in self._waiting.values():
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(SandboxError("the connection to the process broke, and so it was ended"))
                    answer.exception()  # nobody need ask
            waiting.clear()
