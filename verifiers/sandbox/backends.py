"""`open_backend`: a backend by its name; `survey`: which of them this machine offers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from verifiers.errors import ConfigError, SandboxError, SetupError
from verifiers.sandbox.sandbox import SandboxBackend

# name → module of this package and class in it; imported when asked for
BACKENDS: dict[str, tuple[str, str]] = {
    "auto": ("auto", "AutoBackend"),
    "local": ("local", "LocalBackend"),
    "remote": ("remote", "RemoteBackend"),
    "docker": ("container", "DockerBackend"),
    "podman": ("container", "PodmanBackend"),
    "runsc": ("container", "RunscBackend"),
    "kubernetes": ("kubernetes", "KubernetesBackend"),
}


def open_backend(name: str, **options: Any) -> SandboxBackend:
    """The backend, not started: `capabilities()` tells whether it can run here. Raises ConfigError for another name."""
    if name not in BACKENDS:
        similar = difflib.get_close_matches(name, BACKENDS, n=1)
        hint = f"; did you mean {similar[0]}?" if similar else f"; there are: {', '.join(BACKENDS)}"
        raise ConfigError(f"no sandbox backend {name!r}{hint}")
    module, made = BACKENDS[name]
    return getattr(import_module(f"verifiers.sandbox.{module}"), made)(**options)


def image_options(name: str, image: str | None) -> dict[str, Any]:
    """What a backend is opened with, so that its programs run in that image. Raises ConfigError where it has none."""
    if image is None:
        return {}
    if name == "auto":
        return {"engine_options": {"image": image}}
    if name in ("local", "remote"):
        whose = "the gateway's (vf-sandbox serve --image)" if name == "remote" else "this machine's own system"
        raise ConfigError(f"the image {image!r} is asked for, and programs of the backend {name} run in {whose}")
    return {"image": image}


@dataclass(frozen=True, slots=True)
class Finding:
    """One way to run programs, as it was found on this machine."""

    name: str
    is_offered: bool
    what: str  # the layers, or why it is not offered
    enforced: Mapping[str, str]
    details: list[str]

    @property
    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "offered": self.is_offered,
            "what": self.what,
            "enforced": dict(self.enforced),
            "details": self.details,
        }


async def survey() -> list[Finding]:
    """Every backend, and every level of the local one, tried here."""
    found = [await _examine(f"local level {n}", "local", min_level=n, max_level=n) for n in (3, 2, 1)]
    return found + [await _examine(name, name) for name in BACKENDS if name not in ("auto", "local")]


async def _examine(shown: str, name: str, **options: Any) -> Finding:
    backend = open_backend(name, **options)
    try:
        capabilities = await backend.capabilities()
    except (SetupError, SandboxError) as error:
        return Finding(shown, False, str(error), {}, [])
    finally:
        await backend.close()
    held = ", ".join(f"{limit} {how}" for limit, how in capabilities.enforced.items())
    network = "with or without" if "full" in capabilities.networks else "without"
    details = [held, f"{network} a network", *capabilities.notes]
    return Finding(shown, True, capabilities.level, {**capabilities.enforced}, details)
