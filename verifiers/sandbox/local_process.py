"""`LocalProcess`: a program in a local sandbox whose streams are read and written while it runs."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time

from verifiers.errors import SandboxError
from verifiers.sandbox.cells import LocalCell
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.outcome import Ending, read_ending
from verifiers.sandbox.sandbox import ExecResult, SandboxProcess


class LocalProcess(SandboxProcess):
    def __init__(self, cell: LocalCell, request: dict[str, object]) -> None:
        self._cell = cell
        self._loop = asyncio.get_running_loop()
        self._words: asyncio.Future[dict[str, str] | None] = self._loop.create_future()
        self._began = time.monotonic()
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        self._stderr, stderr = os.pipe()
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        self.fds = [stdin, stdout, stderr]
        try:
            if cell.owner is not None:
                for fd in self.fds:
                    os.fchown(fd, cell.owner, cell.owner)
            self._number = cell.run(dict(request), self)
        except BaseException:
            self.release()
            raise
        finally:
            for fd in self.fds:
                os.close(fd)

    async def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._stdin < 0:
                raise SandboxError("the program's stdin is closed")
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await self._until(self._stdin, self._loop.add_writer, self._loop.remove_writer)
            except BrokenPipeError:
                raise SandboxError("the program has closed its stdin, or has ended") from None

    async def close_stdin(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    async def read(self, size_bytes: int = 65536) -> bytes:
        return await self._read(self._stdout, size_bytes)

    async def read_error(self, size_bytes: int = 65536) -> bytes:
        return await self._read(self._stderr, size_bytes)

    async def wait(self) -> ExecResult:
        words = await asyncio.shield(self._words)
        wall_s = time.monotonic() - self._began
        if words is None:
            ending = Ending(wall_s=wall_s)
        elif "failed" in words:
            raise SandboxError(f"the program could not be started in the sandbox: {words['failed']}")
        elif "full" in words:
            ending = Ending(fired="processes")
        else:
            ending = Ending(
                code=int(words["code"]),
                wall_s=float(words["wall_s"]),
                cpu_s=float(words["cpu_s"]),
                peak_bytes=int(words["peak_kb"]) << 10,
            )
        return read_ending(ending, SandboxLimits(), self._rest(self._stdout), self._rest(self._stderr))

    async def kill(self) -> None:
        if not self._words.done():
            self._cell.kill_run(self._number)
        await self.close_stdin()

    def told(self, words: dict[str, str] | None) -> None:
        if not self._words.done():
            self._words.set_result(words)

    def fail(self, error: SandboxError) -> None:
        if not self._words.done():
            self._words.set_exception(error)
            self._words.exception()  # nobody need ask

    def begin(self) -> None:
        pass

    def release(self) -> None:
        for fd in (self._stdin, self._stdout, self._stderr):
            if fd >= 0:
                os.close(fd)
        self._stdin = self._stdout = self._stderr = -1

    def __del__(self) -> None:
        self.release()

    async def _read(self, fd: int, size_bytes: int) -> bytes:
        while True:
            try:
                return os.read(fd, size_bytes)
            except BlockingIOError:
                await self._until(fd, self._loop.add_reader, self._loop.remove_reader)

    def _rest(self, fd: int) -> bytes:
        """What was in the pipe when the program ended, and no more: what it left running may write for ever."""
        found, left = [], fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
        while left > 0:
            try:
                data = os.read(fd, left)
            except BlockingIOError:
                break
            if not data:
                break
            found.append(data)
            left -= len(data)
        return b"".join(found)

    async def _until(self, fd: int, add: object, remove: object) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        add(fd, lambda: None if ready.done() else ready.set_result(None))  # type: ignore[operator]
        try:
            await ready
        finally:
            remove(fd)  # type: ignore[operator]
