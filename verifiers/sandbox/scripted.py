"""`ScriptedSandboxes`: a backend whose files are real, in memory, and whose programs follow a script. For tests.

    backend = ScriptedSandboxes({"python3 a.py": "3\\n"})

A script is a text (stdout of a program that ends well), an `ExecResult`, an exception to raise, or a function of the
`Call` that returns one of these or awaits one. It is found by the whole command line, then by its first word, then by
`"*"`; without any, the program is not found, as in a shell.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import posixpath
import shlex
import tarfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verifiers.errors import SandboxError
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import (
    WORK,
    Capabilities,
    ExecResult,
    Sandbox,
    SandboxBackend,
    SandboxProcess,
    SandboxSpec,
    as_argv,
    as_bytes,
)


@dataclass(frozen=True, slots=True)
class Call:
    """A program as it was asked for. `files` are the sandbox's own: a script may read and write them."""

    argv: list[str]
    stdin: bytes = b""
    cwd: str = WORK
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """As it was written, for a command of the shell."""
        is_shell = len(self.argv) == 3 and self.argv[:2] == ["/bin/sh", "-c"]
        return self.argv[2] if is_shell else shlex.join(self.argv)


Script = str | ExecResult | BaseException | Callable[[Call], Any]


class ScriptedSandboxes(SandboxBackend):
    """`calls` keeps what was run, in every sandbox; `sandboxes` the sandboxes."""

    name = "scripted"

    def __init__(self, scripts: Mapping[str, Script] | Script | None = None) -> None:
        self.scripts = dict(scripts) if isinstance(scripts, Mapping) else {} if scripts is None else {"*": scripts}
        self.calls: list[Call] = []
        self.sandboxes: list[ScriptedSandbox] = []

    async def capabilities(self) -> Capabilities:
        return Capabilities(backend="scripted", level="nothing is run", enforced={}, images=True)

    async def create(self, spec: SandboxSpec | None = None) -> ScriptedSandbox:
        spec = spec or SandboxSpec()
        for made in self.sandboxes:
            if spec.key is not None and made.spec.key == spec.key and not made.is_closed:
                return made
        sandbox = ScriptedSandbox(self, spec)
        self.sandboxes.append(sandbox)
        return sandbox

    async def close_run(self, run_id: str) -> int:
        found = [made for made in self.sandboxes if made.spec.run_id == run_id and not made.is_closed]
        for sandbox in found:
            await sandbox.close()
        return len(found)

    async def close(self) -> None:
        for sandbox in self.sandboxes:
            await sandbox.close()

    async def play(self, call: Call) -> ExecResult:
        self.calls.append(call)
        first = call.line.split(maxsplit=1)[0] if call.line.strip() else ""
        found = next((self.scripts[key] for key in (call.line, first, "*") if key in self.scripts), None)
        if callable(found):
            found = found(call)
            if inspect.isawaitable(found):
                found = await found
        if isinstance(found, BaseException):
            raise found
        if found is None:
            return ExecResult(outcome="nonzero-exit", exit_code=127, stderr=f"{first}: not found\n".encode())
        if isinstance(found, str):
            return ExecResult(outcome="ok", exit_code=0, stdout=found.encode())
        return found


class ScriptedSandbox(Sandbox):
    def __init__(self, backend: ScriptedSandboxes, spec: SandboxSpec) -> None:
        self.id = f"scripted-{uuid.uuid4().hex[:12]}"
        self.spec = spec
        self.work = WORK
        self.files = {self._path(path): data for path, data in spec.files.items()}
        self._backend = backend
        self._is_closed = False

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
        self._check_open()
        return await self._backend.play(self._call(command, as_bytes(stdin), cwd, env))

    async def open_process(
        self,
        command: Sequence[str] | str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> SandboxProcess:
        self._check_open()
        return ScriptedProcess(self._backend, self._call(command, b"", cwd, env))

    async def read_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        self._check_open()
        where = self._path(path)
        if where not in self.files:
            is_folder = any(name.startswith(f"{where}/") for name in self.files)
            raise (IsADirectoryError if is_folder else FileNotFoundError)(f"{where} (in the sandbox)")
        return self.files[where][:max_bytes]

    async def write_file(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        self._check_open()
        self.files[self._path(path)] = as_bytes(data)

    async def get_archive(self, path: str) -> bytes:
        self._check_open()
        where = self._path(path)
        held = {name: data for name, data in self.files.items() if name == where or name.startswith(f"{where}/")}
        if not held:
            raise FileNotFoundError(f"{where} (in the sandbox)")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, data in held.items():
                member = tarfile.TarInfo(posixpath.basename(where) + name.removeprefix(where))
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return buffer.getvalue()

    async def put_archive(self, data: bytes, path: str) -> None:
        self._check_open()
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                where = self._path(posixpath.join(path, member.name))
                if not f"{where}/".startswith(f"{self._path(path)}/"):
                    raise OSError(f"the archive's {member.name} leads out of {path}")
                source = archive.extractfile(member)
                if source is not None:
                    self.files[where] = source.read()

    async def close(self) -> None:
        self._is_closed = True
        self.files.clear()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def _call(self, command: Sequence[str] | str, stdin: bytes, cwd: str | None, env: Mapping[str, str] | None) -> Call:
        return Call(as_argv(command), stdin, self._path(cwd or ""), {**self.spec.env, **(env or {})}, self.files)

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(WORK, path))

    def _check_open(self) -> None:
        if self._is_closed:
            raise SandboxError(f"the sandbox {self.id} has ended: it was closed")


class ScriptedProcess(SandboxProcess):
    """Plays its script once its stdin is closed, or when its output or end is waited for."""

    def __init__(self, backend: ScriptedSandboxes, call: Call) -> None:
        self._backend = backend
        self._call = call
        self._stdin: list[bytes] = []
        self._is_stdin_closed = False
        self._playing: asyncio.Task[ExecResult] | None = None
        self._taken = {"stdout": 0, "stderr": 0}

    async def write(self, data: bytes) -> None:
        if self._is_stdin_closed:
            raise SandboxError("the program's stdin is closed")
        self._stdin.append(data)

    async def close_stdin(self) -> None:
        self._is_stdin_closed = True

    async def read(self, size_bytes: int = 65536) -> bytes:
        return await self._read("stdout", size_bytes)

    async def read_error(self, size_bytes: int = 65536) -> bytes:
        return await self._read("stderr", size_bytes)

    async def wait(self) -> ExecResult:
        return await self._play()

    async def kill(self) -> None:
        self._is_stdin_closed = True

    async def _read(self, stream: str, size_bytes: int) -> bytes:
        whole: bytes = getattr(await self._play(), stream)
        begin = self._taken[stream]
        self._taken[stream] = min(len(whole), begin + size_bytes)
        return whole[begin : self._taken[stream]]

    async def _play(self) -> ExecResult:
        if self._playing is None:
            self._is_stdin_closed = True
            call = self._call
            whole = Call(call.argv, b"".join(self._stdin), call.cwd, call.env, call.files)
            self._playing = asyncio.ensure_future(self._backend.play(whole))
        return await asyncio.shield(self._playing)
