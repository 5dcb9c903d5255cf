"""`SandboxWorker`: the process of an interpreter, in a sandbox. It is spoken to over its stdin and stdout."""

from __future__ import annotations

import asyncio
import io
import json
import struct
import tarfile
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from verifiers.envs.interpreter import WORKER, Settings, variables_of
from verifiers.errors import SandboxError
from verifiers.sandbox.sandbox import Sandbox, SandboxProcess


class SandboxWorker:
    """One sandbox, and one interpreter in it at a time. `python` is the command that starts Python there.

    What lies in the folder of the settings is put into the sandbox's working folder before the first start.
    """

    def __init__(self, sandbox: Sandbox, python: str = "python3") -> None:
        self.sandbox = sandbox
        self.python = python
        self._process: SandboxProcess | None = None
        self._buffer = bytearray()
        self._writing = asyncio.Lock()  # a frame is written whole before the next
        self._under_way: set[asyncio.Task[Any]] = set()
        self._place: str | None = None  # of the program, once it is there

    @property
    def is_open(self) -> bool:
        return self._process is not None and not self.sandbox.is_closed

    async def open(self, settings: Settings) -> Settings:
        if self._place is None:
            self._place = await self._lay_out(settings)
        seen = replace(settings, folder=Path(self.sandbox.work), control_folder=None)
        if settings.context is not None:
            seen = replace(seen, context=Path(self._place, settings.context.name))
        self._buffer.clear()
        self._process = await self.sandbox.open_process(
            [self.python, "-s", "-P", f"{self._place}/{WORKER.name}", "-"],
            env={"TERM": "dumb", **variables_of(settings)},
        )
        return seen

    async def _lay_out(self, settings: Settings) -> str:
        """Puts the files there, and gives the program's folder: not the working folder, which is the code's own."""
        found = await self.sandbox.exec('place="${TMPDIR:-/tmp}/.interpreter"; mkdir -p "$place" && cd "$place" && pwd')
        if not found.ok:
            raise SandboxError(f"the sandbox gives no folder for temporary files: {found.error_text.strip()[-300:]}")
        place = found.text.strip()
        await self.sandbox.write_file(f"{place}/{WORKER.name}", WORKER.read_bytes())
        if settings.context is not None:
            data = await asyncio.to_thread(settings.context.read_bytes)
            await self.sandbox.write_file(f"{place}/{settings.context.name}", data)
        if settings.folder is not None:
            await self.sandbox.put_archive(await asyncio.to_thread(_packed, settings.folder), self.sandbox.work)
        return place

    async def write(self, data: bytes) -> None:
        process = self._process
        if process is None:
            raise BrokenPipeError
        try:
            async with self._writing:
                await process.write(data)
        except SandboxError:
            self._process = None
            raise BrokenPipeError from None

    async def read_exactly(self, size_bytes: int) -> bytes:
        while len(self._buffer) < size_bytes:
            data = b"" if self._process is None else await self._process.read()
            if not data:
                self._process = None
                raise EOFError
            self._buffer += data
        taken = bytes(self._buffer[:size_bytes])
        del self._buffer[:size_bytes]
        return taken

    def interrupt(self) -> None:
        data = json.dumps({"interrupt": True}).encode()
        self._later(self.write(struct.pack(">I", len(data)) + data))

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and not self.sandbox.is_closed:
            self._later(process.kill())

    async def close(self) -> None:
        self.kill()
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        async def done() -> None:
            with suppress(SandboxError, OSError):
                await work

        task = asyncio.ensure_future(done())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


def _packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=_of_nobody)
    return buffer.getvalue()


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
