"""`ContainerBackend`: sandboxes that are containers of Docker or podman, through the engine's HTTP API.

    backend = PodmanBackend(image="docker.io/library/python:3.12-slim")

Nothing rests on an engine's defaults: memory, swap, processes, processors, files and their sizes are limited; no
capability is left, no privilege can be had, the root is read-only and there is no network unless the limits say so.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from verifiers.errors import SandboxError, SetupError
from verifiers.sandbox.container_plan import (
    KEY,
    LABEL,
    RUN_ID,
    Container,
    Facts,
    body_of,
    capabilities_of,
    is_left_over,
    name_of,
)
from verifiers.sandbox.container_sandbox import ContainerSandbox, remove
from verifiers.sandbox.container_shell import WRITE_AND_RUN
from verifiers.sandbox.engine import Engine, EngineError, docker_hosts, podman_hosts
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import PROGRAM, WORK, Capabilities, ExecResult, SandboxBackend, SandboxSpec

logger = logging.getLogger("verifiers")

IMAGE = "docker.io/library/python:3.11-slim"
_ATTEMPTS = 4
_PULL_SILENCE_S = 300.0
_SAY_EVERY_S = 10.0
_ARGUMENT_BYTES = 100_000  # Linux takes 131,071 in one
_AT_EXIT_S = 10.0  # for removing what was not closed


class ContainerBackend(SandboxBackend):
    """`host` is where the engine answers, by default where it usually does; `image` is for sandboxes that name none.

    `read_only=False` lets programs write anywhere in the image, at the price of a limit on all files together.
    `places` containers are made, and programs of `run_once` run, at a time, by default two for each core.
    """

    engine_name = "a container engine"
    how_to_start = "Start one, or name it by host="
    find_hosts: Callable[[], list[str]] = staticmethod(lambda: [*docker_hosts(), *podman_hosts()])

    def __init__(
        self,
        *,
        host: str | None = None,
        image: str = IMAGE,
        runtime: str | None = None,
        cpus: float = 1.0,
        read_only: bool = True,
        places: int | None = None,
    ) -> None:
        self.host = host
        self.container = Container(image, runtime, cpus, read_only)
        self.places = places or 2 * (os.cpu_count() or 1)
        self._found: tuple[Engine, Facts] | None = None
        self._images: set[str] = set()  # that are there
        self._pulls: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Task[None]] = {}
        self._sandboxes: dict[str, ContainerSandbox] = {}  # by container
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]]
        self._locks = weakref.WeakKeyDictionary()
        self._waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, asyncio.Semaphore]]
        self._waiting = weakref.WeakKeyDictionary()
        self._endings: set[asyncio.Task[None]] = set()  # of containers that nobody waited for any more
        self._is_closed = False
        self._at_exit = partial(_call, weakref.WeakMethod(self._abandon))
        atexit.register(self._at_exit)

    async def capabilities(self) -> Capabilities:
        engine, facts = await self._engine()
        is_image_here = await self._has_image(engine, self.container.image)
        return capabilities_of(self.name, self.container, facts, is_image_here)

    async def create(self, spec: SandboxSpec | None = None) -> ContainerSandbox:
        spec = spec or SandboxSpec()
        engine, facts = await self._engine()
        await self._pull(engine, spec.image or self.container.image)
        if spec.key is None:
            return await self._create(engine, facts, spec)
        async with self._lock(f"key {spec.key}"):  # of two at once, one makes it and one is given it
            for made in list(self._sandboxes.values()):
                if made.spec.key == spec.key and not made.is_closed:
                    return made
            return await self._create(engine, facts, spec)

    async def run_once(
        self,
        program: str,
        *,
        stdin: bytes | str = b"",
        limits: SandboxLimits | None = None,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> ExecResult:
        limits = limits or SandboxLimits()
        source = program.encode("utf-8", "surrogateescape")
        run = ["python3", PROGRAM]
        whole = dict(files or {})
        is_text = b"\0" not in source and source.decode("utf-8", "replace") == program
        if not whole and is_text and len(source) < _ARGUMENT_BYTES:
            run = ["/bin/sh", "-c", WRITE_AND_RUN, PROGRAM, program, *run]  # one call to the engine less
        else:
            whole[PROGRAM] = source
        spec = SandboxSpec(limits=limits, env=dict(env or {}), files=whole, lifetime_s=limits.wall_s + 120)
        async with self._places()[1], await self.create(spec) as sandbox:
            return await sandbox.exec(run, stdin=stdin, limits=limits, env={"PYTHONPATH": WORK})

    async def close_run(self, run_id: str) -> int:
        """Also those that another process made."""
        engine, _ = await self._engine()
        found = await _list(engine, f"{RUN_ID}={run_id}")
        await asyncio.gather(*(self._close(engine, container["Id"]) for container in found))
        return len(found)

    async def close(self) -> None:
        self._is_closed = True
        for (loop, _), pull in list(self._pulls.items()):
            if loop is asyncio.get_running_loop():
                pull.cancel()
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._sandboxes.values())))
        here = [ending for ending in self._endings if ending.get_loop() is asyncio.get_running_loop()]
        await asyncio.gather(*here, return_exceptions=True)
        atexit.unregister(self._at_exit)

    # Containers

    async def _create(self, engine: Engine, facts: Facts, spec: SandboxSpec) -> ContainerSandbox:
        async with self._places()[0]:
            making = asyncio.ensure_future(self._make(engine, facts, spec))
            try:
                container = await asyncio.shield(making)
            except asyncio.CancelledError:
                ending = asyncio.ensure_future(_remove_made(engine, making))
                self._endings.add(ending)
                ending.add_done_callback(self._endings.discard)
                raise
            except EngineError as error:
                if facts.profile is None or "seccomp profile" not in str(error):
                    raise
                container = None
        if container is None:  # the engine lives in a machine or container of its own
            facts = replace(facts, profile=None)
            self._found = engine, facts
            return await self._create(engine, facts, spec)
        sandbox = ContainerSandbox(engine, container, spec, self._forget)
        self._sandboxes[container] = sandbox
        try:
            if self._is_closed:  # meanwhile
                raise SandboxError("the sandbox backend is closed")
            await sandbox.write_files(spec.files)
        except BaseException:
            await asyncio.shield(sandbox.close())
            raise
        return sandbox

    async def _make(self, engine: Engine, facts: Facts, spec: SandboxSpec) -> str:
        """The number of a container that runs. May be tried again: the name is given once."""
        name, body = name_of(spec), body_of(spec, self.container, facts)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                container = await self._named(engine, name, body, spec.key)
                await engine.call("POST", f"/containers/{container}/start")
                return container
            except EngineError as error:
                is_passing = error.status in (None, 502, 503) or (error.status in (404, 409) and spec.key is not None)
                if not is_passing or attempt == _ATTEMPTS:
                    with suppress(EngineError):  # an engine that did not answer may have made it
                        await remove(engine, name)
                    raise
            await asyncio.sleep(0.1 * 4**attempt)
        raise AssertionError

    async def _named(self, engine: Engine, name: str, body: dict[str, Any], key: str | None) -> str:
        try:
            return (await engine.call("POST", "/containers/create", query={"name": name}, body=body))["Id"]
        except EngineError as error:
            if error.status == 409 or (error.status == 500 and "already in use" in str(error)):
                found = await engine.call("GET", f"/containers/{name}/json")
                if found["Config"]["Labels"].get(KEY) == key and found["State"]["Status"] in ("created", "running"):
                    return found["Id"]
                await remove(engine, name)  # it has ended, and its name is wanted
                raise EngineError(str(error), 409) from None
            raise

    async def _close(self, engine: Engine, container: str) -> None:
        sandbox = self._sandboxes.get(container)
        await (remove(engine, container) if sandbox is None else sandbox.close())

    def _forget(self, sandbox: ContainerSandbox) -> None:
        self._sandboxes = {number: made for number, made in self._sandboxes.items() if made is not sandbox}

    def _abandon(self) -> None:
        """Without an event loop. What it misses is found by its labels."""
        if self._found is None:
            return
        deadline = time.monotonic() + _AT_EXIT_S
        for container in list(self._sandboxes):
            if time.monotonic() > deadline:
                return
            try:
                self._found[0].send_now("DELETE", f"/containers/{container}?force=true&v=true")
            except OSError:
                return

    def _lock(self, what: str) -> asyncio.Lock:
        return self._locks.setdefault(asyncio.get_running_loop(), {}).setdefault(what, asyncio.Lock())

    def _places(self) -> tuple[asyncio.Semaphore, asyncio.Semaphore]:
        """For making containers, and for running in one."""
        loop = asyncio.get_running_loop()
        if loop not in self._waiting:
            self._waiting[loop] = asyncio.Semaphore(self.places), asyncio.Semaphore(self.places)
        return self._waiting[loop]

    # The engine

    async def _engine(self) -> tuple[Engine, Facts]:
        if self._is_closed:
            raise SandboxError("the sandbox backend is closed")
        if self._found is None:
            async with self._lock("the engine"):  # many sandboxes at once ask it once
                if self._found is None:
                    found = await self._find()
                    await self._reap(found[0])
                    self._found = found
        return self._found

    async def _find(self) -> tuple[Engine, Facts]:
        reasons = []
        refused: SetupError | None = None
        for host in [self.host] if self.host is not None else self.find_hosts():
            engine = Engine(host)
            try:
                version = await engine.call("GET", "/version", timeout_s=15)
                info = await engine.call("GET", "/info", timeout_s=15)
                facts = Facts.read(version, info, is_here=host.startswith("unix:") and sys.platform == "linux")
            except (EngineError, AttributeError, TypeError) as error:
                why = (error.why or str(error)) if isinstance(error, EngineError) else "that is no container engine"
                reasons.append(f"{host}: {why}")
                continue
            try:
                self._check(facts)
                return engine, facts
            except SetupError as error:
                refused = refused or error
        raise refused or SetupError(f"{self.engine_name} does not answer ({'; '.join(reasons)}). {self.how_to_start}")

    def _check(self, facts: Facts) -> None:
        wanted = self.container.runtime
        if wanted is None or wanted == facts.runtime:
            return
        if wanted not in facts.runtimes:
            known = ", ".join(sorted({facts.runtime, *facts.runtimes}))
            raise SetupError(f"the runtime {wanted} is not installed in {facts.engine} (it has {known})")
        if facts.engine == "podman":  # its Docker-compatible API takes no notice of the runtime that is asked for
            raise SetupError(
                f"podman's service runs containers by {facts.runtime}, and {wanted} is asked for, which is not "
                f"installed as its default; start it as: podman --runtime {wanted} system service"
            )

    async def _reap(self, engine: Engine) -> None:
        """What others left behind."""
        try:
            found = [one for one in await _list(engine, LABEL) if is_left_over(one["Labels"], time.time())]
            await asyncio.gather(*(remove(engine, one["Id"]) for one in found))
        except EngineError as error:
            logger.warning("sandboxes that others left behind could not be removed: %s", error)
            return
        if found:
            logger.info("%d sandbox(es) that others left behind were removed", len(found))

    # Images

    async def _has_image(self, engine: Engine, image: str) -> bool:
        if image in self._images:
            return True
        try:
            await engine.call("GET", f"/images/{image}/json")
        except EngineError as error:
            if error.status == 404:
                return False
            raise
        self._images.add(image)
        return True

    async def _pull(self, engine: Engine, image: str) -> None:
        """Once, however many sandboxes wait for it."""
        if image in self._images:
            return
        key = asyncio.get_running_loop(), image
        pull = self._pulls.get(key)
        if pull is None:
            pull = self._pulls[key] = asyncio.ensure_future(self._pull_now(engine, image))
            pull.add_done_callback(lambda done: self._pulls.pop(key, None))
        await asyncio.shield(pull)

    async def _pull_now(self, engine: Engine, image: str) -> None:
        if await self._has_image(engine, image):
            return
        logger.info("pulling the image %s", image)
        began = said = time.monotonic()
        layers: dict[str, str] = {}
        try:
            async for line in engine.lines("/images/create", {"fromImage": image}, silence_s=_PULL_SILENCE_S):
                if "error" in line:
                    raise EngineError(str(line["error"]))
                layers[line.get("id", "")] = line.get("status", "")
                if time.monotonic() - said > _SAY_EVERY_S:
                    said = time.monotonic()
                    done = sum(status in ("Pull complete", "Already exists") for status in layers.values())
                    logger.info("pulling the image %s: %d of %d layers, %.0f s", image, done, len(layers), said - began)
        except EngineError as error:
            raise SandboxError(
                f"the image {image} is not here and could not be pulled: {error}. Name another, or bring it here"
            ) from None
        if not await self._has_image(engine, image):
            raise SandboxError(f"the image {image} was pulled, but the engine does not find it")
        logger.info("pulled the image %s in %.0f s", image, time.monotonic() - began)


class DockerBackend(ContainerBackend):
    name = "docker"
    engine_name = "docker"
    find_hosts = staticmethod(docker_hosts)
    how_to_start = "Start Docker, or say by DOCKER_HOST where it is"


class PodmanBackend(ContainerBackend):
    name = "podman"
    engine_name = "podman"
    find_hosts = staticmethod(podman_hosts)
    how_to_start = "Start it by: podman system service -t 0; or say by CONTAINER_HOST where it is"


class RunscBackend(ContainerBackend):
    """gVisor's runtime, in whichever engine has it: a kernel of its own between a program and this machine's."""

    name = "runsc"

    def __init__(self, *, runtime: str = "runsc", **options: Any) -> None:
        super().__init__(runtime=runtime, **options)


async def _list(engine: Engine, label: str) -> list[dict[str, Any]]:
    return await engine.call(
        "GET", "/containers/json", query={"all": "true", "filters": json.dumps({"label": [label]})}
    )


async def _remove_made(engine: Engine, making: asyncio.Future[str]) -> None:
    """A container that was still being made when nobody wanted it any more."""
    await asyncio.wait([making])
    if not making.cancelled() and making.exception() is None:
        with suppress(EngineError):  # its own end is set, and the next start looks for it
            await remove(engine, making.result())


def _call(method: weakref.WeakMethod[Any]) -> None:
    found = method()
    if found is not None:
        found()
