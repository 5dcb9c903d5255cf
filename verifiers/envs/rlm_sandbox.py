"""`RLMSandboxes`: sandboxes for the interpreters of `RLMEnv`, where the input is put before the first code runs."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from verifiers.envs.interpreter import Interpreter, Settings
from verifiers.envs.sandbox_client import SandboxClient
from verifiers.envs.sandbox_request import CreateSandboxRequest
from verifiers.envs.sandbox_worker import SandboxWorker
from verifiers.errors import SandboxError
from verifiers.sandbox.sandbox import SandboxBackend
from verifiers.types import State
from verifiers.unpacking import unpack_member


class RLMSandboxes:
    """`packages`: what the code imports in a sandbox of this machine, and what that needs, is shown there."""

    def __init__(self, backend: SandboxBackend | str, request: CreateSandboxRequest, packages: Sequence[str]) -> None:
        options = {"packages": packages} if packages and backend in ("auto", "local") else {}
        self.client = SandboxClient(backend, backend_options=options)
        self.request = request

    async def is_local(self) -> bool:
        """Raises NoSandboxError when there is none to be had."""
        return (await self.client.capabilities(self.request)).backend == "local"

    async def interpreter(self, state: State, settings: Settings, request: CreateSandboxRequest) -> Interpreter:
        """In a sandbox of the rollout's own; `start` puts the folder of the settings there first."""
        made = await self.client.create(request)
        state["sandbox_id"] = made.id
        sandbox = await self.client.sandbox(made.id)
        state["rlm_fs_root_remote"] = sandbox.work
        return Interpreter(settings, SandboxWorker(sandbox))

    async def put(self, state: State, name: str, text: str) -> None:
        """A file in the working folder."""
        await self.client.upload_bytes(state["sandbox_id"], name, text.encode("utf-8", "replace"), name)

    async def end(self, state: State, kept: Path | None) -> None:
        """`kept`: a folder that gets the files of the working folder."""
        sandbox_id = state.get("sandbox_id")
        if sandbox_id is None:
            return
        try:
            if kept is not None:
                sandbox = await self.client.sandbox(sandbox_id)
                await asyncio.to_thread(_unpack, await sandbox.get_archive(sandbox.work), kept)
        finally:
            await self.client.delete(sandbox_id)


def _unpack(data: bytes, folder: Path) -> None:
    """What is in the archive's one folder. Links that lead out are refused."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            _, _, name = member.name.partition("/")
            if not name:
                continue
            member.name = name
            try:
                unpack_member(archive, member, folder)
            except tarfile.TarError as error:
                raise SandboxError(f"{name} in the working folder cannot be kept: {error}") from error
