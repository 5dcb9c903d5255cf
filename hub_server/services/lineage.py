"""`Lineage`: what an environment was forked from, what was forked from it, and which environments need it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import and_, select
from sqlalchemy.orm import Session, joinedload

from hub_server.hub import Hub
from hub_server.models import Account, Dependency, Project, Release
from hub_server.principal import Principal
from hub_server.services.access import project_for_reading, readable
from hub_server.services.catalog import Card, as_card, cards

MAX_ANCESTORS = 20
MAX_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Ancestor:
    """An environment further up. `ref` is `None` where whoever asks may not see it; what lies above is not told."""

    ref: str | None  # owner/name
    version: str | None  # that was forked


@dataclass(frozen=True, slots=True)
class Lineage:
    ancestors: tuple[Ancestor, ...]  # the parent first
    forks: tuple[Card, ...]  # direct ones that whoever asks may see, the oldest first, up to 100


def lineage(hub: Hub, who: Principal, owner: str, name: str) -> Lineage:
    """Raises NotFound."""
    with hub.database.read() as session:
        project = project_for_reading(session, who, owner, name)
        rows = session.execute(
            cards().where(Project.forked_from_id == project.id, readable(who)).order_by(Project.id).limit(MAX_SHOWN)
        ).all()
        return Lineage(_ancestors(session, who, project), tuple(map(as_card, rows)))


def _ancestors(session: Session, who: Principal, project: Project) -> tuple[Ancestor, ...]:
    found: list[Ancestor] = []
    child = project
    while child.forked_from_id is not None and len(found) < MAX_ANCESTORS:
        parent = session.scalar(
            select(Project).where(Project.id == child.forked_from_id, readable(who)).options(joinedload(Project.owner))
        )
        if parent is None:
            return (*found, Ancestor(None, None))
        found.append(Ancestor(f"{parent.owner.name}/{parent.name}", child.forked_from_version))
        child = parent
    return tuple(found)


def used_by(hub: Hub, who: Principal, owner: str, name: str) -> tuple[Card, ...]:
    """Environments whose newest release needs a package of this name, the most starred first, up to 100. A name has
    no owner for an installer, so that another environment of the same name may be meant. Raises NotFound."""
    with hub.database.read() as session:
        project = project_for_reading(session, who, owner, name)
        users = select(Dependency.release_id).where(Dependency.normalized == project.normalized)
        # The second condition follows from the first. By it the projects are found by their key; without it every
        # project of the hub is read.
        of_users = select(Release.project_id).where(Release.id.in_(users))
        is_user = and_(Project.latest_release_id.in_(users), Project.id.in_(of_users))
        rows = session.execute(
            cards()
            .where(is_user, Project.id != project.id, readable(who))
            .order_by(Project.n_stars.desc(), Account.name, Project.normalized)
            .limit(MAX_SHOWN)
        ).all()
        return tuple(map(as_card, rows))
