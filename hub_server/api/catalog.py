"""The catalogue as JSON: lists and search, one environment, its versions, files, differences, lineage."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from hub_server.http import base_url, hub_of, principal
from hub_server.principal import Principal
from hub_server.services import catalog, details, lineage, release_diff, sources
from hub_server.services.catalog import MAX_LIMIT, Card, Facets, Listing, Sort
from hub_server.services.details import Detail, ReleaseDetail, ReleaseInfo
from hub_server.services.install_lines import InstallLines, install_lines
from hub_server.services.lineage import Lineage
from hub_server.services.release_diff import ReleaseDiff
from hub_server.services.sources import MAX_SHOWN_BYTES, Source, SourceFile
from verifiers.archives.own_wheel import own_wheel

router = APIRouter(tags=["catalog"])
Who = Annotated[Principal, Depends(principal)]
_NO_NUL = r"^[^\x00]*$"  # which PostgreSQL's texts cannot hold
Text = Annotated[str | None, Query(max_length=200, pattern=_NO_NUL)]
Tag = Annotated[str, Query(max_length=200, pattern=_NO_NUL)]


@router.get("/projects")
def list_environments(
    request: Request,
    who: Who,
    search: str = "",
    owner: Text = None,
    tag: Annotated[list[Tag] | None, Query()] = None,
    license: Text = None,
    task_type: Text = None,
    starred: bool = False,
    mine: bool = False,
    sort: Sort | None = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 20,
) -> Listing:
    """Environments that one may see. `tag` may be given several times: all must fit. `next` of the answer is `after`
    of the next page."""
    query = catalog.Query(
        search=search,
        owner=owner,
        tags=tuple(tag or ()),
        license=license,
        task_type=task_type,
        starred=starred,
        mine=mine,
        sort=sort,
        after=after,
        limit=limit,
    )
    return catalog.environments(hub_of(request), who, query)


@router.get("/facets")
def count_facets(request: Request, who: Who) -> Facets:
    """What public environments can be filtered by, with the number of each."""
    return catalog.facets(hub_of(request))


@router.get("/projects/{owner}/{name}")
def show_environment(request: Request, who: Who, owner: str, name: str) -> Detail:
    return details.environment(hub_of(request), who, owner, name)


@router.get("/projects/{owner}/{name}/versions")
def list_versions(request: Request, who: Who, owner: str, name: str) -> list[ReleaseInfo]:
    return list(details.releases(hub_of(request), who, owner, name))


@router.get("/projects/{owner}/{name}/versions/{version}")
def show_version(request: Request, who: Who, owner: str, name: str, version: str) -> ReleaseDetail:
    """`version` in any spelling of it, or `latest`."""
    return details.release(hub_of(request), who, owner, name, version)


@router.get("/projects/{owner}/{name}/versions/{version}/files")
def list_members(request: Request, who: Who, owner: str, name: str, version: str) -> Source:
    """The files inside the source archive, or inside the wheel when there is no other."""
    return sources.source(hub_of(request), who, owner, name, version)


@router.get("/projects/{owner}/{name}/versions/{version}/files/{path:path}")
def show_member(
    request: Request,
    who: Who,
    owner: str,
    name: str,
    version: str,
    path: str,
    max_bytes: Annotated[int, Query(ge=1, le=MAX_SHOWN_BYTES)] = 100_000,
) -> SourceFile:
    """One of them, or its beginning."""
    return sources.source_file(hub_of(request), who, owner, name, version, path, max_bytes)


@router.get("/projects/{owner}/{name}/diff")
def compare_versions(request: Request, who: Who, owner: str, name: str, old: str, new: str = "latest") -> ReleaseDiff:
    """What changed in the files from one version to another."""
    return release_diff.release_diff(hub_of(request), who, owner, name, old, new)


@router.get("/projects/{owner}/{name}/lineage")
def show_lineage(request: Request, who: Who, owner: str, name: str) -> Lineage:
    """What it was forked from, and its forks."""
    return lineage.lineage(hub_of(request), who, owner, name)


@router.get("/projects/{owner}/{name}/used-by")
def list_users(request: Request, who: Who, owner: str, name: str) -> list[Card]:
    """Environments whose newest release needs a package of this name."""
    return list(lineage.used_by(hub_of(request), who, owner, name))


@router.get("/projects/{owner}/{name}/install")
def show_install_lines(request: Request, who: Who, owner: str, name: str, version: Text = None) -> InstallLines:
    """The commands that install it from this hub, the newest version or the one that is named."""
    hub = hub_of(request)
    found = details.environment(hub, who, owner, name)
    release = details.release(hub, who, owner, name, version) if version else found.latest
    return install_lines(
        base_url(request),
        found.card.owner,
        found.card.normalized,
        release.info.version if version and release else None,
        private=found.card.visibility == "private" or hub.settings.is_private,
        requires=[need.requirement for need in release.needs] if release else (),
        own_version=own_wheel().version,
    )
