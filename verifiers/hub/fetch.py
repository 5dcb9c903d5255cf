"""Fetching a release from a hub: which version, which file, and its bytes, checked before anything unpacks them.

It reads the standard package index of the environment (`/{owner}/{name}/simple/{name}/`, PEP 691 and 700), as uv and
pip do: what they may install and what we install is the same.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from verifiers.errors import EnvironmentNotFound
from verifiers.hub.client import HubClient, HubError, Progress
from verifiers.refs import EnvRef

Kind = Literal["wheel", "sdist"]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file as the index offers it."""

    filename: str
    url: str
    sha256: str
    size_bytes: int | None
    kind: Kind
    version: Version
    requires_python: str | None
    yanked: str | None  # None: not yanked; else the reason, which may be empty

    def runs_on(self, python: str) -> bool:
        try:
            return SpecifierSet(self.requires_python or "").contains(python, prereleases=True)
        except InvalidSpecifier:
            return True


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file of a release on this machine."""

    ref: EnvRef  # with owner and version
    path: Path
    sha256: str
    index_url: str


def index_url(hub_url: str, ref: EnvRef) -> str:
    """The package index that holds this one environment, and our `verifiers` beside it."""
    return f"{hub_url}/{ref.owner}/{ref.distribution}/simple/"


def offered(client: HubClient, ref: EnvRef) -> tuple[list[IndexFile], str]:
    """Every file of the environment, oldest version first, and the project's status. Raises HubNotFound."""
    page = client.simple(index_url(client.url, ref), ref.distribution)
    files = [file for entry in page.get("files", []) if (file := _index_file(entry, client.url, ref)) is not None]
    status = page.get("project-status") or {}
    return sorted(files, key=lambda file: file.version), str(status.get("status") or "active")


def _index_file(entry: dict[str, Any], hub_url: str, ref: EnvRef) -> IndexFile | None:
    """`None` for what is no file of this environment. Name and hash become parts of paths here: they are looked at."""
    name, sha256 = str(entry["filename"]), str(entry.get("hashes", {}).get("sha256"))
    if not _FILENAME.fullmatch(name) or not _SHA256.fullmatch(sha256):
        return None
    try:
        if name.endswith(".whl"):
            kind, (project, version, *_) = "wheel", parse_wheel_filename(name)
        else:
            kind, (project, version) = "sdist", parse_sdist_filename(name)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
    if project != ref.distribution:
        return None
    yanked = entry.get("yanked")
    return IndexFile(
        filename=name,
        url=urljoin(f"{index_url(hub_url, ref)}{ref.distribution}/", entry["url"]),
        sha256=sha256,
        size_bytes=entry.get("size"),
        kind=kind,
        version=version,
        requires_python=entry.get("requires-python"),
        yanked=yanked if isinstance(yanked, str) else "" if yanked else None,
    )


_FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def choose(files: list[IndexFile], ref: EnvRef, kind: Kind, say: Say, python: str | None = None) -> IndexFile:
    """The file to take: of the version asked for, else of the newest that is neither yanked nor a pre-release.

    Raises EnvironmentNotFound naming the versions that there are.
    """
    python = python or platform.python_version()
    of_kind = [file for file in files if file.kind == kind]
    if ref.version is not None:
        return _of_version(of_kind, ref, kind, say)
    fitting = [file for file in of_kind if file.runs_on(python)]
    if not fitting and of_kind:
        needs = of_kind[-1].requires_python
        raise EnvironmentNotFound(f"no release of '{ref.id}' runs on Python {python}; the newest asks for {needs}")
    usable = [file for file in fitting if file.yanked is None]
    final = [file for file in usable if not file.version.is_prerelease]
    if not (final or usable):
        there = "all its releases are yanked" if fitting else f"it has no {kind} yet"
        raise EnvironmentNotFound(f"'{ref.id}' cannot be fetched: {there}")
    return (final or usable)[-1]


def _of_version(files: list[IndexFile], ref: EnvRef, kind: Kind, say: Say) -> IndexFile:
    try:
        wanted = Version(ref.version or "")
    except InvalidVersion:
        raise EnvironmentNotFound(f"'{ref.version}' is no version: write it as {ref.id}@1.2.0") from None
    found = next((file for file in reversed(files) if file.version == wanted), None)
    if found is None:
        versions = ", ".join(dict.fromkeys(str(file.version) for file in reversed(files))) or "none"
        raise EnvironmentNotFound(f"'{ref.id}' has no {kind} of version {ref.version} (there are: {versions})")
    if found.yanked is not None:
        reason = f": {found.yanked}" if found.yanked else ""
        say(f"warning: {ref} was yanked by its author{reason}")
    return found


def fetch(
    client: HubClient,
    ref: EnvRef,
    *,
    kind: Kind = "wheel",
    folder: Path | None = None,
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> Fetched:
    """Brings a release's file to this machine, into `folder` or the cache. Raises HubError and EnvironmentNotFound."""
    if ref.owner is None:
        raise HubError(f"'{ref}' names no owner: write owner/{ref.name}")
    ref = replace(ref, owner=ref.owner.lower())  # as hubs write owners; the cache's path tells whose it is
    files, status = offered(client, ref)
    if status == "quarantined":
        raise HubError(f"'{ref.id}' is in quarantine on {client.url}: it may be harmful and is not handed out")
    file = choose(files, ref, kind, say)
    if status == "deprecated":
        say(f"warning: '{ref.id}' is deprecated by its author")
    place = folder or cache_folder(client.url, ref) / file.sha256[:16]
    place.mkdir(parents=True, exist_ok=True)
    target = place / file.filename
    if not _is_there(target, file.sha256):
        say(f"fetching {ref.id} {file.version} from {client.url}")
        client.download(file.url, target, sha256=file.sha256, size=file.size_bytes, progress=progress)
    found = EnvRef(ref.name, ref.owner, str(file.version))
    return Fetched(found, target, file.sha256, index_url(client.url, ref))


def cache_folder(hub_url: str, ref: EnvRef) -> Path:
    """Where an owner's files of a hub are kept. The path says where an installed environment came from."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "verifiers" / "hub" / urlsplit(hub_url).netloc.replace(":", "_") / str(ref.owner)


def _is_there(path: Path, sha256: str) -> bool:
    import hashlib

    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256
