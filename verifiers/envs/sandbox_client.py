"""`SandboxClient`: the sandboxes of an environment by their ids, with the methods of the hosted service's own client.

    made = await client.create(CreateSandboxRequest(name="mine"))   # returns at once; the sandbox is made meanwhile
    result = await client.execute_command(made.id, "ls -l", timeout=10)

An id means the same sandbox to every client of this process.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from verifiers.envs.sandbox_request import command_of, spec_of
from verifiers.errors import NoSandboxError, SandboxError, SetupError, one_line
from verifiers.sandbox.auto import AutoBackend
from verifiers.sandbox.backends import open_backend
from verifiers.sandbox.sandbox import Capabilities, ExecResult, Sandbox, SandboxBackend

COMMAND_S = 300.0  # for commands that are run without a limit of their own
OUTPUT_KB = 4096  # a command that writes more is ended
# bash where there is one: what models write is seldom plain sh
_TMP = "${TMPDIR:-/tmp}"
_SHELL = ["/bin/sh", "-c", 'command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"', "sh"]


class CommandTimeoutError(Exception):
    """A command ran into its own time limit: that is how it ended, and no failure of the sandbox."""

    def __init__(self, sandbox_id: str, command: str, timeout: float, stdout: str = "", stderr: str = "") -> None:
        Exception.__init__(self, f"the command ran into its limit of {timeout:g} s in {sandbox_id}: {command[:200]}")
        self.sandbox_id, self.command, self.timeout = sandbox_id, command, timeout
        self.stdout, self.stderr = stdout, stderr  # what it had written


@dataclass(frozen=True, slots=True)
class CommandResponse:
    stdout: str
    stderr: str
    exit_code: int
    limit: str | None = None  # one that ended it, or that it met before it failed


@dataclass(frozen=True, slots=True)
class BackgroundJob:
    job_id: str
    sandbox_id: str
    stdout_log_file: str
    stderr_log_file: str
    exit_file: str


@dataclass(frozen=True, slots=True)
class BackgroundJobStatus:
    job_id: str
    completed: bool
    exit_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


@dataclass(frozen=True, slots=True)
class ReadFileResponse:
    content: str


@dataclass(slots=True)
class LentSandbox:
    """A sandbox from when it is asked for until it is deleted."""

    id: str
    request: Any
    making: asyncio.Task[Sandbox]
    name: str = ""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    @property
    def status(self) -> str:
        if not self.making.done():
            return "PENDING"
        failed = self.making.cancelled() or self.making.exception() is not None
        return "ERROR" if failed or self.making.result().is_closed else "RUNNING"


_lent: dict[str, LentSandbox] = {}


class SandboxClient:
    """`backend` is a backend, or the name of one with the options it is opened with; it is opened on first use.

    `retry` wraps the making of a sandbox, which may be tried again; a command never is.
    """

    def __init__(
        self,
        backend: SandboxBackend | str = "auto",
        *,
        backend_options: Mapping[str, Any] | None = None,
        retry: Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]] | None = None,
        **_of_the_service: Any,
    ) -> None:
        self.run_id = f"run-{uuid.uuid4().hex[:12]}"
        self._given = backend
        self._options = dict(backend_options or {})
        self._retry = retry or (lambda func: func)
        self._backend: SandboxBackend | None = None if isinstance(backend, str) else backend
        self._own: set[str] = set()

    @property
    def backend(self) -> SandboxBackend:
        if self._backend is None:
            self._backend = open_backend(str(self._given), **self._options)
        return self._backend

    async def capabilities(self, request: Any = None) -> Capabilities:
        """What the backend for this request offers. Raises NoSandboxError when it cannot be had here at all."""
        image = getattr(request, "docker_image", None)
        try:
            backend = self.backend
            chosen = await backend.choose(image) if isinstance(backend, AutoBackend) else backend
            found = await chosen.capabilities()
        except NoSandboxError:
            raise
        except SetupError as error:
            raise NoSandboxError(str(error)) from error
        if not found.images and image is not None:
            from verifiers.sandbox.local import is_plain_python

            if not is_plain_python(image):
                raise NoSandboxError(
                    f"the image {image} is asked for, and the backend {found.backend} has no images; take one that has"
                )
        if getattr(request, "gpu_count", 0) and found.backend == "local":
            raise NoSandboxError("gpu_count asks for a GPU, and local sandboxes have none; take another backend, or 0")
        return found

    # Sandboxes

    async def create(self, request: Any) -> LentSandbox:
        sandbox_id = f"sandbox-{uuid.uuid4().hex}"
        making = asyncio.ensure_future(self._made(request, sandbox_id))
        making.add_done_callback(lambda task: task.cancelled() or task.exception())  # heard, though nobody may ask
        lent = _lent[sandbox_id] = LentSandbox(sandbox_id, request, making, str(getattr(request, "name", "")))
        self._own.add(sandbox_id)
        return lent

    async def wait_for_creation(self, sandbox_id: str, *_: Any, **__: Any) -> None:
        await self.sandbox(sandbox_id)

    async def sandbox(self, sandbox_id: str) -> Sandbox:
        """The sandbox itself, once it is made. Raises SandboxError when that failed, or when there is none."""
        lent = _lent.get(sandbox_id)
        if lent is None:
            raise SandboxError(f"there is no sandbox {sandbox_id}: it was never made, or is deleted already")
        try:
            return await asyncio.shield(lent.making)
        except asyncio.CancelledError:
            if not lent.making.cancelled():
                raise
            raise SandboxError(f"the sandbox {sandbox_id} was deleted before it was made") from None

    async def get(self, sandbox_id: str) -> LentSandbox:
        await self.sandbox(sandbox_id)
        return _lent[sandbox_id]

    async def delete(self, sandbox_id: str) -> None:
        """Whatever runs in it ends. One that is unknown, or deleted already, is no mistake."""
        lent = _lent.pop(sandbox_id, None)
        self._own.discard(sandbox_id)
        if lent is None:
            return
        if lent.loop is not asyncio.get_running_loop():  # at the end of the program, when its own is gone
            if lent.making.done() and not lent.making.cancelled() and lent.making.exception() is None:
                with suppress(Exception):
                    await lent.making.result().close()
            return
        lent.making.cancel()
        await asyncio.wait([lent.making])
        if not lent.making.cancelled() and lent.making.exception() is None:
            await lent.making.result().close()

    async def bulk_delete(self, sandbox_ids: Sequence[str] | None = None, **_: Any) -> None:
        await asyncio.gather(*(self.delete(sandbox_id) for sandbox_id in list(sandbox_ids or ())))

    async def aclose(self) -> None:
        """Deletes what this client made, and closes the backend unless somebody else gave it."""
        await self.bulk_delete(list(self._own))
        if self._backend is not None and isinstance(self._given, str):
            backend, self._backend = self._backend, None
            await backend.close()

    def teardown(self, wait: bool = True) -> None:
        """Nothing: `aclose` does it."""

    async def _made(self, request: Any, sandbox_id: str) -> Sandbox:
        # images of tasks expect root, who is nobody outside
        user = "0" if (await self.capabilities(request)).images else None
        spec = spec_of(request, key=sandbox_id, run_id=self.run_id, user=user)
        try:
            sandbox: Sandbox = await self._retry(self.backend.create)(spec)
        except SandboxError:
            raise
        except SetupError as error:
            raise NoSandboxError(str(error)) from error
        command = command_of(request)
        if command is not None:
            try:
                log = f'"{_TMP}/start_command.log"'
                begun = await sandbox.exec([*_SHELL, f"sh -c {shlex.quote(command)} >{log} 2>&1 </dev/null &"])
                if not begun.ok:
                    raise SandboxError(f"the start command could not be begun: {begun.error_text.strip()[-500:]}")
            except BaseException:
                await asyncio.shield(sandbox.close())
                raise
        return sandbox

    # Commands

    async def execute_command(
        self,
        sandbox_id: str,
        command: str,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        user: str | None = None,
    ) -> CommandResponse:
        """Raises CommandTimeoutError at its time limit, and SandboxError for what is not the command's doing."""
        sandbox = await self.sandbox(sandbox_id)
        limit_s = COMMAND_S if timeout is None else float(timeout)
        limits = msgspec.structs.replace(sandbox.spec.limits, wall_s=limit_s, cpu_s=None, output_kb=OUTPUT_KB)
        result = await sandbox.exec([*_SHELL, command], limits=limits, cwd=working_dir, env=env, user=user)
        if result.outcome == "timeout":
            raise _as_the_service_raises(
                CommandTimeoutError(sandbox_id, command, limit_s, result.text, result.error_text)
            )
        return CommandResponse(result.text, result.error_text, _exit_code(result), result.limit)

    async def start_background_job(
        self,
        sandbox_id: str,
        command: str,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> BackgroundJob:
        job_id = uuid.uuid4().hex[:12]
        streams = '>"$1.out" 2>"$1.err" </dev/null'
        line = f'({command}\n) {streams}; echo $? >"$1.part"; mv "$1.part" "$1.exit"'
        begin = f'place="{_TMP}/job_{job_id}"; sh -c {shlex.quote(line)} sh "$place" >/dev/null 2>&1 </dev/null &'
        begin = f'{begin} echo "$place"'
        response = await self.execute_command(sandbox_id, begin, working_dir, env, 30.0, user)
        if response.exit_code:
            raise SandboxError(f"the background job could not be begun: {response.stderr.strip()[-500:]}")
        place = response.stdout.strip()
        return BackgroundJob(job_id, sandbox_id, f"{place}.out", f"{place}.err", f"{place}.exit")

    async def get_background_job(self, sandbox_id: str, job: BackgroundJob, **_: Any) -> BackgroundJobStatus:
        sandbox = await self.sandbox(sandbox_id)
        try:
            code = await sandbox.read_file(job.exit_file, max_bytes=64)
        except FileNotFoundError:
            return BackgroundJobStatus(job.job_id, completed=False)
        written = [
            (await sandbox.read_file(name, max_bytes=OUTPUT_KB << 10)).decode("utf-8", "replace")
            for name in (job.stdout_log_file, job.stderr_log_file)
        ]
        # programs can write there too: what is no number is no success, and no failure of the sandbox
        return BackgroundJobStatus(job.job_id, True, int(code) if code.strip().isdigit() else 1, *written)

    async def run_background_job(
        self,
        sandbox_id: str,
        command: str,
        timeout: float = 900,
        working_dir: str | None = None,
        env: Mapping[str, str] | None = None,
        poll_interval: float = 3,
    ) -> BackgroundJobStatus:
        """Waits for its end. Raises CommandTimeoutError; the job goes on then."""
        job = await self.start_background_job(sandbox_id, command, working_dir, env)
        until, pause_s = asyncio.get_running_loop().time() + timeout, 0.05
        while not (status := await self.get_background_job(sandbox_id, job)).completed:
            if asyncio.get_running_loop().time() >= until:
                raise _as_the_service_raises(CommandTimeoutError(sandbox_id, command, timeout))
            await asyncio.sleep(pause_s)
            pause_s = min(poll_interval, pause_s * 1.5)
        return status

    # Files

    async def upload_file(self, sandbox_id: str, file_path: str, local_file_path: str, **_: Any) -> None:
        data = await asyncio.to_thread(Path(local_file_path).read_bytes)
        await (await self.sandbox(sandbox_id)).write_file(file_path, data)

    async def upload_bytes(
        self, sandbox_id: str, file_path: str, file_bytes: bytes, filename: str = "", **_: Any
    ) -> None:
        await (await self.sandbox(sandbox_id)).write_file(file_path, file_bytes)

    async def download_file(self, sandbox_id: str, file_path: str, local_file_path: str, **_: Any) -> None:
        data = await (await self.sandbox(sandbox_id)).read_file(file_path)
        await asyncio.to_thread(Path(local_file_path).write_bytes, data)

    async def read_file(self, sandbox_id: str, file_path: str, **_: Any) -> ReadFileResponse:
        data = await (await self.sandbox(sandbox_id)).read_file(file_path)
        return ReadFileResponse(data.decode("utf-8", "replace"))


def _exit_code(result: ExecResult) -> int:
    """As a shell tells it: 128 and the signal's number for a program that a signal ended."""
    return result.exit_code if result.exit_code is not None else 128 + (result.signal or 9)


def _as_the_service_raises(error: CommandTimeoutError) -> Exception:
    """Also of the class that the hosted service's package raises, where an author has imported that."""
    theirs = getattr(sys.modules.get("prime_sandboxes"), "CommandTimeoutError", CommandTimeoutError)
    if theirs is CommandTimeoutError:
        return error
    both: Any = type("CommandTimeoutError", (CommandTimeoutError, theirs), {})
    return both(error.sandbox_id, error.command, error.timeout, error.stdout, error.stderr)


def is_command_timeout(error: BaseException) -> bool:
    """Also one of a client that an author put in place of ours."""
    return isinstance(error, CommandTimeoutError) or type(error).__name__ == "CommandTimeoutError"


def as_sandbox_error(error: Exception) -> Exception:
    """What a client of an author's raises of its own is a failure of the sandbox."""
    return error if isinstance(error, SandboxError) else SandboxError(one_line(error))
