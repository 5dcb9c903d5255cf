"""Which release an evaluation is of: told by what was installed where it ran, never by a version number alone.

The wheel's SHA-256 says it, or, where an installer kept none, the hash over the installed files (`files:…`).
"""

from __future__ import annotations

import hashlib

from packaging.version import InvalidVersion, Version
from sqlalchemy import select
from sqlalchemy.orm import Session

from hub_server.errors import Unprocessable
from hub_server.models import File, Project, Release

_WRITTEN_BY_INSTALLER = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")


def bound_release(session: Session, project: Project, version: str | None, wheel: str | None) -> Release:
    """The release that was run. Raises Unprocessable naming what does not fit."""
    if version is None or wheel is None or wheel.startswith("source:"):
        raise Unprocessable(
            "the run names no version and wheel of the environment, so it cannot be bound to a release. Install it by "
            f"vf-install {project.owner.name}/{project.name}, or push it as dirty",
            code="not_bound",
        )
    try:
        canonical = str(Version(version))
    except InvalidVersion:
        raise Unprocessable(f"'{version}' is no version", code="unknown_version") from None
    release = session.scalar(
        select(Release)
        .where(Release.project_id == project.id, Release.version == canonical, Release.state == "published")
        .where(Release.deleted_at.is_(None))
    )
    if release is None:
        raise Unprocessable(
            f"{project.owner.name}/{project.name} has no version {canonical} on this hub: publish it first, or push "
            "the run as dirty",
            code="unknown_version",
        )
    wheels = [file for file in release.files if file.kind == "wheel"]
    if not any(wheel in (file.sha256, files_hash(file)) for file in wheels):
        raise Unprocessable(
            f"what was run as {canonical} has another content than the hub's wheel ({wheel[:20]}…): "
            "it is another build or an edited copy. Run the published one, or push the run as dirty",
            code="other_wheel",
        )
    return release


def files_hash(wheel: File) -> str:
    """What `verifiers` says of a copy in site-packages that was installed from an index: the hash over its files.

    Equal to `EnvInfo.wheel_sha256` of such a copy as long as the wheel has no scripts and no `.data` folder.
    """
    digest = hashlib.sha256()
    for path, _, sha256, *_rest in sorted(wheel.members):
        if path.rpartition("/")[2] not in _WRITTEN_BY_INSTALLER and not path.endswith((".pyc", "/")):
            digest.update(f"{path}\0{sha256}\n".encode())
    return f"files:{digest.hexdigest()}"
