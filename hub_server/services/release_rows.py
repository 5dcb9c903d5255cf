"""`ReleaseRows`: how a checked file becomes rows, and what a project says of itself because of its releases."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, canonicalize_version, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from hub_server.errors import NotFound
from hub_server.models import Dependency, File, Project, Release, now
from hub_server.services.search import index_project
from verifiers.archives import Checked

MAX_VERSION = 64  # characters; what the column holds


def spellings(version: str) -> list[str]:
    """All texts that PEP 440 calls equal to this canonical version and that a release could have: 1.0, 1, 1.0.0 …

    >>> spellings("1.0.post1")[:3]
    ['1.post1', '1.0.post1', '1.0.0.post1']
    """
    shortest = canonicalize_version(version)
    release = ".".join(map(str, Version(shortest).release))
    epoch, bang, rest = shortest.rpartition("!")
    tail = rest.removeprefix(release)
    n = (MAX_VERSION - len(shortest)) // 2
    return [f"{epoch}{bang}{release}{'.0' * zeros}{tail}" for zeros in range(n + 1)]


def release_of(session: Session, project: Project, version: str) -> Release:
    """A published release that is there, however its version is spelt. Raises NotFound."""
    try:
        texts = spellings(str(Version(version))) if len(version) <= MAX_VERSION else []
    except InvalidVersion:
        texts = []
    of_project = select(Release).where(
        Release.project_id == project.id, Release.state == "published", Release.deleted_at.is_(None)
    )
    found = session.scalar(of_project.where(Release.version.in_(texts))) if texts else None
    if found is None:
        full = f"{project.owner.name}/{project.name}"
        raise NotFound(f"'{full}' has no version '{version[:MAX_VERSION]}'. Its versions: /{full}")
    return found


def add_file(session: Session, release: Release, checked: Checked) -> File:
    """The row of a file; its bytes are in the storage already."""
    file = File(
        release=release,
        project_id=release.project_id,
        filename=checked.filename,
        kind=checked.kind,
        size_bytes=checked.size_bytes,
        sha256=checked.sha256,
        metadata_sha256=metadata_sha256(checked),
        requires_python=checked.metadata.requires_python,
        members=[[one.path, one.size_bytes, one.sha256, one.executable] for one in checked.members],
    )
    session.add(file)
    return file


def metadata_sha256(checked: Checked) -> str | None:
    """Of a wheel's METADATA, which the index serves by itself; `None` for an sdist."""
    return hashlib.sha256(checked.metadata.raw).hexdigest() if checked.kind == "wheel" else None


def has_same_tags(release: Release, checked: Checked) -> bool:
    """Whether another wheel of the release is for the same interpreters: installers could not choose."""
    wheels = [file.filename for file in release.files if file.kind == "wheel"]
    return checked.kind == "wheel" and any(parse_wheel_filename(name)[3] == checked.name.tags for name in wheels)


def describe_release(session: Session, release: Release, checked: Checked, readme_html: str) -> None:
    """Copies what the file says. A wheel is what is installed, so its word stands; an sdist alone adds the content
    hash, and pyproject.toml, if the wheel does not carry it."""
    metadata = checked.metadata
    if checked.kind == "wheel" or not any(file.kind == "wheel" for file in release.files):
        release.summary = metadata.summary or ""
        release.requires_python = metadata.requires_python
        release.requires_dist = list(metadata.requires_dist)
        release.license = metadata.license or ""
        release.readme_text = metadata.description or ""
        release.readme_html = readme_html
        release.metadata_json = {
            "authors": list(metadata.authors),
            "urls": [list(pair) for pair in metadata.project_urls],
            "keywords": list(metadata.keywords),
            "classifiers": list(metadata.classifiers),
            "license_expression": metadata.license_expression,
            "provides_extra": list(metadata.provides_extra),
            "module": checked.module,
        }
        _set_dependencies(session, release, metadata.requires_dist)
    if checked.content_hash is not None:
        release.content_hash = checked.content_hash
    if checked.environment is not None and (checked.kind == "sdist" or not release.declaration):
        release.declaration = msgspec.to_builtins(checked.environment)
        if checked.environment.publish_answers is not None:  # not said: as the owner set it on the hub
            release.project.publish_answers = checked.environment.publish_answers


def _set_dependencies(session: Session, release: Release, requires_dist: Iterable[str]) -> None:
    by_name: dict[str, list[str]] = {}
    for text in requires_dist:
        by_name.setdefault(canonicalize_name(Requirement(text).name), []).append(text)
    session.flush()  # a new release gets its number
    session.execute(delete(Dependency).where(Dependency.release_id == release.id))
    session.add_all(
        Dependency(release_id=release.id, normalized=name[:100], requirement=", ".join(texts))
        for name, texts in by_name.items()
    )


def rank(version: str, yanked: bool) -> tuple[bool, bool, Version]:
    """The highest is the one to show and to install: not yanked, rather no pre-release, then the newest."""
    parsed = Version(version)
    return not yanked, not parsed.is_prerelease, parsed


def latest_of(session: Session, project: Project) -> Release | None:
    """By the releases as they are now; `None` when there is none, or none any more."""
    alive = session.execute(
        select(Release.id, Release.version, Release.yanked).where(
            Release.project_id == project.id, Release.deleted_at.is_(None), Release.state == "published"
        )
    ).all()
    if not alive:
        return None
    return session.get_one(Release, max(alive, key=lambda row: rank(row.version, row.yanked)).id)


def refresh_project(session: Session, project: Project, *, has_new_release: bool = False) -> None:
    """Finds the latest release anew, copies what lists show of it and brings search up to date. Called whenever a
    release comes, goes or is yanked."""
    session.flush()
    project.latest_release = latest = latest_of(session, project)
    declaration: dict[str, Any] = latest.declaration if latest else {}
    project.summary = latest.summary if latest else ""
    project.tags = list(declaration.get("tags") or [])
    project.task_type = (declaration.get("task_type") or "")[:40]
    if has_new_release:
        project.updated_at = now()
    index_project(session, project)
