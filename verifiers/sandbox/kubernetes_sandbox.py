"""`KubernetesSandbox`: a pod that stays, whose agent runs programs and moves files until it is closed."""

from __future__ import annotations

import asyncio
import io
import json
import posixpath
import tarfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from verifiers.errors import ConfigError, SandboxError
from verifiers.sandbox.container_sandbox import check_archive
from verifiers.sandbox.kubernetes_cluster import AgentLink, AgentLost, Cluster, ClusterError
from verifiers.sandbox.kubernetes_plan import is_out_of_memory, trouble_of
from verifiers.sandbox.lifetime import Lifetime
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.outcome import Ending, read_ending
from verifiers.sandbox.sandbox import WORK, ExecResult, Sandbox, SandboxProcess, SandboxSpec, as_argv, as_bytes

_GRACE_S = 60.0  # after a program's wall time, for its agent to say so
_DIAGNOSE_S = 6.0  # a cluster learns of a pod's end a little later than we do
_PIECE = 65536
_FOREVER = SandboxLimits(wall_s=1e9, output_kb=1 << 20)


class KubernetesSandbox(Sandbox):
    """Belongs to the event loop in which it was made."""

    def __init__(
        self,
        cluster: Cluster,
        pod: dict[str, Any],
        link: AgentLink,
        spec: SandboxSpec,
        lease_s: float,
        forget: Callable[[KubernetesSandbox], None],
    ) -> None:
        self.id: str = pod["metadata"]["uid"]
        self.name: str = pod["metadata"]["name"]
        self.path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{self.name}"
        self.work = WORK
        self.made_at = time.monotonic()
        self.spec = spec
        self._cluster, self._link, self._forget = cluster, link, forget
        self._loop = asyncio.get_running_loop()
        self._why_ended: str | None = None
        self._closing: asyncio.Future[None] | None = None
        self._kills: set[asyncio.Future[Any]] = set()
        self._lifetime = Lifetime(spec, self._end)
        self._keeping = asyncio.ensure_future(self._keep(lease_s / 4))

    def adopt(self, spec: SandboxSpec) -> None:
        """Its time counts from here."""
        self.spec = spec
        self._lifetime.stop()
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
        limits = limits or self.spec.limits
        asked = self._asked(as_argv(command), limits, cwd, env, user, is_run=True)
        name = uuid.uuid4().hex
        gives_up = self._loop.time() + limits.wall_s + _GRACE_S
        try:
            status, body = await self.ask(f"programs/{name}/start", asked, as_bytes(stdin))
            while status == 202 and self._loop.time() < gives_up:
                status, body = await self.ask(f"programs/{name}/wait", {})
        except asyncio.CancelledError:
            self._kill(name)
            raise
        except PodOutOfMemory:
            return read_ending(Ending(out_of_memory=True), limits, b"", b"")
        except SandboxError:  # it may run all the same
            self._kill(name)
            raise
        if status != 200:
            raise self.end_for_program("could not be ended" if status == 202 else "is lost to its agent")
        return result_of(body, limits)

    async def open_process(
        self,
        command: Sequence[str] | str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> SandboxProcess:
        name = uuid.uuid4().hex
        asked = self._asked(as_argv(command), _FOREVER, cwd, env, user, is_run=False)
        try:
            await self.ask(f"programs/{name}/start", asked)
        except (asyncio.CancelledError, SandboxError):
            self._kill(name)
            raise
        return KubernetesProcess(self, name)

    async def read_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        return (await self.ask("files/read", {"path": self._path(path), "max_bytes": max_bytes}))[1]

    async def write_file(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        await self.ask("files/write", {"path": self._path(path), "mode": mode}, as_bytes(data))

    async def write_files(self, files: Mapping[str, bytes]) -> None:
        """All in one call."""
        if not files:
            return
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path, data in files.items():
                member = tarfile.TarInfo(self._path(path).lstrip("/"))
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        await self.ask("files/unpack", {"path": "/"}, buffer.getvalue())

    async def get_archive(self, path: str) -> bytes:
        return (await self.ask("files/pack", {"path": self._path(path)}))[1]

    async def put_archive(self, data: bytes, path: str) -> None:
        check_archive(data)
        await self.ask("files/unpack", {"path": self._path(path)}, data)

    async def close(self) -> None:
        if self._closing is None or self._closing.get_loop().is_closed():  # which then may not have come to its end
            self._why_ended = self._why_ended or "it was closed"
            self._lifetime.stop()
            self._keeping.cancel()
            self._closing = asyncio.ensure_future(self._remove())
        await asyncio.shield(self._closing)

    @property
    def is_closed(self) -> bool:
        return self._why_ended is not None

    async def is_there(self) -> bool:
        return not self.is_closed and await self._link.hello()

    def end_for_program(self, what: str = "could not be ended") -> SandboxError:
        """What runs in it is out of our hands, so all of it goes. The error to raise."""
        self._end(f"a program in it {what}")
        return SandboxError(f"the sandbox {self.name} has ended: {self._why_ended}")

    async def ask(
        self, path: str, head: Mapping[str, Any], data: bytes = b"", *, may_repeat: bool = True
    ) -> tuple[int, bytes]:
        """The agent's answer. When there is none, what the cluster says of the pod is raised."""
        self._check_open()
        with self._lifetime.busy():
            try:
                return await self._link.call(path, head, data, may_repeat=may_repeat)
            except AgentLost as error:
                self._check_open()
                raise await self._diagnosed(error) from None

    async def _diagnosed(self, error: AgentLost) -> SandboxError:
        until = self._loop.time() + _DIAGNOSE_S
        while True:
            try:
                pod = await self._cluster.call("GET", self.path)
            except ClusterError as refusal:
                why = "its pod is gone" if refusal.status == 404 else None
                if why is None:
                    return SandboxError(f"{error}; {refusal}")
            else:
                why = trouble_of(pod) if pod["metadata"]["uid"] == self.id else "its pod is gone"
                if is_out_of_memory(pod):
                    self._end("its pod ran out of memory")
                    return PodOutOfMemory(f"the sandbox {self.name} has ended: its pod ran out of memory")
            if why is not None:
                self._end(why)
                return SandboxError(f"the sandbox {self.name} has ended: {why}")
            if self._loop.time() > until:
                return error
            await asyncio.sleep(0.5)

    async def _remove(self) -> None:
        try:
            here = asyncio.get_running_loop()
            await asyncio.gather(*(kill for kill in self._kills if kill.get_loop() is here), return_exceptions=True)
            await self._link.close()
            await delete_pod(self._cluster, self.path, self.id)
        finally:
            self._forget(self)

    async def _keep(self, pause_s: float) -> None:
        """Renews the lease: an agent that nobody asks for long ends with its pod."""
        while True:
            await asyncio.sleep(pause_s)
            await self._link.hello()

    def _end(self, why: str) -> None:
        self._why_ended = self._why_ended or why
        closing = asyncio.ensure_future(self.close())
        closing.add_done_callback(lambda done: done.cancelled() or done.exception())  # the next start reaps it

    def _kill(self, name: str) -> None:
        """In the background, also when its start has not arrived yet."""
        if self.is_closed:
            return
        killing = asyncio.ensure_future(self._link.call(f"programs/{name}/kill", {}))
        self._kills.add(killing)

        def done(killed: asyncio.Future[Any]) -> None:
            self._kills.discard(killed)
            if not self.is_closed and (killed.cancelled() or killed.exception() is not None):
                self._end("a program in it could not be ended")

        killing.add_done_callback(done)

    def _asked(
        self,
        argv: list[str],
        limits: SandboxLimits,
        cwd: str | None,
        env: Mapping[str, str] | None,
        user: str | None,
        *,
        is_run: bool,
    ) -> dict[str, Any]:
        if user is not None and user != self.spec.user:
            raise ConfigError(f"programs of a pod run as its user; {user!r} must be said by SandboxSpec(user=)")
        whole = self.spec.limits
        bounds = {"memory_mb": whole.memory_mb, "processes": whole.processes, "file_mb": whole.file_mb}
        bounds |= {"output_kb": limits.output_kb, "cpu_s": limits.cpu_s, "wall_s": limits.wall_s if is_run else None}
        words = {**self.spec.env, **(env or {})}
        return {"argv": argv, "cwd": self._path(cwd or ""), "env": words, "limits": bounds, "is_run": is_run}

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(WORK, path))

    def _check_open(self) -> None:
        if self._why_ended is not None:
            raise SandboxError(f"the sandbox {self.name} has ended: {self._why_ended}")


class PodOutOfMemory(SandboxError):
    """The kernel ended the whole pod for the memory of what ran in it."""


class KubernetesProcess(SandboxProcess):
    """As with pipes: a stream that nobody reads stops the program once it is full."""

    def __init__(self, sandbox: KubernetesSandbox, name: str) -> None:
        self._sandbox = sandbox
        self._path = f"programs/{name}"
        self._unread = {1: bytearray(), 2: bytearray()}
        self._asked: dict[int, asyncio.Task[bytes]] = {}  # a read that was cancelled stays asked for
        self._reading = {1: asyncio.Lock(), 2: asyncio.Lock()}  # one read of a stream at a time
        self._result: ExecResult | None = None
        self._killed_at: float | None = None

    async def write(self, data: bytes) -> None:
        for begin in range(0, len(data), _PIECE):
            piece = data[begin : begin + _PIECE]
            status, _ = await self._sandbox.ask(f"{self._path}/write", {}, piece, may_repeat=False)
            if status != 200:
                raise SandboxError("the program's stdin is closed, or the program has ended")

    async def close_stdin(self) -> None:
        await self._sandbox.ask(f"{self._path}/close_stdin", {})

    async def read(self, size_bytes: int = 65536) -> bytes:
        return await self._read(1, size_bytes)

    async def read_error(self, size_bytes: int = 65536) -> bytes:
        return await self._read(2, size_bytes)

    async def wait(self) -> ExecResult:
        """A program that is not killed may run as long as its sandbox lives."""
        if self._result is None:
            status, body = 202, b""
            while status == 202:
                status, body = await self._sandbox.ask(f"{self._path}/wait", {})
                if status == 202 and self._killed_at is not None and time.monotonic() > self._killed_at + _GRACE_S:
                    raise self._sandbox.end_for_program()
            if status != 200:
                raise SandboxError("the agent in the pod no longer knows the program")
            async with self._reading[1], self._reading[2]:  # whoever reads meanwhile has that first
                out, err = [await self._rest_of(stream) for stream in (1, 2)]
                status, body = await self._sandbox.ask(f"{self._path}/wait", {})
                if status != 200:
                    raise SandboxError("the agent in the pod no longer knows the program")
                found = result_of(body, _FOREVER)
                self._result = msgspec.structs.replace(found, stdout=out + found.stdout, stderr=err + found.stderr)
        return self._result

    async def kill(self) -> None:
        if self._killed_at is None:
            self._killed_at = time.monotonic()
        await self._sandbox.ask(f"{self._path}/kill", {})

    async def _read(self, stream: int, size_bytes: int) -> bytes:
        async with self._reading[stream]:
            unread = self._unread[stream]
            if not unread and self._result is None:
                if stream not in self._asked:
                    self._asked[stream] = asyncio.ensure_future(self._fetch(stream, size_bytes))
                await asyncio.wait({self._asked[stream]})
                unread += self._asked.pop(stream).result()
            found = bytes(unread[:size_bytes])
            del unread[:size_bytes]
            return found

    async def _rest_of(self, stream: int) -> bytes:
        """What was fetched for somebody who no longer waits."""
        asked, unread = self._asked.pop(stream, None), self._unread[stream]
        whole = bytes(unread) + (b"" if asked is None else await asked)
        unread.clear()
        return whole

    async def _fetch(self, stream: int, size_bytes: int) -> bytes:
        """A read whose answer is lost is lost, so it is not tried again."""
        status, data = 202, b""
        while status == 202:
            asked = {"stream": stream, "size": size_bytes}
            status, data = await self._sandbox.ask(f"{self._path}/read", asked, may_repeat=False)
        if status != 200:
            raise SandboxError("the agent in the pod no longer knows the program")
        return data


def result_of(body: bytes, limits: SandboxLimits) -> ExecResult:
    """Of an agent's answer. Raises SandboxError for what is none."""
    head, _, rest = body.partition(b"\n")
    try:
        told = json.loads(head)
        out, err, cut = told.pop("out"), told.pop("err"), told.pop("cut")
        ending = Ending(**told)
        if len(rest) != out + err:
            raise ValueError(f"{len(rest)} bytes of output instead of {out + err}")
        return read_ending(ending, limits, rest[:out], rest[out:], (bool(cut[0]), bool(cut[1])))
    except (ValueError, KeyError, TypeError) as error:
        raise SandboxError(f"the agent in the pod makes no sense: {error}") from None


async def delete_pod(cluster: Cluster, path: str, uid: str | None = None) -> None:
    """One that is gone, or another by its name, is as good. `uid`: which of them is meant."""
    body = None if uid is None else {"preconditions": {"uid": uid}}
    try:
        await cluster.call("DELETE", path, body=body)
    except ClusterError as error:
        if error.status not in (404, 409):
            raise
