"""`publish`: an environment's folder becomes a release on a hub: built, checked as the hub will check it, sent, and
visible at once as a whole."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verifiers.archives import ArchiveRefused, Checked, check_pair, check_sdist, check_wheel
from verifiers.build import build
from verifiers.errors import SetupError
from verifiers.hub.client import HubClient
from verifiers.hub.fetch import index_url
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
    visibility: Visibility | None = None,
    say: Say = lambda line: None,
) -> Published:
    """Sends both files and makes them one release. Nothing of it is visible before all of it is there.

    `visibility`: `None` leaves a project as it is; a new one is private. Raises HubError, also when the version is
    there with other content.
    """
    place = ("projects", owner, release.name, "releases")
    begun = client.call("POST", *place, json={"version": release.version}, again=True)
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
    seen = done["visibility"]
    if visibility is not None and visibility != seen:
        client.call("PUT", "projects", owner, release.name, "visibility", json={"visibility": visibility})
        seen = visibility
    return Published(
        id=f"{done['owner']}/{done['name']}",
        version=done["version"],
        visibility=seen,
        content_hash=done["content_hash"],
        page=done["url"],
        index=index_url(client.url, EnvRef(done["name"], done["owner"])),
        files=done["files"],
    )


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
