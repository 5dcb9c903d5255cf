"""`CodeEngine`: what runs the programs that a `CodeRubric` grades. Every sandbox backend is one.

`UnsafeLocalEngine` runs them as plain processes of this machine, with limits that hold back accidents and no intent. It
has to be asked for by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from verifiers.errors import ConfigError, SandboxError
from verifiers.rubrics.grading import usable_cores
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import OUTCOME_OF, ExecResult, Limit

UNSAFE_LOCAL = "unsafe-local"
LEFT_OVER_S = 0.5  # for a pipe that a child left behind holds open
_SHELL = 'ulimit -c 0; ulimit -v "$1"; ulimit -f "$2"; ulimit -t "$3"; shift 3; exec "$@"'


class CodeEngine(Protocol):
    """The part of `SandboxBackend` that grading needs."""

    async def run_once(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        limits: SandboxLimits | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ExecResult:
        """Runs a Python program to its end. Raises SandboxError for what is not the program's own doing."""
        ...


def engine_of(engine: CodeEngine | str | None) -> CodeEngine:
    """Raises ConfigError without an engine: there is no default for where a model's code may run."""
    if engine is None or isinstance(engine, str):
        if engine == "local":
            from verifiers.sandbox.local import LocalBackend

            return LocalBackend()
        if engine == UNSAFE_LOCAL:
            return UnsafeLocalEngine()
        asked = "no engine was given" if engine is None else f"there is no engine {engine!r}"
        raise ConfigError(
            f"CodeRubric runs programs that a model wrote, and {asked}. Give engine='local' for the sandbox "
            f"of this machine, or any sandbox backend; {UNSAFE_LOCAL!r} runs them here unprotected"
        )
    if not hasattr(engine, "run_once"):
        raise ConfigError(f"engine= is {type(engine).__name__}, which has no run_once: give a sandbox backend")
    return engine


class UnsafeLocalEngine:
    """Plain processes: limits of time, memory, file size and output, a folder of their own, none of our environment.

    They can read this machine's files, use its network and start any number of processes. What waits for a core counts
    against no limit.
    """

    def __init__(self, max_workers: int | None = None) -> None:
        self._threads = ThreadPoolExecutor(max_workers or usable_cores(), "vf-code")

    async def run_once(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        limits: SandboxLimits | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ExecResult:
        run = _Run(program, stdin.encode() if isinstance(stdin, str) else stdin, limits or SandboxLimits())
        run.env |= env or {}
        run.files |= files or {}
        future = self._threads.submit(run.to_end)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            run.cancel()
            raise

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Run:
    """One program, from its start in a thread to its end."""

    def __init__(self, program: str, stdin: bytes, limits: SandboxLimits) -> None:
        self.program, self.limits = program, limits
        self.unsent = memoryview(stdin)
        self.env: dict[str, str] = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
        self.files: dict[str, bytes] = {}
        self.stdout, self.stderr = bytearray(), bytearray()
        self.limit: Limit | None = None
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True  # seen within a tenth of a second

    def to_end(self) -> ExecResult:
        with tempfile.TemporaryDirectory(prefix="vf-code-", ignore_cleanup_errors=True) as folder:
            Path(folder, "main.py").write_bytes(self.program.encode("utf-8", "surrogateescape"))
            Path(folder, "work").mkdir()
            for name, data in self.files.items():
                path = Path(folder, "work", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            process = self._started(Path(folder))
            began = time.monotonic()
            try:
                self._talk(process, began + self.limits.wall_s)
            finally:
                _kill_group(process)
                code = process.wait()
            return self._result(code, time.monotonic() - began)

    def _started(self, folder: Path) -> subprocess.Popen[bytes]:
        limits = self.limits
        cpu_s = math.ceil(limits.cpu_s or limits.wall_s) + 1
        numbers = [str(1024 * limits.memory_mb), str(2 * 1024 * limits.file_mb), str(cpu_s)]
        try:
            return subprocess.Popen(
                ["/bin/sh", "-c", _SHELL, "sh", *numbers, sys.executable, "-I", str(folder / "main.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder / "work",
                env={"HOME": str(folder / "work"), "TMPDIR": str(folder / "work"), **self.env},
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"the program was not started: {error}") from None

    def _talk(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        """Feeds and reads until the program has ended, or a limit has."""
        assert process.stdin and process.stdout and process.stderr
        with selectors.DefaultSelector() as pipes, process.stdin, process.stdout, process.stderr:
            os.set_blocking(process.stdin.fileno(), False)
            pipes.register(process.stdin, selectors.EVENT_WRITE)
            pipes.register(process.stdout, selectors.EVENT_READ, self.stdout)
            pipes.register(process.stderr, selectors.EVENT_READ, self.stderr)
            while pipes.get_map():
                left_s = deadline - time.monotonic()
                if self.is_cancelled or left_s <= 0:
                    self.limit = None if process.poll() is not None else "wall"
                    return
                for key, _ in pipes.select(min(0.1, left_s)):
                    if key.data is None:
                        self._feed(pipes, key.fileobj)
                    elif not self._read(pipes, key.fileobj, key.data):
                        self.limit = "output"
                        return
                if process.poll() is not None:
                    deadline = min(deadline, time.monotonic() + LEFT_OVER_S)
                    if process.stdin in (key.fileobj for key in pipes.get_map().values()):
                        pipes.unregister(process.stdin)
        self._wait(process, deadline)

    def _wait(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        """For a program that has closed its output and goes on."""
        while process.poll() is None:
            left_s = deadline - time.monotonic()
            if self.is_cancelled or left_s <= 0:
                self.limit = "wall"
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(0.1, left_s))

    def _feed(self, pipes: selectors.BaseSelector, pipe: Any) -> None:
        try:
            self.unsent = self.unsent[os.write(pipe.fileno(), self.unsent[:65536]) :]
        except BlockingIOError:
            return
        except OSError:  # it does not read
            self.unsent = self.unsent[:0]
        if not self.unsent:
            pipes.unregister(pipe)
            pipe.close()

    def _read(self, pipes: selectors.BaseSelector, pipe: Any, into: bytearray) -> bool:
        """Whether the output is still within its limit."""
        data = os.read(pipe.fileno(), 65536)
        if not data:
            pipes.unregister(pipe)
        room = 1024 * self.limits.output_kb - len(self.stdout) - len(self.stderr)
        into += data[:room]
        return len(data) <= room

    def _result(self, code: int, seconds: float) -> ExecResult:
        killed_late = code == -signal.SIGKILL and seconds >= (self.limits.cpu_s or self.limits.wall_s)
        if self.limit is None and (code == -signal.SIGXCPU or killed_late):
            self.limit = "cpu"
        elif self.limit is None and code and b"MemoryError" in self.stderr[-2_000:]:
            self.limit = "memory"
        elif self.limit is None and -code == signal.SIGXFSZ:
            self.limit = "files"
        ended = "ok" if code == 0 else "nonzero-exit"
        return ExecResult(
            outcome=ended if self.limit is None else OUTCOME_OF[self.limit],
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            stdout=bytes(self.stdout),
            stderr=bytes(self.stderr),
            stdout_truncated=self.limit == "output",
            limit=self.limit,
            wall_s=seconds,
        )


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """The program and what it started, unless that made a group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
