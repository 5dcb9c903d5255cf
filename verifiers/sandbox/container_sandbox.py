"""`ContainerSandbox`: a container that stays, with programs and files of its own until it is closed."""

from __future__ import annotations

import asyncio
import io
import posixpath
import tarfile
from collections.abc import Callable, Mapping, Sequence

from verifiers.errors import SandboxError
from verifiers.sandbox.container_process import ContainerProcess
from verifiers.sandbox.container_program import Program, Run
from verifiers.sandbox.container_shell import PACK, READ, UNPACK, WRITE, file_error
from verifiers.sandbox.engine import Engine, EngineError
from verifiers.sandbox.lifetime import Lifetime
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import WORK, ExecResult, Sandbox, SandboxProcess, SandboxSpec, as_argv, as_bytes
from verifiers.unpacking import check_member

USER = "1000:1000"
_FILE_WALL_S = 60.0
_MAX_FILE_KB = 1 << 20  # of what is read out of a sandbox at once: 1 GB
_NOWHERE = "/nowhere/vf-sandbox"  # where an archive would be unpacked, to see what would lead out of it


class ContainerSandbox(Sandbox):
    def __init__(
        self, engine: Engine, container: str, spec: SandboxSpec, forget: Callable[[ContainerSandbox], None]
    ) -> None:
        self.id = container[:12]
        self.spec = spec
        self.work = WORK
        self._engine = engine
        self._container = container
        self._forget = forget
        self._loop = asyncio.get_running_loop()
        self._why_ended: str | None = None
        self._closing: asyncio.Future[None] | None = None
        self._processes: list[ContainerProcess] = []
        self._kills: set[asyncio.Future[bool]] = set()
        self._lifetime = Lifetime(spec, self._end)

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
        return await self._run(as_argv(command), limits or self.spec.limits, as_bytes(stdin), cwd, env, user)

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
        process = ContainerProcess(await self._start(as_argv(command), None, cwd, env, user))
        self._processes = [other for other in self._processes if other.is_running] + [process]
        return process

    async def read_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        return await self._file(READ, self._path(path), "" if max_bytes is None else str(max_bytes))

    async def write_file(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        await self._file(WRITE, self._path(path), f"{mode:o}", data=as_bytes(data))

    async def write_files(self, files: Mapping[str, bytes]) -> None:
        """All in one call."""
        if len(files) == 1:
            for path, data in files.items():
                await self.write_file(path, data)
        elif files:
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                for path, data in files.items():
                    member = tarfile.TarInfo(self._path(path).lstrip("/"))
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
            await self._file(UNPACK, "/", data=buffer.getvalue())

    async def get_archive(self, path: str) -> bytes:
        whole = self._path(path)
        return await self._file(PACK, whole, posixpath.dirname(whole), posixpath.basename(whole) or ".")

    async def put_archive(self, data: bytes, path: str) -> None:
        check_archive(data)
        await self._file(UNPACK, self._path(path), data=data)

    async def close(self) -> None:
        if self._closing is None:
            self._why_ended = self._why_ended or "it was closed"
            self._lifetime.stop()
            for process in self._processes:
                process.abandon()
            self._closing = asyncio.ensure_future(self._remove())
        await asyncio.shield(self._closing)

    @property
    def is_closed(self) -> bool:
        return self._why_ended is not None

    async def _remove(self) -> None:
        try:
            await remove(self._engine, self._container)
            await asyncio.gather(*self._kills, return_exceptions=True)
        finally:
            self._forget(self)

    def _end(self, why: str) -> None:
        self._why_ended = self._why_ended or why
        closing = asyncio.ensure_future(self.close())
        closing.add_done_callback(lambda done: done.cancelled() or done.exception())  # the next start reaps it

    async def _file(self, script: str, path: str, *rest: str, data: bytes = b"") -> bytes:
        limits = SandboxLimits(wall_s=_FILE_WALL_S, output_kb=_MAX_FILE_KB)
        result = await self._run(["/bin/sh", "-c", script, "sh", path, *rest], limits, data, "/", None, None)
        if result.ok:
            return result.stdout
        if result.limit == "output":
            raise OSError(f"{path} is larger than {_MAX_FILE_KB >> 10} MB; take a part of it")
        if result.limit not in (None, "files"):
            raise SandboxError(f"{path}: the sandbox hit its limit ({result.limit})")
        raise file_error(result.error_text)

    async def _run(
        self,
        argv: list[str],
        limits: SandboxLimits,
        stdin: bytes,
        cwd: str | None,
        env: Mapping[str, str] | None,
        user: str | None,
    ) -> ExecResult:
        self._check_open()
        with self._lifetime.busy():
            program = await self._start(argv, limits.cpu_s, cwd, env, user)
            try:
                result, is_gone = await Run(program, limits).outcome(stdin)
            except SandboxError:
                self._check_open()  # when it has ended meanwhile, it is for a reason that we know
                raise
            except asyncio.CancelledError:
                self._kill(program)
                raise
            if not is_gone:
                self._end("a program in it could not be ended")
            return result

    async def _start(
        self,
        argv: list[str],
        cpu_s: float | None,
        cwd: str | None,
        env: Mapping[str, str] | None,
        user: str | None,
    ) -> Program:
        folder, whose = self._path(cwd or ""), user or self.spec.user or USER
        made = Program.start(self._engine, self._container, argv, cwd=folder, env=env or {}, user=whose, cpu_s=cpu_s)
        starting = asyncio.ensure_future(made)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._kill_started)
            raise
        except EngineError:
            self._check_open()
            raise

    def _kill_started(self, starting: asyncio.Future[Program]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            self._kill(starting.result())

    def _kill(self, program: Program) -> None:
        """In the background; a program that stays nevertheless ends with its sandbox."""
        if self.is_closed:  # and with it all that ran in it
            program.close()
            return
        killing = asyncio.ensure_future(program.kill())
        self._kills.add(killing)

        def done(killed: asyncio.Future[bool]) -> None:
            self._kills.discard(killed)
            program.close()
            if killed.cancelled() or killed.exception() is not None or not killed.result():
                self._end("a program in it could not be ended")

        killing.add_done_callback(done)

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(WORK, path))

    def _check_open(self) -> None:
        if self._why_ended is not None:
            raise SandboxError(f"the sandbox {self.id} has ended: {self._why_ended}")


def check_archive(data: bytes) -> None:
    """Raises OSError for an archive that cannot be read, or has a member that leads out of its folder."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                check_member(member, _NOWHERE)
    except tarfile.TarError as error:
        raise OSError(f"the archive is refused: {error}") from None


async def remove(engine: Engine, container: str) -> None:
    """Ends a container and what runs in it. One that is gone already is as good."""
    try:
        await engine.call("DELETE", f"/containers/{container}", query={"force": "true", "v": "true"})
    except EngineError as error:
        if error.status not in (404, 409):  # 409: somebody else is removing it
            raise
