"""`Sandbox` and `SandboxBackend`: the only way to run a program that a model wrote.

    async with await backend.create(SandboxSpec()) as sandbox:
        await sandbox.write_file("a.txt", b"text")
        result = await sandbox.exec(["cat", "a.txt"])

What the program did is an `ExecResult`, whatever it did. What the machine, the engine or the network did instead is
a `SandboxError`, raised; the two are never mixed. Creation and transport may be tried again, a program never is.
"""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from verifiers.sandbox.limits import SandboxLimits

Outcome = Literal["ok", "nonzero-exit", "timeout", "memory-limit", "output-limit", "process-limit", "file-limit"]
Limit = Literal["wall", "cpu", "memory", "output", "processes", "files"]
Enforcement = Literal["enforced", "best effort", "no"]

OUTCOME_OF: dict[Limit, Outcome] = {
    "wall": "timeout",
    "cpu": "timeout",
    "memory": "memory-limit",
    "output": "output-limit",
    "processes": "process-limit",
    "files": "file-limit",
}
WORK = "/work"  # where a program starts and may write


class ExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended. `limit` is the limit that ended it, or that it met before it failed by itself."""

    outcome: Outcome
    exit_code: int | None = None  # None: ended by `signal`
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    limit: Limit | None = None
    wall_s: float = 0.0
    cpu_s: float | None = None  # None: not known, because the program was killed from outside
    peak_memory_mb: float | None = None
    attempts: int = 1  # of the transport; the program ran once

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def text(self) -> str:
        """stdout as text."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode("utf-8", "replace")

    @property
    def as_json(self) -> dict[str, Any]:
        return {
            "class": self.outcome,
            "exit": self.exit_code,
            "signal": None if self.signal is None else signal_name(self.signal),
            "limit": self.limit,
            "stdout": self.text,
            "stderr": self.error_text,
            "stdout_truncated": self.stdout_truncated,
            "stderr_truncated": self.stderr_truncated,
            "wall_s": round(self.wall_s, 6),
            "cpu_s": None if self.cpu_s is None else round(self.cpu_s, 6),
            "peak_memory_mb": None if self.peak_memory_mb is None else round(self.peak_memory_mb, 3),
            "attempts": self.attempts,
        }


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend offers here. `level` is 0 to 3 for the local one, and a word for others."""

    backend: str
    level: str
    enforced: dict[Limit, Enforcement]
    networks: tuple[Literal["none", "full"], ...] = ("none",)
    images: bool = False
    languages: tuple[str, ...] = ("python",)
    snapshots: bool = False
    notes: tuple[str, ...] = ()  # what does not hold, and why a higher level was not reached


class SandboxSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox is made from. Nothing of the caller's environment is in it unless `env` says so."""

    image: str | None = None  # None: the backend's own, with Python and a shell
    files: dict[str, bytes] = {}
    env: dict[str, str] = {}
    limits: SandboxLimits = SandboxLimits()  # memory, processes, files: of the sandbox; the others: of each exec
    user: str | None = None
    lifetime_s: float = 3600.0  # after which the sandbox ends, whatever runs in it
    idle_s: float | None = None  # the same, counted from the last call
    run_id: str | None = None  # whom it belongs to; every sandbox of a run can be found by it
    key: str | None = None  # of the creation: asking again with the same key gives no second sandbox


class SandboxProcess(ABC):
    """A program that goes on while others run in the same sandbox. Its output is read as it comes."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """To its stdin. Raises SandboxError when that is closed."""

    @abstractmethod
    async def close_stdin(self) -> None: ...

    @abstractmethod
    async def read(self, size_bytes: int = 65536) -> bytes:
        """What it has written to stdout, at least one byte; empty when there will be no more."""

    @abstractmethod
    async def read_error(self, size_bytes: int = 65536) -> bytes:
        """The same of stderr."""

    @abstractmethod
    async def wait(self) -> ExecResult:
        """How it ended; the output in it is what was not read."""

    @abstractmethod
    async def kill(self) -> None: ...


class Sandbox(ABC):
    """One place to run programs in, with files of its own. Close it; `async with` does."""

    id: str
    spec: SandboxSpec
    work: str  # the working folder, as its programs see it

    @abstractmethod
    async def exec(
        self,
        command: Sequence[str] | str,
        *,
        stdin: bytes | str = b"",
        limits: SandboxLimits | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> ExecResult:
        """Runs a program to its end, a text by the shell. What it started in the background goes on.

        Of `limits`, those of time and output are for this call; `None` takes the sandbox's own.
        """

    @abstractmethod
    async def open_process(
        self,
        command: Sequence[str] | str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> SandboxProcess: ...

    @abstractmethod
    async def read_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """Raises FileNotFoundError, IsADirectoryError or PermissionError as the sandbox sees it."""

    @abstractmethod
    async def write_file(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        """Makes the folders above it. Relative paths start in the working folder."""

    @abstractmethod
    async def get_archive(self, path: str) -> bytes:
        """A folder or file as a tar archive, named from it."""

    @abstractmethod
    async def put_archive(self, data: bytes, path: str) -> None:
        """Unpacks a tar archive into a folder; members that lead out of it are refused."""

    @abstractmethod
    async def close(self) -> None:
        """Ends every process and removes every file. May be called again."""

    @property
    @abstractmethod
    def is_closed(self) -> bool: ...

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.close())


class SandboxBackend(ABC):
    """Makes sandboxes. One object may serve any number of them, and any event loop."""

    name: str

    @abstractmethod
    async def capabilities(self) -> Capabilities:
        """What holds here, found by trying. Raises SetupError when the backend cannot run here."""

    @abstractmethod
    async def create(self, spec: SandboxSpec | None = None) -> Sandbox: ...

    async def run_once(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        limits: SandboxLimits | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ExecResult:
        """Runs a Python program as a script in a sandbox of its own, which is gone afterwards."""
        limits = limits or SandboxLimits()
        spec = SandboxSpec(limits=limits, env=dict(env or {}), files=dict(files or {}))
        async with await self.create(spec) as sandbox:
            await sandbox.write_file(PROGRAM, program)
            search = {"PYTHONPATH": sandbox.work}  # modules among `files` can be imported
            return await sandbox.exec(["python3", PROGRAM], stdin=stdin, limits=limits, env=search)

    @abstractmethod
    async def close_run(self, run_id: str) -> int:
        """Closes the sandboxes that belong to a run; how many there were."""

    @abstractmethod
    async def close(self) -> None:
        """Closes every sandbox that is left."""

    async def __aenter__(self) -> SandboxBackend:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.shield(self.close())


PROGRAM = "/tmp/main.py"  # not in the working folder, which is the program's own


def as_argv(command: Sequence[str] | str) -> list[str]:
    return ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)


def as_bytes(data: bytes | str) -> bytes:
    return data.encode("utf-8", "surrogateescape") if isinstance(data, str) else bytes(data)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
