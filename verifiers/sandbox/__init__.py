"""Places to run programs that a model wrote: the `Sandbox` interface, and what implements it.

Names are loaded when they are first touched.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Capabilities": "sandbox",
    "DockerBackend": "container",
    "ExecResult": "sandbox",
    "Sandbox": "sandbox",
    "SandboxBackend": "sandbox",
    "SandboxProcess": "sandbox",
    "SandboxSpec": "sandbox",
    "SandboxLimits": "limits",
    "KubernetesBackend": "kubernetes",
    "LocalBackend": "local",
    "PodmanBackend": "container",
    "RemoteBackend": "remote",
    "RunscBackend": "container",
    "ScriptedSandboxes": "scripted",
    "open_backend": "backends",
}

__all__ = [
    "Capabilities",
    "DockerBackend",
    "ExecResult",
    "KubernetesBackend",
    "LocalBackend",
    "PodmanBackend",
    "RemoteBackend",
    "RunscBackend",
    "Sandbox",
    "SandboxBackend",
    "SandboxLimits",
    "SandboxProcess",
    "SandboxSpec",
    "ScriptedSandboxes",
    "open_backend",
]

if TYPE_CHECKING:
    from verifiers.sandbox.backends import open_backend
    from verifiers.sandbox.container import DockerBackend, PodmanBackend, RunscBackend
    from verifiers.sandbox.kubernetes import KubernetesBackend
    from verifiers.sandbox.limits import SandboxLimits
    from verifiers.sandbox.local import LocalBackend
    from verifiers.sandbox.remote import RemoteBackend
    from verifiers.sandbox.sandbox import (
        Capabilities,
        ExecResult,
        Sandbox,
        SandboxBackend,
        SandboxProcess,
        SandboxSpec,
    )
    from verifiers.sandbox.scripted import ScriptedSandboxes


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
