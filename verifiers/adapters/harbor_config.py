"""`TaskFile`: what may stand in a Harbor task's task.toml, in its present and its older spellings.

What is not read here is kept nevertheless: `HarborTask.config` is the whole file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SIZE = re.compile(r"\s*([\d.]+)\s*([GMK])B?\s*", re.IGNORECASE)
_MB_OF = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}

NetworkMode = Literal["public", "no-network", "allowlist"]


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox for it needs. `None`: the provider's own default."""

    docker_image: str | None = None  # None: to be built
    os: Literal["linux", "windows"] = "linux"
    workdir: str | None = None
    env: dict[str, str] = {}  # values may name variables of the host: ${NAME}, ${NAME:-default}
    build_timeout_s: float = 600.0
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] = ()  # empty: any
    network_mode: NetworkMode = "public"
    allowed_hosts: tuple[str, ...] = ()
    mcp_servers: tuple[dict[str, Any], ...] = ()
    healthcheck: dict[str, Any] | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The table [environment], or [verifier.environment]."""

    docker_image: str | None = None
    os: str = "linux"
    workdir: str | None = None
    env: dict[str, str] = {}
    build_timeout_sec: float = 600.0
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] | None = None
    network_mode: NetworkMode | None = None
    allowed_hosts: tuple[str, ...] | None = None
    allow_internet: bool | None = None  # older: network_mode
    memory: str | None = None  # older: memory_mb, as in "2G"
    storage: str | None = None  # older: storage_mb
    mcp_servers: tuple[dict[str, Any], ...] = ()
    healthcheck: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        _positive("build_timeout_sec", self.build_timeout_sec)
        for name in ("cpus", "memory_mb", "storage_mb"):
            _positive(name, getattr(self, name))
        if self.allowed_hosts and self.network_mode != "allowlist":
            raise ValueError("allowed_hosts needs network_mode = 'allowlist'")

        self.container()

    def container(self) -> Container:
        """Raises ValueError for what does not go together."""
        system: Any = self.os.lower()
        if system not in ("linux", "windows"):
            raise ValueError(f"os is 'linux' or 'windows', not {self.os!r}")
        legacy = None if self.allow_internet is None else "public" if self.allow_internet else "no-network"
        return Container(
            docker_image=self.docker_image,
            os=system,
            workdir=self.workdir,
            env=self.env,
            build_timeout_s=self.build_timeout_sec,
            cpus=self.cpus,
            memory_mb=_megabytes("memory", self.memory, self.memory_mb),
            storage_mb=_megabytes("storage", self.storage, self.storage_mb),
            gpus=self.gpus,
            gpu_types=self.gpu_types or (),
            network_mode=self.network_mode or legacy or "public",
            allowed_hosts=self.allowed_hosts or (),
            mcp_servers=self.mcp_servers,
            healthcheck=self.healthcheck,
        )


class Agent(msgspec.Struct, frozen=True):
    timeout_sec: float | None = None
    user: str | int | None = None

    def __post_init__(self) -> None:
        _positive("timeout_sec", self.timeout_sec)


class Verifier(msgspec.Struct, frozen=True):
    timeout_sec: float = 600.0
    user: str | int | None = None
    env: dict[str, str] = {}
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None

    def __post_init__(self) -> None:
        _positive("timeout_sec", self.timeout_sec)
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError("environment_mode = 'shared' leaves no use for [verifier.environment]")

    @property
    def is_separate(self) -> bool | None:
        """Whether the tests have a container of their own; None: not said here."""
        if self.environment_mode is not None:
            return self.environment_mode == "separate"
        return True if self.environment is not None else None


class Step(msgspec.Struct, frozen=True):
    """One of [[steps]]."""

    name: str
    agent: Agent = msgspec.field(default_factory=Agent)
    verifier: Verifier = msgspec.field(default_factory=Verifier)
    min_reward: float | dict[str, float] | None = None

    def __post_init__(self) -> None:
        if not self.name.strip() or self.name in (".", "..") or set(self.name) & set("/\\\0"):
            raise ValueError(f"a step's name is that of its folder in steps/, not {self.name!r}")


class Package(msgspec.Struct, frozen=True):
    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or ".." in self.name:
            raise ValueError(f"a task's name is like org/name, not {self.name!r}")


class Solution(msgspec.Struct, frozen=True):
    env: dict[str, str] = {}


class TaskFile(msgspec.Struct, frozen=True):
    task: Package | None = None
    environment: Environment = msgspec.field(default_factory=Environment)
    agent: Agent = msgspec.field(default_factory=Agent)
    verifier: Verifier = msgspec.field(default_factory=Verifier)
    solution: Solution = msgspec.field(default_factory=Solution)
    steps: tuple[Step, ...] = ()
    multi_step_reward_strategy: Literal["mean", "final"] | None = None

    def __post_init__(self) -> None:
        names = [step.name.casefold() for step in self.steps]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two steps are called '{twice[0]}'")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> TaskFile:
        """Raises ValueError that names the field."""
        return msgspec.convert(config, cls)


def _positive(name: str, value: float | None) -> None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a number above 0, not {value}")


def _megabytes(name: str, older: str | None, value: int | None) -> int | None:
    """Raises ValueError for a size that is none, or two that differ."""
    if older is None:
        return value
    size = _SIZE.fullmatch(older)
    if size is None:
        raise ValueError(f"{name} is a size like '2G' or '512M', not {older!r}")
    megabytes = int(float(size[1]) * _MB_OF[size[2].upper()])
    if value not in (None, megabytes):
        raise ValueError(f"{name} = {older!r} and {name}_mb = {value} differ; leave out the first")
    return megabytes
