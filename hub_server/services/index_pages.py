"""`IndexPages`: the pages of the package index (simple repository API 1.4), rendered once and held as finished bytes.

Three indexes show the same projects: that of one environment, that of an owner, and that of the whole hub. Each also
has the project `verifiers`, with the wheel this hub runs (`own_wheel.py`): environments need that library, and another
one has its name on the public index.
"""

from __future__ import annotations

import hashlib
import html
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec
from packaging.version import InvalidVersion, Version
from sqlalchemy import select
from sqlalchemy.orm import Session

from hub_server.errors import HubError, NotFound
from hub_server.hub import Hub
from hub_server.models import Account, File, Project, Release
from hub_server.principal import Principal
from hub_server.services.access import owner_named, project_for_reading, readable, role_on
from hub_server.services.page_store import PageStore, rights_of
from verifiers.archives.own_wheel import NAME as OWN_NAME
from verifiers.archives.own_wheel import OwnWheel, own_wheel
from verifiers.refs import normalised

API_VERSION = "1.4"
MAX_ADDRESSES = 10  # that the answer to a name with several owners lists
N_TURNS = 32


@dataclass(frozen=True, slots=True)
class At:
    """Whose index it is: `owner` and `env`, `owner` alone, or neither."""

    owner: str | None = None
    env: str | None = None

    def files_of(self, owner: str, name: str) -> str:
        """From `…/simple/NAME/` to where a project's files lie, relative: right under every mount path."""
        if self.env is not None:
            return "../../files"
        return f"../../{name}/files" if self.owner is not None else f"../../{owner}/{name}/files"

    @property
    def own_files(self) -> str:
        """The same for the hub's own wheel."""
        return "../" * (2 + (self.owner is not None) + (self.env is not None)) + "files"


@dataclass(slots=True)
class Page:
    """One page in both of its forms. `is_shared`: everyone is shown the same one."""

    json: bytes
    html: bytes
    is_shared: bool
    answers: dict[Any, Any] = field(default_factory=dict[Any, Any])  # what `api/index.py` makes of it, kept with it


@dataclass(frozen=True, slots=True)
class IndexFile:
    filename: str
    url: str  # relative to the page
    sha256: str
    size_bytes: int
    uploaded_at: datetime
    requires_python: str | None = None
    metadata_sha256: str | None = None  # of a wheel
    yanked: bool = False
    yanked_reason: str = ""
    content_hash: str | None = None  # of a source archive


@dataclass(frozen=True, slots=True)
class _Shown:
    """Which page somebody is shown: found again among the rendered ones, which may have been dropped."""

    page: Hashable
    is_shared: bool


class IndexPages:
    """`held` answers from memory alone and may be called in the event loop; `build` reads the database."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._shown: PageStore[_Shown | HubError] = PageStore(hub.database.freshness)
        self._rendered: PageStore[Page] = PageStore(hub.database.freshness)
        # Each guards the making of some pages: after a commit everyone asks at once, and a list of ten thousand names
        # made forty times side by side takes forty times its memory.
        self._turns = [threading.Lock() for _ in range(N_TURNS)]

    def held(self, who: Principal, at: At, name: str | None) -> Page | None:
        """The page of project `name`, or the list for `None`. Raises what `build` raised."""
        shown = self._shown.get((at, name, None)) if at.env is not None else None
        if not (isinstance(shown, _Shown) and shown.is_shared):
            shown = self._shown.get((at, name, rights_of(who)))
        if isinstance(shown, HubError):
            raise shown.with_traceback(None)
        return None if shown is None else self._rendered.get(shown.page)

    def build(self, who: Principal, at: At, name: str | None) -> Page:
        """Raises NotFound, the same for what is missing and for what `who` may not see."""
        with self._turns[hash((at, name)) % N_TURNS]:
            return self.held(who, at, name) or self._built(who, at, name)

    def _built(self, who: Principal, at: At, name: str | None) -> Page:
        generation = self._shown.generation()
        self._rendered.generation()
        try:
            with self._hub.database.read() as session:
                key, page = self._page(session, who, at, name, generation)
        except NotFound as error:
            self._shown.keep((at, name, rights_of(who)), error, generation)
            raise
        is_for_all = page.is_shared and at.env is not None
        shown = _Shown(key, page.is_shared)
        self._shown.keep((at, name, None if is_for_all else rights_of(who)), shown, generation)
        return page

    def _page(
        self, session: Session, who: Principal, at: At, name: str | None, generation: int
    ) -> tuple[Hashable, Page]:
        """The page, and what it is kept under: that of one project is the same for all who may see it."""
        if name is None:
            names, is_shared = names_at(session, who, at)
            key = ("list", hashlib.sha256("\n".join(names).encode()).digest(), is_shared)
            return key, self._once(key, generation, lambda: list_page(names, is_shared=is_shared))
        if name == OWN_NAME:
            _names, is_shared = names_at(session, who, at) if at.owner else ((), True)
            wheel = own_wheel()
            key = ("own", at.own_files, is_shared)
            return key, self._once(key, generation, lambda: own_page(wheel, at, is_shared))
        project = project_at(session, who, at, name)
        key = ("project", project.id, at.own_files)
        return key, self._once(key, generation, lambda: project_page(session, project, at))

    def _once(self, key: Hashable, generation: int, render: Callable[[], Page]) -> Page:
        page = self._rendered.get(key)
        if page is None:
            page = render()
            self._rendered.keep(key, page, generation, 1_000 + len(page.json) + len(page.html))
        return page


# What is there


def names_at(session: Session, who: Principal, at: At) -> tuple[tuple[str, ...], bool]:
    """The projects of an index by normalised name, ours among them, and whether everyone sees that list."""
    if at.owner is not None and at.env is not None:
        project = project_for_reading(session, who, at.owner, at.env)
        return tuple(sorted({project.normalized, OWN_NAME})), project.visibility == "public"
    wanted = select(Project.normalized).where(readable(who), Project.latest_release_id.is_not(None)).distinct()
    if at.owner is not None:
        wanted = wanted.where(Project.owner_id == owner_named(session, at.owner).id)
    return tuple(sorted({*session.scalars(wanted), OWN_NAME})), False


def project_at(session: Session, who: Principal, at: At, name: str) -> Project:
    """The project that an index has under a name. Raises NotFound."""
    if at.owner is None:
        return _only_project(session, who, name)
    if at.env is not None and name != normalised(at.env):
        project_for_reading(session, who, at.owner, at.env)
        raise NotFound(f"this index has '{normalised(at.env)}' and '{OWN_NAME}' only, not '{name}'")
    return project_for_reading(session, who, at.owner, name)


def _only_project(session: Session, who: Principal, name: str) -> Project:
    """The asker's own project of that name, then one they have a role on, then the only one there is."""
    found = list(
        session.scalars(
            select(Project)
            .join(Project.owner)
            .where(Project.normalized == name, Project.latest_release_id.is_not(None), readable(who))
            .order_by(Account.name)
        )
    )
    own = [project for project in found if project.owner_id == who.user_id]
    mine = own or [project for project in found if not who.is_admin and role_on(session, who, project) is not None]
    candidates = mine or found
    if not candidates:
        raise NotFound(f"there is no environment '{name}' here, or you may not see it")
    if len(candidates) > 1:
        addresses = [f"/{project.owner.name}/{project.normalized}/simple/" for project in candidates]
        more = f" and {len(addresses) - MAX_ADDRESSES} more" if len(addresses) > MAX_ADDRESSES else ""
        raise NotFound(
            f"{len(candidates)} owners have an environment '{name}'. Use the index of the one you mean: "
            + ", ".join(addresses[:MAX_ADDRESSES])
            + more,
            code="several_owners",
        )
    return candidates[0]


# Pages


def project_page(session: Session, project: Project, at: At) -> Page:
    """All published files of a project, those of yanked releases marked; none at all while it is quarantined."""
    rows: Sequence[Any] = ()
    if project.status != "quarantined":
        rows = session.execute(
            select(
                Release.version, Release.yanked, Release.yanked_reason, Release.content_hash, File.filename,
                File.kind, File.size_bytes, File.sha256, File.metadata_sha256, File.requires_python, File.uploaded_at,
            )
            .join(File, File.release_id == Release.id)
            .where(Release.project_id == project.id, Release.state == "published", Release.deleted_at.is_(None))
        ).all()  # fmt: skip
    owner = project.owner.name
    folder = at.files_of(owner, project.normalized)
    files: list[tuple[Version, IndexFile]] = []
    for row in rows:
        files.append(
            (
                version_key(row.version),
                IndexFile(
                    filename=row.filename,
                    url=f"{folder}/{row.sha256}/{quote(row.filename, safe='!+')}",
                    sha256=row.sha256,
                    size_bytes=row.size_bytes,
                    uploaded_at=row.uploaded_at,
                    requires_python=row.requires_python,
                    metadata_sha256=row.metadata_sha256,
                    yanked=row.yanked,
                    yanked_reason=row.yanked_reason,
                    content_hash=row.content_hash if row.kind == "sdist" else None,
                ),
            )
        )
    files.sort(key=lambda pair: (pair[0], pair[1].filename))
    versions = sorted({row.version for row in rows}, key=version_key)
    return rendered_page(
        project.normalized,
        versions,
        [file for _, file in files],
        status=project.status,
        reason=project.status_reason,
        env=f"{owner}/{project.normalized}",
        is_shared=project.visibility == "public" and project.latest_release_id is not None,
    )


def own_page(wheel: OwnWheel, at: At, is_shared: bool) -> Page:
    file = IndexFile(
        filename=wheel.filename,
        url=f"{at.own_files}/{wheel.sha256}/{quote(wheel.filename)}",
        sha256=wheel.sha256,
        size_bytes=len(wheel.content),
        uploaded_at=wheel.installed_at,
        requires_python=wheel.requires_python,
        metadata_sha256=wheel.metadata_sha256,
    )
    return rendered_page(OWN_NAME, [wheel.version], [file], is_shared=is_shared)


def version_key(version: str) -> Version:
    """Sorts versions. All are canonical (the upload refuses others), so that a broken one is our own mistake."""
    try:
        return Version(version)
    except InvalidVersion:
        return Version("0.dev0")


def rendered_page(
    name: str,
    versions: Sequence[str],
    files: Sequence[IndexFile],
    *,
    is_shared: bool,
    status: str = "active",
    reason: str = "",
    env: str | None = None,
) -> Page:
    document: dict[str, Any] = {
        "meta": {"api-version": API_VERSION},
        "name": name,
        "project-status": {"status": status, "reason": reason} if reason else {"status": status},
        "versions": list(versions),
        "files": [_as_json(file) for file in files],
    }
    if env is not None:
        document["_env"] = env
    return Page(msgspec.json.encode(document), _project_html(name, files, status, reason), is_shared)


def _as_json(file: IndexFile) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "filename": file.filename,
        "url": file.url,
        "hashes": {"sha256": file.sha256},
        "size": file.size_bytes,
        "upload-time": file.uploaded_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "yanked": (file.yanked_reason or True) if file.yanked else False,
        "provenance": None,
    }
    if file.requires_python:
        entry["requires-python"] = file.requires_python
    if file.metadata_sha256:
        # The alias as the public index spells it: pip 22.3 to 23.0, Debian 12's among them, ends in a traceback over
        # the one that PEP 658 meant when its value is an object.
        entry["core-metadata"] = entry["data-dist-info-metadata"] = {"sha256": file.metadata_sha256}
    if file.content_hash:
        entry["_content-hash"] = file.content_hash
    return entry


def _project_html(name: str, files: Sequence[IndexFile], status: str, reason: str) -> bytes:
    head = [f'<meta name="pypi:project-status" content="{html.escape(status)}">']
    if reason:
        head.append(f'<meta name="pypi:project-status-reason" content="{html.escape(reason)}">')
    lines = [f"<h1>Links for {html.escape(name)}</h1>"]
    for file in files:
        known: dict[str, str | None] = {
            "href": f"{file.url}#sha256={file.sha256}",
            "data-requires-python": file.requires_python or None,
            "data-core-metadata": f"sha256={file.metadata_sha256}" if file.metadata_sha256 else None,
            "data-dist-info-metadata": f"sha256={file.metadata_sha256}" if file.metadata_sha256 else None,
            "data-yanked": file.yanked_reason if file.yanked else None,
        }
        attributes = " ".join(f'{key}="{html.escape(value)}"' for key, value in known.items() if value is not None)
        lines.append(f"<a {attributes}>{html.escape(file.filename)}</a><br>")
    return _html(f"Links for {name}", head, lines)


def list_page(names: Sequence[str], *, is_shared: bool) -> Page:
    document = {"meta": {"api-version": API_VERSION}, "projects": [{"name": name} for name in names]}
    lines = [f'<a href="{name}/">{name}</a><br>' for name in names]  # normalised names need no escaping
    return Page(msgspec.json.encode(document), _html("Simple index", [], lines), is_shared)


def _html(title: str, head: Sequence[str], lines: Sequence[str]) -> bytes:
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta name="pypi:repository-version" content="{API_VERSION}">',
            *head,
            f"<title>{html.escape(title)}</title>",
            "</head>",
            "<body>",
            *lines,
            "</body>",
            "</html>",
            "",
        ]
    ).encode()
