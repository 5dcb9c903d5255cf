"""`AutoBackend`: a container engine when one answers, else this machine for what needs nothing but Python."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.errors import NoSandboxError, SandboxError, SetupError
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import Capabilities, ExecResult, Sandbox, SandboxBackend, SandboxSpec

logger = logging.getLogger("verifiers")


ENGINES = ("docker", "podman")


class AutoBackend(SandboxBackend):
    """Asks `engines`, by default those of `ENGINES`, once.

    `engine_options` are what an engine's backend is opened with, `local_options` those of `LocalBackend`.
    """

    name = "auto"

    def __init__(
        self,
        *,
        engines: Sequence[SandboxBackend] | None = None,
        engine_options: Mapping[str, Any] | None = None,
        **local_options: Any,
    ) -> None:
        self._engines = engines
        self._engine_options = dict(engine_options or {})
        self._local_options = local_options
        self._engine: SandboxBackend | None = None
        self._local: SandboxBackend | None = None
        self._is_asked = False
        self._refusals: list[str] = []
        self._asking: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def choose(self, image: str | None = None) -> SandboxBackend:
        """The backend for an image. Raises NoSandboxError, which says what to do, when there is none."""
        # a hundred rollouts begin together, and one of them asks
        async with self._asking.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            return await self._choose(image)

    async def _choose(self, image: str | None) -> SandboxBackend:
        if not self._is_asked:
            await self._ask_engines()
        if self._engine is not None:
            return self._engine
        from verifiers.sandbox.local import LocalBackend, is_plain_python

        if image is not None and not is_plain_python(image):
            reasons = f" ({'; '.join(self._refusals)})" if self._refusals else ""
            raise NoSandboxError(
                f"the image {image} is asked for, and no container engine answers here{reasons}. Start docker or "
                "podman, name a backend that has images, or take no image but python"
            )
        if self._local is None:
            local = LocalBackend(**self._local_options)
            try:
                found = await local.capabilities()
            except SetupError as error:
                raise NoSandboxError(str(error)) from error
            self._local = local
            logger.info("no container engine answers: sandboxes are of this machine, of level %s", found.level)
        return self._local

    async def capabilities(self) -> Capabilities:
        return await (await self.choose()).capabilities()

    async def create(self, spec: SandboxSpec | None = None) -> Sandbox:
        spec = spec or SandboxSpec()
        return await (await self.choose(spec.image)).create(spec)

    async def run_once(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        limits: SandboxLimits | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ExecResult:
        return await (await self.choose()).run_once(program, stdin=stdin, limits=limits, env=env, files=files)

    async def close_run(self, run_id: str) -> int:
        return sum([await backend.close_run(run_id) for backend in self._chosen()])

    async def close(self) -> None:
        await asyncio.gather(*(backend.close() for backend in self._chosen()))
        self._engine = self._local = None
        self._is_asked = False

    def _chosen(self) -> list[SandboxBackend]:
        return [backend for backend in (self._engine, self._local) if backend is not None]

    async def _ask_engines(self) -> None:
        from verifiers.sandbox.backends import open_backend

        engines = self._engines
        if engines is None:
            engines = [open_backend(name, **self._engine_options) for name in ENGINES]
        refusals = []
        for engine in engines:
            try:
                await engine.capabilities()
            except (SetupError, SandboxError) as error:
                refusals.append(f"{engine.name}: {error}")
                continue
            self._engine = engine
            break
        self._refusals, self._is_asked = refusals, True
