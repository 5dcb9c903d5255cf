"""Running a release in a sandbox: its wheels are laid out without running anything, then `vf-sandbox` runs it.

Nothing of the package is executed on this side: wheels are unpacked by uv, offline and without builds, into a folder
that no interpreter of the hub ever imports from. Inside there is no network, no secret, and no file of this machine but
the interpreter and what is installed beside the hub.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from sqlalchemy import select

from hub_server.hub import Hub
from hub_server.models import File, Project, Release
from hub_server.settings import Settings
from verifiers.archives.own_wheel import own_wheel
from verifiers.refs import normalised

PROGRAMS = Path(__file__).parents[1] / "inside"
LIMITS = {"memory_mb": 4096, "processes": 256, "file_mb": 1024, "output_kb": 32 << 10}
START_S = 60.0  # of the sandbox itself, on top of what the program may take


class NotPossible(Exception):
    """Why a package cannot be run here, which says nothing about the package: a reason for its page."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program in the sandbox ended."""

    outcome: str  # ok, nonzero-exit, timeout, memory-limit … (docs/sandboxes.md)
    exit_code: int | None
    stdout: str
    stderr: str
    usage: dict[str, Any]  # wall_s, cpu_s, peak_memory_mb


@dataclass(frozen=True, slots=True)
class Packages:
    """What a release needs to be laid out, read from the database in one look."""

    name: str
    version: str
    owner_id: int
    requires: list[str]
    wheel_key: str
    wheel_name: str

    @classmethod
    def of(cls, release: Release) -> Packages:
        wheel = next((file for file in release.files if file.kind == "wheel"), None)
        if wheel is None:
            raise NotPossible("the release has no wheel")
        project = release.project
        return cls(
            project.name,
            release.version,
            project.owner_id,
            list(release.requires_dist),
            f"files/{wheel.sha256}",
            wheel.filename,
        )


def lay_out(hub: Hub, packages: Packages, folder: Path) -> Path:
    """`folder/site` with the package, this hub's own library, and whatever it needs that is not installed beside the
    hub: from the operator's folder of wheels, or another environment of the same owner. Raises NotPossible."""
    wheels, site = folder / "wheels", folder / "site"
    wheels.mkdir()
    own = own_wheel()
    (wheels / own.filename).write_bytes(own.content)
    _fetch(hub, packages.wheel_key, wheels / packages.wheel_name)
    _install(hub.settings, folder, [str(wheels / own.filename), str(wheels / packages.wheel_name)])
    needed = packages.requires
    for _ in range(20):  # each round lays out what the one before asked for
        missing = list(_missing(site, needed))
        if not missing:
            return site
        for requirement in missing:
            _fetch_of_owner(hub, packages.owner_id, requirement, wheels)
        try:
            _install(hub.settings, folder, [str(requirement) for requirement in missing])
        except NotPossible as error:
            names = ", ".join(sorted(str(requirement) for requirement in missing))
            raise NotPossible(
                f"needs packages that are not here: {names[:500]}. The hub's operator may put their wheels into the "
                f"folder that VF_HUB_VALIDATION_WHEELS names ({str(error)[:300]})"
            ) from None
        needed = [text for requirement in missing for text in _requires(site, requirement)]
    raise NotPossible("its dependencies go deeper than 20 levels")


def _fetch(hub: Hub, key: str, target: Path) -> None:
    with target.open("wb") as file:
        for piece in hub.storage.read(key):
            file.write(piece)


def _fetch_of_owner(hub: Hub, owner_id: int, requirement: Requirement, wheels: Path) -> None:
    with hub.database.read() as session:
        found = session.execute(
            select(File.sha256, File.filename, Release.version)
            .join(File.release)
            .join(Project, Project.id == Release.project_id)
            .where(Project.owner_id == owner_id, Project.normalized == normalised(requirement.name))
            .where(File.kind == "wheel", Release.state == "published", Release.deleted_at.is_(None))
        ).all()
    for sha256, filename, version in found:
        if requirement.specifier.contains(version, prereleases=True):
            _fetch(hub, f"files/{sha256}", wheels / filename)


def _install(settings: Settings, folder: Path, what: Iterable[str]) -> None:
    command = [sys.executable, "-I", "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-build", "--no-index"]
    command += ["--no-deps", "--no-config", "--python", sys.executable, "--target", str(folder / "site")]
    command += ["--find-links", str(folder / "wheels")]
    if settings.validation_wheels is not None:
        command += ["--find-links", str(settings.validation_wheels)]
    environment = {**_environment(folder), "UV_CACHE_DIR": str(folder / "cache"), "UV_LINK_MODE": "copy"}
    try:
        done = subprocess.run(
            [*command, *what], env=environment, cwd=folder, capture_output=True, text=True, timeout=300
        )
    except subprocess.TimeoutExpired:
        raise NotPossible("its wheels could not be laid out within 300 s") from None
    if done.returncode:
        said = " ".join(done.stderr.split()).replace(str(folder), "…")
        raise NotPossible(f"its wheels cannot be laid out: {said[:500]}")


def _environment(folder: Path) -> dict[str, str]:
    """Of programs that the worker starts: none of the hub's own settings, which hold passwords."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"}


def _missing(site: Path, needed: Iterable[str]) -> Iterator[Requirement]:
    """Requirements that neither `site` nor what is installed beside the hub fulfils. `verifiers` is always ours."""
    for text in needed:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            raise NotPossible(f"has a dependency that cannot be read: {text[:200]}") from None
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if normalised(requirement.name) == "verifiers":
            continue
        if requirement.url:
            raise NotPossible(f"needs a package by its address, and addresses are not fetched: {requirement.name}")
        found = _distribution(site, requirement.name)
        if found is None or not requirement.specifier.contains(found.version, prereleases=True):
            yield requirement
        else:
            yield from _missing(site, _of_extras(found, requirement.extras))


def _requires(site: Path, requirement: Requirement) -> list[str]:
    found = _distribution(site, requirement.name)
    if found is None:
        return []
    return [*(found.requires or ()), *_of_extras(found, requirement.extras)]


def _of_extras(distribution: metadata.Distribution, extras: Iterable[str]) -> list[str]:
    """What the extras ask for, with their markers settled."""
    found: list[str] = []
    for text in distribution.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is not None and any(marker.evaluate({"extra": extra}) for extra in extras):
            requirement.marker = None
            found.append(str(requirement))
    return found


def _distribution(site: Path, name: str) -> metadata.Distribution | None:
    for path in ([str(site)], None):
        found = metadata.distributions(name=name, path=path) if path else metadata.distributions(name=name)
        for distribution in found:
            return distribution
    return None


def run_inside(
    settings: Settings, folder: Path, arguments: list[str], files: Mapping[str, bytes] | None = None
) -> Ended:
    """Runs the interpreter with `arguments` in a sandbox that holds `folder/site` and `files`. Raises NotPossible when
    no sandbox of the level that the settings ask for is to be had here."""
    packed = folder / "inside.tar"
    with tarfile.open(packed, "w") as tar:
        tar.add(folder / "site", "site-packages", filter=_as_nobody)
        for name, data in {**(files or {}), "arguments.json": json.dumps(arguments).encode()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    limits = {**LIMITS, "wall_s": settings.sandbox_timeout_s}
    command = [sys.executable, "-I", "-m", "verifiers.cli.main", "sandbox", "run", str(PROGRAMS / "start.py")]
    command += ["--stdin", str(packed), "--limits", json.dumps(limits), "--packages", "--json"]
    command += ["--min-level", str(settings.sandbox_min_level)]
    try:
        done = subprocess.run(
            command,
            env=_environment(folder),
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=settings.sandbox_timeout_s + START_S,
        )
    except subprocess.TimeoutExpired:
        raise NotPossible("the sandbox did not end in time") from None
    finally:
        packed.unlink()
    if done.returncode:
        said = " ".join(done.stderr.split())
        raise NotPossible(f"no sandbox can be had on the worker's machine: {said[-500:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    usage = {key: found[key] for key in ("wall_s", "cpu_s", "peak_memory_mb")}
    return Ended(found["class"], found["exit"], found["stdout"], found["stderr"], usage)


def _as_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member if member.isfile() or member.isdir() else None
