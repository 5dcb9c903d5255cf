"""`ContainerProcess`: a program in a container that is talked to while it runs."""

from __future__ import annotations

import asyncio

from verifiers.errors import SandboxError
from verifiers.sandbox.container_program import Program
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.outcome import Ending, read_ending
from verifiers.sandbox.sandbox import ExecResult, SandboxProcess

_PIPE_BYTES = 1 << 20  # of each stream, not yet read by anybody


class ContainerProcess(SandboxProcess):
    """As with pipes: a stream that nobody reads stops the program once it is full."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._loop = asyncio.get_running_loop()
        self._buffers = {1: bytearray(), 2: bytearray()}
        self._changed = asyncio.Event()
        self._is_stdin_closed = False
        self._room: asyncio.Future[None] | None = None
        self._is_killed = False
        self._pump = asyncio.ensure_future(self._run())
        self._pump.add_done_callback(lambda pump: pump.cancelled() or pump.exception())  # nobody need ask

    @property
    def is_running(self) -> bool:
        return not self._pump.done()

    async def write(self, data: bytes) -> None:
        if self._is_stdin_closed or self._pump.done():
            raise SandboxError("the program's stdin is closed, or the program has ended")
        await self._program.send(data)

    async def close_stdin(self) -> None:
        self._is_stdin_closed = True
        self._program.close_stdin()

    async def read(self, size_bytes: int = 65536) -> bytes:
        return await self._read(1, size_bytes)

    async def read_error(self, size_bytes: int = 65536) -> bytes:
        return await self._read(2, size_bytes)

    async def wait(self) -> ExecResult:
        ending = await asyncio.shield(self._pump)
        out, err = (bytes(self._buffers[stream]) for stream in (1, 2))
        for buffer in self._buffers.values():
            buffer.clear()
        return read_ending(ending, SandboxLimits(), out, err)

    async def kill(self) -> None:
        self._is_killed = True
        self._make_room()
        if not self._pump.done():
            await self._program.kill()
        await self.close_stdin()

    def abandon(self) -> None:
        """When its sandbox is closed: whoever waits is told."""
        self._pump.cancel()
        self._program.close()

    async def _run(self) -> Ending:
        try:
            await self._program.pump(self._take, self._wait_for_room)
            return await self._program.ending()
        except asyncio.CancelledError:
            raise SandboxError("the sandbox has ended while the program ran: it was closed") from None
        finally:
            self._changed.set()
            self._program.close()

    def _take(self, stream: int, data: bytes) -> None:
        self._buffers[stream] += data
        self._changed.set()

    def _wait_for_room(self) -> asyncio.Future[None] | None:
        if self._is_killed or max(len(buffer) for buffer in self._buffers.values()) < _PIPE_BYTES:
            return None
        self._room = self._loop.create_future()
        return self._room

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def _read(self, stream: int, size_bytes: int) -> bytes:
        buffer = self._buffers[stream]
        while not buffer and not self._pump.done():
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait((changed, self._pump), return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        found = bytes(buffer[:size_bytes])
        del buffer[:size_bytes]
        self._make_room()
        if not found:
            await asyncio.shield(self._pump)  # tells what went wrong, if something did
        return found
