"""`publish`: an environment's folder becomes a release on a hub: built, checked as the hub will check it, sent, and
visible at once as a whole."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from verifiers.archives import ArchiveRefused, Checked, check_pair, check_sdist, check_wheel
from verifiers.build import build
from verifiers.errors import SetupError
from verifiers.hub.client import HubClient, HubError
from verifiers.hub.fetch import index_url, offered
from verifiers.refs import EnvRef

Visibility = Literal["private", "public"]
Say = Callable[[str], None]
PIECE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Release:
    """The two checked files of a version."""

    wheel: Checked
    sdist: Checked
    folder: Path

    @property
    def name(self) -> str:
        return self.wheel.project

    @property
    def version(self) -> str:
        return self.wheel.version

    @property
    def files(self) -> list[Checked]:
        return [self.wheel, self.sdist]


@dataclass(frozen=True, slots=True)
class Published:
    id: str  # owner/name
    version: str
    visibility: str
    content_hash: str | None
    page: str
    index: str  # the package index of this one environment
    files: dict[str, str]  # file name → SHA-256

    @property
    def install_line(self) -> str:
        return f"vf-install {self.id}@{self.version}"


def prepared(spec: str, folder: Path, *, path: str | Path) -> Release:
    """Builds into `folder` and checks both files by the hub's rules. Raises SetupError saying what the hub would."""
    built = build(spec, path=path, output=folder)
    try:
        release = Release(
            check_wheel(built.wheel),
            check_sdist(built.sdist),
            folder,
        )
        check_pair(release.wheel, release.sdist)
    except ArchiveRefused as refused:
        raise SetupError(f"{built.name} {built.version} may not be published: {refused}") from refused
    return release


def publish(
    client: HubClient,
    release: Release,
    owner: str,
    *,
    say: Say = lambda line: None,
) -> Published:
    """Sends both files and makes them one release. Nothing of it is visible before all of it is there.

    A new project is private. Publishing the same files again changes nothing. Raises HubError, also when the version
    is there with other content.
    """
    place = ("projects", owner, release.name, "releases")
    try:
        begun = client.call("POST", *place, json={"version": release.version}, again=True)
    except HubError as error:
        there = _there(client, release, owner) if error.code == "version_exists" else None
        if there is None:
            raise
        say(f"{there.id} {there.version} is published already, with these very files")
        return there
    for file in release.files:
        say(f"sending {file.filename} ({file.size_bytes:,} bytes)")
        path = release.folder / file.filename
        digest = base64.b64encode(bytes.fromhex(file.sha256)).decode()
        client.call(
            "PUT",
            *place,
            begun["id"],
            "files",
            file.filename,
            content=lambda path=path: _pieces(path),
            headers={
                "Content-Digest": f"sha-256=:{digest}:",
                "Content-Length": str(file.size_bytes),
                "Content-Type": "application/octet-stream",
            },
        )
    done = client.call("POST", *place, begun["id"], "finalize", again=True)
    return Published(
        id=f"{done['owner']}/{done['name']}",
        version=done["version"],
        visibility=done["visibility"],
        content_hash=done["content_hash"],
        page=done["url"],
        index=index_url(client.url, EnvRef(done["name"], done["owner"])),
        files=done["files"],
    )


def shown_to(client: HubClient, published: Published, visibility: Visibility) -> Published:
    """Makes the project private or public. Raises HubError, which says that the release itself is there."""
    if visibility == published.visibility:
        return published
    owner, _, name = published.id.partition("/")
    try:
        client.call("PUT", "projects", owner, name, "visibility", json={"visibility": visibility})
    except HubError as error:
        raise HubError(
            f"{published.id} {published.version} is published, but stays {published.visibility}: {error}",
            error.status,
            error.code,
        ) from error
    return replace(published, visibility=visibility)


def _there(client: HubClient, release: Release, owner: str) -> Published | None:
    """The release as the hub has it, if it has the same files."""
    ref = EnvRef(release.name, owner)
    found, _ = offered(client, ref)
    files = {file.filename: file.sha256 for file in found if str(file.version) == release.version}
    if files != {file.filename: file.sha256 for file in release.files}:
        return None
    detail = client.get("projects", owner, release.name)
    card = detail["card"]
    return Published(
        id=f"{card['owner']}/{card['name']}",
        version=release.version,
        visibility=card["visibility"],
        content_hash=release.sdist.content_hash,
        page=f"{client.url}/{card['owner']}/{card['name']}",
        index=index_url(client.url, ref),
        files=files,
    )


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
