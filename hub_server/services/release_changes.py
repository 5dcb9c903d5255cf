"""`ReleaseChanges`: a release that is out is yanked, taken back into the fold, or deleted. Its files never change."""

from __future__ import annotations

from dataclasses import dataclass

from hub_server.errors import Forbidden, Unprocessable
from hub_server.hub import Hub
from hub_server.models import Project, Release, now
from hub_server.principal import Principal
from hub_server.services import audit
from hub_server.services.access import project_for
from hub_server.services.release_rows import refresh_project, release_of

MAX_REASON = 500  # characters


@dataclass(frozen=True, slots=True)
class ReleaseState:
    owner: str
    name: str
    version: str
    yanked: bool
    yanked_reason: str


def yank(hub: Hub, who: Principal, owner: str, name: str, version: str, reason: str = "") -> ReleaseState:
    """Installers pass it over unless its exact version is asked for. Raises NotSignedIn, NotFound, Forbidden."""
    reason = " ".join(reason.split())
    if len(reason) > MAX_REASON:
        raise Unprocessable(f"a reason has at most {MAX_REASON} characters", code="reason_too_long")
    return _set_yanked(hub, who, owner, name, version, True, reason)


def unyank(hub: Hub, who: Principal, owner: str, name: str, version: str) -> ReleaseState:
    """As it was before. Raises NotSignedIn, NotFound, Forbidden."""
    return _set_yanked(hub, who, owner, name, version, False, "")


def delete_release(hub: Hub, who: Principal, owner: str, name: str, version: str) -> None:
    """Takes it out of every page and index, for ever: neither its version nor its file names can be used again.

    For owners, and not by a token that was made for one environment: such a token publishes, from a machine that
    others can reach. Raises NotSignedIn, NotFound, Forbidden.
    """
    with hub.database.write() as session:
        project = project_for(session, who, owner, name, role="owner", scope="admin")
        if who.project_id is not None:
            raise Forbidden("a token for one environment deletes nothing: use another", code="token_elsewhere")
        release = release_of(session, project, version)
        release.deleted_at = now()
        refresh_project(session, project)
        audit.record(session, who, "release.delete", project=project, target=_target(project, release))


def _set_yanked(
    hub: Hub, who: Principal, owner: str, name: str, version: str, yanked: bool, reason: str
) -> ReleaseState:
    with hub.database.write() as session:
        project = project_for(session, who, owner, name, role="maintainer", scope="publish")
        release = release_of(session, project, version)
        if (release.yanked, release.yanked_reason) != (yanked, reason):
            release.yanked, release.yanked_reason = yanked, reason
            refresh_project(session, project)
            action = "release.yank" if yanked else "release.unyank"
            audit.record(session, who, action, project=project, target=_target(project, release), reason=reason)
        return ReleaseState(project.owner.name, project.name, release.version, release.yanked, release.yanked_reason)


def _target(project: Project, release: Release) -> str:
    return f"{project.owner.name}/{project.name}@{release.version}"
