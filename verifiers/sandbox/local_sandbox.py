"""`LocalSandbox`: a cell that stays, with programs and files of its own until it is closed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.errors import SandboxError
from verifiers.sandbox.cells import LocalCell, Run
from verifiers.sandbox.lifetime import Lifetime
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.local_process import LocalProcess
from verifiers.sandbox.sandbox import ExecResult, Sandbox, SandboxProcess, SandboxSpec, as_argv, as_bytes

_FILE_LIMITS = SandboxLimits(wall_s=60.0)
_MAX_FILE_KB = 1 << 20  # of what is read out of a sandbox at once: 1 GB
_ERRORS: dict[str, type[OSError]] = {
    error.__name__: error for error in (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
}


class LocalSandbox(Sandbox):
    def __init__(self, cell: LocalCell, spec: SandboxSpec, work: str) -> None:
        self.id = f"local-{uuid.uuid4().hex[:12]}"
        self.spec = spec
        self.work = work
        self._cell = cell
        self._lifetime = Lifetime(spec, lambda why: cell.kill())

    async def begin(self) -> None:
        for path, data in self.spec.files.items():
            await self.write_file(path, data)

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
        limits = limits or self.spec.limits
        request = self._request(command, cwd, env, user) | {"cpu_s": limits.cpu_s}
        return await self._run(request, limits, as_bytes(stdin))

    async def open_process(
        self,
        command: Sequence[str] | str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> SandboxProcess:
        self._check_open()
        self._lifetime.touch()
        return LocalProcess(self._cell, self._request(command, cwd, env, user))

    async def read_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        return await self._file({"do": "read", "path": path, "max_bytes": max_bytes})

    async def write_file(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        await self._file({"do": "write", "path": path, "mode": mode}, as_bytes(data))

    async def get_archive(self, path: str) -> bytes:
        return await self._file({"do": "pack", "path": path})

    async def put_archive(self, data: bytes, path: str) -> None:
        await self._file({"do": "unpack", "path": path}, data)

    async def close(self) -> None:
        self._lifetime.stop()
        await self._cell.close()

    @property
    def is_closed(self) -> bool:
        return self._cell.has_ended

    async def _file(self, request: dict[str, Any], data: bytes = b"") -> bytes:
        limits = SandboxLimits(wall_s=_FILE_LIMITS.wall_s, output_kb=_MAX_FILE_KB)
        result = await self._run(request, limits, data)
        if result.ok:
            return result.stdout
        name, _, text = result.error_text.partition(": ")
        if result.limit == "output":
            raise OSError(f"{request['path']} is larger than {_MAX_FILE_KB >> 10} MB; take a part of it")
        if result.limit is not None and not name:
            raise SandboxError(f"{request['path']}: the sandbox hit its limit ({result.limit})")
        raise _ERRORS.get(name, OSError)(f"{text or result.outcome} (in the sandbox)")

    async def _run(self, request: dict[str, Any], limits: SandboxLimits, stdin: bytes) -> ExecResult:
        self._check_open()
        with self._lifetime.busy():
            run = Run(self._cell, limits, stdin)
            is_done = False
            try:
                run.number = self._cell.run(request, run)
                run.sent()
                run.begin()
                result = await run.outcome()
                is_done = True
                return result
            finally:
                run.close()
                if not is_done and run.number is not None:
                    self._cell.kill_run(run.number)

    def _request(
        self, command: Sequence[str] | str, cwd: str | None, env: Mapping[str, str] | None, user: str | None
    ) -> dict[str, Any]:
        if user not in (None, "user"):
            raise SandboxError(f"the local backend has one user in a sandbox, and {user!r} is asked for")
        return {"do": "exec", "argv": as_argv(command), "cwd": cwd, "env": dict(env or {})}

    def _check_open(self) -> None:
        if self._cell.has_ended:
            raise SandboxError(f"the sandbox {self.id} has ended: it was closed, or its lifetime is over")
