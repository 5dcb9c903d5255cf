"""`Interpreter`: a process that runs the code a model writes, piece after piece, and keeps what it made in between.

Where that process lives is its `Worker`'s matter. A `LocalWorker` is a process on this machine, with an environment
and limits of its own. That keeps mistakes apart; it is no wall against ill will: the code may read what this user may
read, and reach the network. A `SandboxWorker` (see `sandbox_worker`) lives in a sandbox.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from verifiers.calls import time_limit
from verifiers.errors import SandboxError

WORKER = Path(__file__).with_name("interpreter_worker.py")
MAX_FRAME = 64 << 20  # bytes; as the worker's
INTERRUPT_S = 2.0  # from an interrupt until the process is killed
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "TMPDIR")

# Answers a call of a tool with {"value": …} or {"error": "…"}; what it raises ends the execution, and is raised there.
Serve = Callable[[str, list[Any], dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Settings:
    folder: Path | None  # where the code runs; None: where its worker puts it
    control_folder: Path | None  # for files of the interpreter's own; None: beside its program
    language: Literal["python", "bash"] = "python"
    tools: tuple[str, ...] = ()  # names of functions that the code can call; `serve` answers them
    context: Path | None = None  # .txt or .json, in the variable `context` of Python
    variables: dict[str, str] = field(default_factory=dict)  # added to a small environment
    memory_bytes: int = 2 << 30
    file_bytes: int = 5 << 30  # of one file
    kept_bytes: int = 1 << 20  # of what one piece of code writes to each of its two outputs
    threads: int = 1  # of numeric libraries
    start_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Execution:
    """What became of a piece of code. `content` and `is_ready` are its answer, if it says one."""

    status: Literal["ok", "error", "timeout", "died"]
    stdout: str = ""
    stderr: str = ""
    result: str | None = None  # a last expression's value, a traceback, or what happened
    number: int = 0
    content: str | None = None  # None: nothing is known of it
    is_ready: bool = False
    is_lost: bool = False  # the process is gone, with its variables


class Worker(Protocol):
    """The process of an interpreter: its life, and the bytes to and from it."""

    @property
    def is_open(self) -> bool: ...

    async def open(self, settings: Settings) -> Settings:
        """Starts it. What comes back has the paths as the process sees them. Raises OSError or SandboxError."""
        ...

    async def write(self, data: bytes) -> None:
        """All of it, before what is written next. Raises OSError when it is gone."""

    async def read_exactly(self, size_bytes: int) -> bytes:
        """Raises EOFError or OSError when it is gone."""
        ...

    def interrupt(self) -> None: ...

    def kill(self) -> None:
        """Ends the process and all that it started. `close` waits for it."""

    async def close(self) -> int | None:
        """Ends it, and gives its exit code; `None` when there was none to end, or it is not known."""


class Interpreter:
    """Start it, run code one piece at a time, close it. After a loss `start` begins anew, with the files as they are.

    A piece of code that takes too long is interrupted, and the process killed if that does not help.
    """

    def __init__(self, settings: Settings, worker: Worker | None = None) -> None:
        self.settings = settings
        self.worker: Worker = worker or LocalWorker()

    @property
    def is_alive(self) -> bool:
        return self.worker.is_open

    @property
    def pid(self) -> int | None:
        """On this machine."""
        return self.worker.pid if isinstance(self.worker, LocalWorker) else None

    async def start(self) -> None:
        """Raises SandboxError when there is no process to be had."""
        await self.close()
        settings = self.settings
        try:
            settings = await self.worker.open(settings)
            await self._send(
                {
                    "language": settings.language,
                    "control_folder": None if settings.control_folder is None else str(settings.control_folder),
                    "context": None if settings.context is None else str(settings.context),
                    "tools": settings.tools,
                    "memory_bytes": settings.memory_bytes,
                    "file_bytes": settings.file_bytes,
                    "kept_bytes": settings.kept_bytes,
                }
            )
            async with time_limit(settings.start_s, "starting"):
                said = (await self._receive()).get("failed")
            if said is not None:
                raise OSError(said)
        except (OSError, _Gone) as error:  # TimeoutError is an OSError
            code = await self.close()
            said = f"it ended with exit code {code}" if isinstance(error, _Gone) else str(error)
            raise SandboxError(f"the {settings.language} interpreter did not start: {said}") from error
        except BaseException:
            self.kill()
            raise

    async def run(self, code: str, timeout_s: float, serve: Serve) -> Execution:
        """Runs `code` to its end, or to `timeout_s` of wall-clock time, its calls of tools included."""
        calls: set[asyncio.Task[None]] = set()
        reading: asyncio.Task[dict[str, Any]] | None = None
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline = asyncio.get_running_loop().time() + timeout_s
        is_interrupted = is_whole = False
        try:
            await self._send({"run": code})
            while True:
                reading = reading or asyncio.create_task(self._receive())
                left_s = max(0.0, deadline - asyncio.get_running_loop().time())
                await asyncio.wait({reading, failed}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                if failed.done():
                    failed.result()
                if not reading.done():
                    if is_interrupted or self.settings.language == "bash":  # a shell would run on with the next line
                        return Execution("timeout", is_lost=True)
                    self.worker.interrupt()
                    is_interrupted, deadline = True, asyncio.get_running_loop().time() + INTERRUPT_S
                    continue
                frame, reading = reading.result(), None
                if "done" in frame:
                    is_whole = True
                    return _execution(frame["done"])
                calls.add(asyncio.create_task(self._answer(frame, serve, failed)))
        except _Gone:
            return Execution("died", is_lost=True)
        finally:
            for task in calls:
                task.cancel()
            if not is_whole:  # what comes next would be the rest of this one
                self.kill()
                if reading is not None:
                    reading.cancel()
                    with suppress(_Gone, asyncio.CancelledError):
                        await reading
            await asyncio.gather(*calls, return_exceptions=True)
            if failed.done():
                failed.exception()  # seen, also where the process went first

    def kill(self) -> None:
        """Ends the process and all that it started. `close` waits for it."""
        self.worker.kill()

    async def close(self) -> int | None:
        """Ends it, and gives its exit code."""
        return await self.worker.close()

    async def _answer(self, frame: dict[str, Any], serve: Serve, failed: asyncio.Future[None]) -> None:
        try:
            reply = await serve(frame["name"], frame["args"], frame["kwargs"])
        except Exception as error:
            if not failed.done():
                failed.set_exception(error)
            return
        with suppress(_Gone):  # `run` hears of it
            try:
                await self._send({"reply": frame["call"], **reply})
            except (TypeError, ValueError) as error:
                text = f"what {frame['name']} returned cannot be sent: {error}"
                await self._send({"reply": frame["call"], "error": text})

    async def _send(self, frame: dict[str, Any]) -> None:
        data = json.dumps(frame, default=str).encode()
        try:
            await self.worker.write(struct.pack(">I", len(data)) + data)
        except OSError:
            raise _Gone from None

    async def _receive(self) -> dict[str, Any]:
        try:
            (size,) = struct.unpack(">I", await self.worker.read_exactly(4))
            if size > MAX_FRAME:
                raise _Gone
            frame = json.loads(await self.worker.read_exactly(size))
        except (EOFError, OSError, ValueError):  # IncompleteReadError is an EOFError
            raise _Gone from None
        if not isinstance(frame, dict):
            raise _Gone
        return frame


class LocalWorker:
    """A process of its own session on this machine; it ends with this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def is_open(self) -> bool:
        return self._writer is not None and not self._writer.is_closing()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def open(self, settings: Settings) -> Settings:
        ours, theirs = socket.socketpair()
        try:
            try:
                self._process = _spawn(settings, theirs)
            finally:
                theirs.close()  # else its end would not be seen
            self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        finally:
            if self._writer is None:
                ours.close()
        return settings

    async def write(self, data: bytes) -> None:
        if self._writer is None or self._writer.is_closing():
            raise BrokenPipeError
        self._writer.write(data)

    async def read_exactly(self, size_bytes: int) -> bytes:
        if self._reader is None:
            raise EOFError
        return await self._reader.readexactly(size_bytes)

    def interrupt(self) -> None:
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._writer is not None:
            self._writer.close()

    async def close(self) -> int | None:
        process, writer = self._process, self._writer
        if process is None:
            return None
        self.kill()
        self._process = self._reader = self._writer = None
        code = await asyncio.to_thread(process.wait)
        if writer is not None:
            with suppress(OSError):
                await writer.wait_closed()
        return code

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)  # its own until it has been waited for


def _spawn(settings: Settings, theirs: socket.socket) -> subprocess.Popen[bytes]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    own = {"HOME": str(settings.folder or ""), "TERM": "dumb"}
    return subprocess.Popen(
        [sys.executable, "-s", "-P", str(WORKER), str(theirs.fileno())],
        cwd=settings.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**kept, **own, **variables_of(settings)},  # no key of ours is passed on
        pass_fds=[theirs.fileno()],
        start_new_session=True,  # so that a signal reaches all that the code starts, and Ctrl-C none of it
    )


def variables_of(settings: Settings) -> dict[str, str]:
    """Environment variables of the process, wherever it lives."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(settings.threads))
    return {**threads, "MALLOC_ARENA_MAX": "2", "PYTHONHASHSEED": "0", **settings.variables}


class _Gone(Exception):
    """Nobody is at the other end, or something that is no interpreter of ours any more."""


def _execution(done: dict[str, Any]) -> Execution:
    answer = done.get("answer") or {}
    return Execution(
        "timeout" if done["status"] == "interrupted" else done["status"],
        stdout=done["stdout"],
        stderr=done["stderr"],
        result=done["result"],
        number=done["execution_count"],
        content=answer.get("content"),
        is_ready=bool(answer.get("ready")),
    )
