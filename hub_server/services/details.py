"""`Detail`: all that the hub knows of one environment and its releases, for whoever may see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, defer, joinedload, selectinload

from hub_server.hub import Hub
from hub_server.models import Account, Dependency, File, Project, Release, Star
from hub_server.principal import Principal, Role
from hub_server.services.access import project_for_reading, readable, role_on
from hub_server.services.catalog import Card, as_card, cards
from hub_server.services.index_pages import version_key
from hub_server.services.release_rows import release_of
from verifiers.archives.own_wheel import NAME as OWN_NAME

_TEXTS = ("readme_html", "readme_text", "metadata_json", "declaration")


@dataclass(frozen=True, slots=True)
class FileInfo:
    filename: str
    kind: str  # wheel, sdist
    size_bytes: int
    sha256: str
    path: str  # from the root of the hub, with a slash at its beginning
    requires_python: str | None
    uploaded_at: datetime
    n_downloads: int


@dataclass(frozen=True, slots=True)
class ReleaseInfo:
    """One version, as a list of versions shows it."""

    version: str
    created_at: datetime
    published_by: str | None
    is_latest: bool  # the one that is shown and installed when none is named
    is_prerelease: bool
    yanked: bool
    yanked_reason: str
    requires_python: str | None
    content_hash: str | None
    files: tuple[FileInfo, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """A package that a release needs. `environments`: those of this hub that have its name, and may be meant."""

    requirement: str
    normalized: str
    is_library: bool  # our own `verifiers`, which every index of this hub has
    environments: tuple[str, ...]  # owner/name


@dataclass(frozen=True, slots=True)
class ReleaseDetail:
    info: ReleaseInfo
    summary: str
    license: str
    needs: tuple[Need, ...]
    required_keys: tuple[str, ...]  # environment variables to set; their values never reach the hub
    declaration: dict[str, Any]  # [tool.verifiers] of the package
    metadata: dict[str, Any]  # authors, urls, keywords, classifiers
    readme_html: str  # cleaned
    readme_text: str


@dataclass(frozen=True, slots=True)
class Detail:
    card: Card
    status_reason: str
    publish_answers: bool
    role: Role | None  # of whoever asks
    is_starred: bool
    forked_from: str | None  # owner/name, when whoever asks may see that
    forked_from_version: str | None
    latest: ReleaseDetail | None
    releases: tuple[ReleaseInfo, ...]  # the newest version first


def environment(hub: Hub, who: Principal, owner: str, name: str) -> Detail:
    """Raises NotFound, the same for what is missing and for what `who` may not see."""
    with hub.database.read() as session:
        project = project_for_reading(session, who, owner, name)
        row = session.execute(cards().where(Project.id == project.id)).one()
        releases = _releases(session, project)
        latest = next((release for release in releases if release.id == project.latest_release_id), None)
        forked_from = None
        if project.forked_from_id is not None:
            parent = session.scalar(
                select(Project)
                .where(Project.id == project.forked_from_id, readable(who))
                .options(joinedload(Project.owner))
            )
            forked_from = f"{parent.owner.name}/{parent.name}" if parent is not None else None
        return Detail(
            card=as_card(row),
            status_reason=project.status_reason,
            publish_answers=project.publish_answers,
            role=role_on(session, who, project),
            is_starred=who.user_id is not None and session.get(Star, (project.id, who.user_id)) is not None,
            forked_from=forked_from,
            forked_from_version=project.forked_from_version if forked_from else None,
            latest=None if latest is None else _release_detail(session, who, project, latest),
            releases=tuple(_release_info(project, release) for release in releases),
        )


def releases(hub: Hub, who: Principal, owner: str, name: str) -> tuple[ReleaseInfo, ...]:
    """The published ones, yanked ones among them, the newest version first. Raises NotFound."""
    with hub.database.read() as session:
        project = project_for_reading(session, who, owner, name)
        return tuple(_release_info(project, release) for release in _releases(session, project))


def release(hub: Hub, who: Principal, owner: str, name: str, version: str) -> ReleaseDetail:
    """`version` in any spelling, or `latest`. Raises NotFound."""
    with hub.database.read() as session:
        project = project_for_reading(session, who, owner, name)
        return _release_detail(session, who, project, release_named(session, project, version))


def release_named(session: Session, project: Project, version: str) -> Release:
    """A published release by its version, in any spelling of it, or by the word `latest`. Raises NotFound."""
    latest = project.latest_release if version == "latest" else None
    if latest is not None and latest.state == "published" and latest.deleted_at is None:
        return latest
    return release_of(session, project, version)


def _releases(session: Session, project: Project) -> list[Release]:
    found = session.scalars(
        select(Release)
        .where(Release.project_id == project.id, Release.state == "published", Release.deleted_at.is_(None))
        .options(
            # What only one release's page shows stays behind: of five hundred releases it is megabytes.
            *(defer(getattr(Release, name)) for name in _TEXTS),
            selectinload(Release.files).defer(File.members),
            joinedload(Release.published_by).load_only(Account.name),
        )
    ).all()
    return sorted(found, key=lambda release: version_key(release.version), reverse=True)


def _release_info(project: Project, release: Release) -> ReleaseInfo:
    return ReleaseInfo(
        version=release.version,
        created_at=release.created_at,
        published_by=release.published_by.name if release.published_by else None,
        is_latest=release.id == project.latest_release_id,
        is_prerelease=version_key(release.version).is_prerelease,
        yanked=release.yanked,
        yanked_reason=release.yanked_reason,
        requires_python=release.requires_python,
        content_hash=release.content_hash,
        files=tuple(_file_info(project, file) for file in release.files),
    )


def _file_info(project: Project, file: File) -> FileInfo:
    return FileInfo(
        filename=file.filename,
        kind=file.kind,
        size_bytes=file.size_bytes,
        sha256=file.sha256,
        path=f"/{project.owner.name}/{project.normalized}/files/{file.sha256}/{file.filename}",
        requires_python=file.requires_python,
        uploaded_at=file.uploaded_at,
        n_downloads=file.n_downloads,
    )


def _release_detail(session: Session, who: Principal, project: Project, release: Release) -> ReleaseDetail:
    session.refresh(release, _TEXTS)
    declaration = release.declaration or {}
    return ReleaseDetail(
        info=_release_info(project, release),
        summary=release.summary,
        license=release.license,
        needs=_needs(session, who, release),
        required_keys=tuple(map(str, declaration.get("required_keys") or ())),
        declaration=declaration,
        metadata=release.metadata_json or {},
        readme_html=release.readme_html,
        readme_text=release.readme_text,
    )


def _needs(session: Session, who: Principal, release: Release) -> tuple[Need, ...]:
    rows = session.execute(
        select(Dependency.normalized, Dependency.requirement)
        .where(Dependency.release_id == release.id)
        .order_by(Dependency.normalized)
    ).all()
    here: dict[str, list[str]] = {}
    for owner, name, normalized in session.execute(
        select(Account.name, Project.name, Project.normalized)
        .join(Project, Project.owner_id == Account.id)
        .where(Project.normalized.in_([row.normalized for row in rows]), readable(who))
        .order_by(Account.name)
        .limit(100)
    ):
        here.setdefault(normalized, []).append(f"{owner}/{name}")
    return tuple(
        Need(row.requirement, row.normalized, row.normalized == OWN_NAME, tuple(here.get(row.normalized, ())))
        for row in rows
    )
