"""`CreateSandboxRequest`: what a classic environment asks of a sandbox, and the `SandboxSpec` that it comes to."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Mapping
from typing import Any

from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import SandboxSpec

IDLE = ("", "tail -f /dev/null", "sleep infinity")  # start commands that only keep a container alive
PROCESSES = 256  # of a sandbox: shells, builds and test runs need more than one program does
_DEFAULTS: dict[str, Any] = {
    "name": "sandbox",
    "docker_image": "python:3.11-slim",
    "start_command": "tail -f /dev/null",
    "cpu_cores": 1,
    "memory_gb": 1,
    "disk_size_gb": 5,
    "gpu_count": 0,
    "network": False,
    "timeout_minutes": 60,
    "idle_timeout_minutes": None,
    "files": None,
    "environment_vars": None,
    "secrets": None,
    "labels": (),
    "team_id": None,
    "advanced_configs": None,
}


class CreateSandboxRequest:
    """Fields are attributes that may be set; those of the hosted service that mean nothing here are kept as they are.

    def get_sandbox_request(self, state):
        return self.sandbox_request.model_copy(update={"docker_image": state["info"]["image"]})
    """

    name: str
    docker_image: str | None
    start_command: Any  # a text, or an object with `executable` and `args`
    cpu_cores: float
    memory_gb: float
    disk_size_gb: float | None
    gpu_count: int
    network: bool
    timeout_minutes: float
    idle_timeout_minutes: float | None
    files: dict[str, bytes] | None
    environment_vars: dict[str, str] | None
    secrets: dict[str, str] | None
    labels: list[str]

    def __init__(self, **values: Any) -> None:
        vars(self).update({**_DEFAULTS, "labels": [], **values})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> CreateSandboxRequest:
        values = copy.deepcopy(vars(self)) if deep else vars(self)
        return type(self)(**{**values, **(update or {})})

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return dict(vars(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CreateSandboxRequest) and vars(self) == vars(other)

    def __repr__(self) -> str:
        asked = {name: value for name, value in vars(self).items() if value != _DEFAULTS.get(name)}
        return f"CreateSandboxRequest({', '.join(f'{name}={value!r}' for name, value in asked.items())})"


def spec_of(request: Any, *, key: str, run_id: str, user: str | None) -> SandboxSpec:
    """The sandbox that is asked for, by a request of ours or of the hosted service's own package."""

    def asked(name: str) -> Any:
        value = getattr(request, name, None)
        return _DEFAULTS[name] if value is None else value

    idle_minutes = asked("idle_timeout_minutes")
    return SandboxSpec(
        image=asked("docker_image"),
        files=asked("files") or {},
        env={**(asked("environment_vars") or {}), **(asked("secrets") or {})},
        limits=SandboxLimits(
            memory_mb=max(1, int(asked("memory_gb") * 1024)),
            file_mb=max(1, int(asked("disk_size_gb") * 1024)),
            processes=PROCESSES,
            network=bool(asked("network")),
        ),
        user=user,
        lifetime_s=60.0 * asked("timeout_minutes"),
        idle_s=None if idle_minutes is None else 60.0 * idle_minutes,
        run_id=run_id,
        key=key,
    )


def command_of(request: Any) -> str | None:
    """The start command, as a line of a shell; `None` for one that only keeps a container alive."""
    command = getattr(request, "start_command", None)
    if command is None:
        return None
    if not isinstance(command, str):
        command = shlex.join([str(command.executable), *map(str, getattr(command, "args", None) or ())])
    return None if command.strip() in IDLE else command
