"""`RemoteBackend`: sandboxes on a machine where `vf-sandbox serve` runs.

    backend = RemoteBackend("https://sandboxes.example.org", token)

The gateway keeps them for as long as this process renews its lease, which goes by itself while the event loop that made
them runs: when it is gone, so are they.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from verifiers.errors import ConfigError, SandboxError, SetupError
from verifiers.sandbox.gateway_messages import (
    Create,
    Created,
    Exec,
    File,
    GatewayStatus,
    Offer,
    RunOnce,
    SandboxGone,
    These,
    Which,
    as_json,
    pack,
    sizes_of,
    unpack,
    unpack_result,
)
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.remote_link import RemoteLink
from verifiers.sandbox.remote_process import RemoteProcess
from verifiers.sandbox.sandbox import (
    Capabilities,
    ExecResult,
    Sandbox,
    SandboxBackend,
    SandboxProcess,
    SandboxSpec,
    as_bytes,
)

logger = logging.getLogger("verifiers")

URL_VAR, TOKEN_VAR = "VF_SANDBOX_URL", "VF_SANDBOX_TOKEN"
_RENEWALS = 4  # for each lease

Answered = TypeVar("Answered", bound=msgspec.Struct)
Unpacked = TypeVar("Unpacked")


class RemoteBackend(SandboxBackend):
    """By default the address and the token are those of VF_SANDBOX_URL and VF_SANDBOX_TOKEN.

    A gateway that is full is asked again for `patience_s`, which costs a program none of its time.
    """

    name = "remote"

    def __init__(self, url: str | None = None, token: str | None = None, *, patience_s: float = 600.0) -> None:
        self._url, self._token, self._patience_s = url, token, patience_s
        self._link: RemoteLink | None = None
        self._found: Capabilities | None = None
        self._sandboxes: dict[str, RemoteSandbox] = {}
        self._renewals: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]]
        self._renewals = weakref.WeakKeyDictionary()
        self._endings: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"RemoteBackend({self._url!r}, token='***')"

    async def capabilities(self) -> Capabilities:
        """Asked for once."""
        link = self.link
        if self._found is None:
            found = _read((await link.call("/v1/offer")).body, Offer).capabilities
            notes = (f"the backend {found.backend} of the gateway {link.url}", *found.notes)
            self._found = msgspec.structs.replace(found, backend=self.name, notes=notes)
        return self._found

    async def create(self, spec: SandboxSpec | None = None) -> RemoteSandbox:
        spec = spec or SandboxSpec()
        creation = spec.key or f"new-{uuid.uuid4().hex}"
        head = Create(creation=creation, spec=msgspec.structs.replace(spec, files={}), files=sizes_of(spec.files))
        try:
            answer = await self.link.call("/v1/create", pack(head, *spec.files.values()))
        except asyncio.CancelledError:
            if spec.key is None:  # it may be there all the same
                ending = asyncio.ensure_future(self.end(Which(creation=creation)))
                self._endings.add(ending)
                ending.add_done_callback(self._endings.discard)
            raise
        made = _read(answer.body, Created)
        sandbox = self._sandboxes.get(made.id)
        if sandbox is None:
            granted = msgspec.structs.replace(spec, limits=made.limits, lifetime_s=made.lifetime_s)
            sandbox = self._sandboxes[made.id] = RemoteSandbox(self, made.id, granted, made.work)
        self._keep_renewing(made.lease_s)
        return sandbox

    async def run_once(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        limits: SandboxLimits | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ExecResult:
        text, given, files = as_bytes(program), as_bytes(stdin), files or {}
        head = RunOnce(
            program=len(text),
            stdin=len(given),
            limits=limits or SandboxLimits(),
            env=dict(env or {}),
            files=sizes_of(files),
        )
        return await self.run("/v1/run", pack(head, text, given, *files.values()))

    async def status(self, ids: Sequence[str] | None = None) -> GatewayStatus:
        """Of any number of sandboxes by one request; None: of all that this token has."""
        return await self.ask("/v1/status", Which(ids=None if ids is None else list(ids)), GatewayStatus)

    async def close_run(self, run_id: str) -> int:
        """Also those that another process made with this token."""
        closed = await self.ask("/v1/close", Which(run_id=run_id), These)
        self.mark_ended(id for id, made in list(self._sandboxes.items()) if made.spec.run_id == run_id)
        return len(closed.ids)

    async def close(self) -> None:
        self._is_closed = True
        link, left = self._link, list(self._sandboxes)
        if link is None:
            return
        try:
            here = [ending for ending in self._endings if ending.get_loop() is asyncio.get_running_loop()]
            await asyncio.gather(*here, return_exceptions=True)
            if left:
                await self.end(Which(ids=left))
        finally:
            self.mark_ended(left)
            renewal = self._renewals.pop(asyncio.get_running_loop(), None)
            if renewal is not None:
                renewal.cancel()
            await link.close()

    # The gateway

    @property
    def link(self) -> RemoteLink:
        if self._is_closed:
            raise SandboxError("the sandbox backend is closed")
        if self._link is None:
            url, token = self._url or os.environ.get(URL_VAR), self._token or os.environ.get(TOKEN_VAR)
            if not url:
                raise SetupError(f"no gateway is named: set {URL_VAR} (and {TOKEN_VAR}), or give url=")
            if not token:
                raise SetupError(f"the gateway {url} wants a token: set {TOKEN_VAR}, or give token=")
            self._link = RemoteLink(url, token, self._patience_s)
        return self._link

    async def ask(self, path: str, question: msgspec.Struct, kind: type[Answered]) -> Answered:
        return _read((await self.link.call(path, as_json(question))).body, kind)

    async def run(self, path: str, message: bytes) -> ExecResult:
        answer = await self.link.call(path, message, may_repeat=False)
        return msgspec.structs.replace(_unpacked(answer.body, unpack_result), attempts=answer.attempts)

    async def end(self, which: Which) -> None:
        """Where the gateway cannot be asked, the lease does it."""
        if self._link is None:
            return
        try:
            await self._link.call("/v1/close", as_json(which))
        except (SandboxError, SetupError) as error:
            logger.warning("sandboxes are left to their lease: %s", error)

    def mark_ended(self, ids: Iterable[str]) -> None:
        for id in ids:
            sandbox = self._sandboxes.pop(id, None)
            if sandbox is not None:
                sandbox.has_ended = True

    def _keep_renewing(self, lease_s: float) -> None:
        loop = asyncio.get_running_loop()
        found = self._renewals.get(loop)
        if found is None or found.done():
            self._renewals[loop] = asyncio.ensure_future(self._renew(lease_s / _RENEWALS))

    async def _renew(self, pause_s: float) -> None:
        """Of all that were made in this event loop, by one request, until none is left."""
        loop = asyncio.get_running_loop()
        while ids := [id for id, made in self._sandboxes.items() if made.loop is loop]:
            try:
                self.mark_ended((await self.ask("/v1/renew", These(ids), These)).ids)
            except (SandboxError, SetupError) as error:
                if self._is_closed:
                    return
                logger.warning("the leases of %d sandbox(es) were not renewed: %s", len(ids), error)
            await asyncio.sleep(pause_s)


class RemoteSandbox(Sandbox):
    """`spec` has the limits that the gateway granted."""

    def __init__(self, backend: RemoteBackend, id: str, spec: SandboxSpec, work: str) -> None:
        self.id, self.spec, self.work = id, spec, work
        self.loop = asyncio.get_running_loop()
        self.has_ended = False
        self._backend = backend
        self._processes: weakref.WeakSet[RemoteProcess] = weakref.WeakSet()

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
        message = pack(_asked(command, limits, cwd, env, user), as_bytes(stdin))
        with self._there():
            return await self._backend.run(self._path("exec"), message)

    async def open_process(
        self,
        command: Sequence[str] | str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> SandboxProcess:
        with self._there():
            connection = await self._backend.link.connect(self._path("process"))
        process = await RemoteProcess.open(connection, _asked(command, None, cwd, env, user))
        self._processes.add(process)
        return process

    async def read_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        return await self._file("read", File(path=path, max_bytes=max_bytes))

    async def write_file(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        await self._file("write", File(path=path, mode=mode), as_bytes(data))

    async def get_archive(self, path: str) -> bytes:
        return await self._file("pack", File(path=path))

    async def put_archive(self, data: bytes, path: str) -> None:
        await self._file("unpack", File(path=path), data)

    async def close(self) -> None:
        if self.has_ended:
            return
        self._backend.mark_ended([self.id])
        for process in list(self._processes):
            await process.hang_up()
        await self._backend.end(Which(ids=[self.id]))

    @property
    def is_closed(self) -> bool:
        return self.has_ended

    async def _file(self, what: str, head: File, data: bytes = b"") -> bytes:
        with self._there():
            answer = await self._backend.link.call(self._path(what), pack(head, data))
        return bytes(_unpacked(answer.body, lambda body: unpack(body, File)[1]))

    def _path(self, what: str) -> str:
        return f"/v1/sandboxes/{self.id}/{what}"

    @contextmanager
    def _there(self) -> Generator[None, None, None]:
        """Around a question that ends, for us too, what the gateway has ended."""
        if self.has_ended:
            raise SandboxError(f"the sandbox {self.id} has ended: it was closed, or its time is over")
        try:
            yield
        except SandboxGone:
            self._backend.mark_ended([self.id])
            raise


def _asked(
    command: Sequence[str] | str,
    limits: SandboxLimits | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
    user: str | None,
) -> Exec:
    words = command if isinstance(command, str) else list(command)
    return Exec(command=words, limits=limits, cwd=cwd, env=dict(env or {}), user=user)


def _unpacked(body: bytes, unpacker: Callable[[bytes], Unpacked]) -> Unpacked:
    try:
        return unpacker(body)
    except ConfigError as error:
        raise SandboxError(f"the gateway's answer is {error}") from None


def _read(body: bytes, kind: type[Answered]) -> Answered:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise SandboxError(f"the gateway's answer is no {kind.__name__}: {error}") from None
