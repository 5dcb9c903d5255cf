"""What owners decide about an environment: who sees it, whether it is still cared for, whose it is, that it goes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub_server.errors import Conflict, Forbidden, Unprocessable
from hub_server.hub import Hub
from hub_server.models import Account, Collaborator, Project, Star, Token, now
from hub_server.principal import Principal, Role
from hub_server.services import access, audit
from hub_server.services.search import index_project

VISIBILITIES = ("private", "public")
# What each means for an index is PEP 792's: an archived one takes no uploads, a quarantined one offers no files either.
STATUSES = ("active", "deprecated", "archived", "quarantined")
MAX_REASON_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class ProjectState:
    owner: str
    name: str
    visibility: str
    status: str
    status_reason: str
    publish_answers: bool
    n_stars: int
    is_starred: bool  # by whoever asks
    role: Role | None  # of whoever asks


@dataclass(frozen=True, slots=True)
class Starred:
    owner: str
    name: str
    at: datetime


def state(hub: Hub, who: Principal, owner: str, name: str) -> ProjectState:
    """Raises NotFound."""
    with hub.database.read() as session:
        return _state(session, who, access.project_for_reading(session, who, owner, name))


def set_visibility(hub: Hub, who: Principal, owner: str, name: str, visibility: str) -> ProjectState:
    """By an owner. Raises Unprocessable, NotFound, Forbidden."""
    if visibility not in VISIBILITIES:
        raise Unprocessable(f"'{visibility[:60]}' is no visibility: there are {', '.join(VISIBILITIES)}")
    with hub.database.write() as session:
        project = access.project_for(session, who, owner, name, role="owner")
        before, project.visibility = project.visibility, visibility
        audit.record(
            session, who, "project.visibility", project=project, target=project.name, before=before, now=visibility
        )
        return _state(session, who, project)


def set_status(hub: Hub, who: Principal, owner: str, name: str, status: str, reason: str = "") -> ProjectState:
    """By a maintainer; into quarantine and out of it by an administrator of the hub alone."""
    if status not in STATUSES:
        raise Unprocessable(f"'{status[:60]}' is no status: there are {', '.join(STATUSES)}")
    if len(reason) > MAX_REASON_CHARS or "\0" in reason:
        raise Unprocessable(f"a reason has at most {MAX_REASON_CHARS} characters and no NUL")
    with hub.database.write() as session:
        project = access.project_for(session, who, owner, name, role="maintainer")
        if "quarantined" in (status, project.status):
            access.require_hub_admin(who)
        before, project.status = project.status, status
        project.status_reason = "" if status == "active" else reason.strip()
        audit.record(session, who, "project.status", project=project, target=project.name, before=before, now=status)
        return _state(session, who, project)


def set_publish_answers(hub: Hub, who: Principal, owner: str, name: str, publish: bool) -> ProjectState:
    """`False`: answers and prompts of its test sets stay with those who have a role on it. By an owner."""
    with hub.database.write() as session:
        project = access.project_for(session, who, owner, name, role="owner")
        project.publish_answers = publish
        audit.record(session, who, "project.settings", project=project, target=project.name, publish_answers=publish)
        return _state(session, who, project)


def delete_project(hub: Hub, who: Principal, owner: str, name: str) -> None:
    """Its page, files and results are gone at once; its name stays taken for ever, so that nobody can put something
    else where installers look for it. By an owner, with a token that is not for one environment only."""
    _refuse_project_token(who)
    with hub.database.write() as session:
        project = access.project_for(session, who, owner, name, role="owner")
        project.deleted_at = now()
        _forget_people(session, project)
        index_project(session, project)
        audit.record(session, who, "project.delete", project=project, target=project.name)


def transfer(hub: Hub, who: Principal, owner: str, name: str, to: str) -> ProjectState:
    """By an owner who is owner there too, since that is what beginning a project takes. Collaborators, and tokens for
    this environment, do not go with it; the old name stays taken. Raises Conflict when the new owner has, or had, the
    name."""
    _refuse_project_token(who)
    with hub.database.write() as session:
        project = access.project_for(session, who, owner, name, role="owner")
        target = access.owner_for(session, who, to, role="owner")
        if target.id == project.owner_id:
            raise Conflict(f"'{project.name}' belongs to '{target.name}' already")
        old = project.owner
        audit.record(session, who, "project.transfer", project=project, target=project.name, to=target.name)
        _forget_people(session, project)
        # Coming back to a name that this very project had before is the one way in which a tombstone gives way.
        session.execute(
            delete(Project).where(
                Project.owner_id == target.id,
                Project.moved_to_id == project.id,
                Project.normalized == project.normalized,
            )
        )
        project.owner = target
        try:
            session.flush()
        except IntegrityError:
            raise Conflict(
                f"'{to}' has, or had, an environment of this name or one that looks like it", code="name_taken"
            ) from None
        session.add(_tombstone(project, old))
        session.flush()
        index_project(session, project)
        audit.record(session, who, "project.receive", project=project, target=project.name, by=old.name)
        return _state(session, who, project)


def _tombstone(project: Project, owner: Account) -> Project:
    return Project(
        owner_id=owner.id,
        name=project.name,
        normalized=project.normalized,
        ultra_normalized=project.ultra_normalized,
        deleted_at=now(),
        moved_to_id=project.id,
    )


def _refuse_project_token(who: Principal) -> None:
    if who.project_id is not None:
        raise Forbidden("a token for one environment cannot delete it or give it away", code="token_elsewhere")


def _forget_people(session: Session, project: Project) -> None:
    session.execute(delete(Collaborator).where(Collaborator.project_id == project.id))
    session.execute(
        update(Token).where(Token.project_id == project.id, Token.revoked_at.is_(None)).values(revoked_at=now())
    )


# Stars


def set_star(hub: Hub, who: Principal, owner: str, name: str, is_starred: bool) -> ProjectState:
    """Giving a star twice is giving it once. Any user, on what it sees; not with a token of scope read."""
    access.require_signed_in(who, scope="publish")
    with hub.database.write(seen=False) as session:  # stars are read anew for each page
        project = access.project_for_reading(session, who, owner, name)
        if not who.covers(project.owner_id, project.id):
            raise Forbidden(f"this token is not for '{owner}/{name}'", code="token_elsewhere")
        session.execute(select(Project.id).where(Project.id == project.id).with_for_update())  # they are counted below
        key = (project.id, who.user_id)
        star = session.get(Star, key)
        if is_starred and star is None:
            session.add(Star(project_id=project.id, user_id=who.user_id))
        elif star is not None and not is_starred:
            session.delete(star)
        session.flush()
        project.n_stars = session.scalar(select(func.count()).where(Star.project_id == project.id)) or 0
        return _state(session, who, project)


def starred(hub: Hub, who: Principal) -> list[Starred]:
    """Of whoever asks, newest first; without those that it may not see any more."""
    user_id = access.require_signed_in(who, scope="read")
    with hub.database.read() as session:
        found = session.execute(
            select(Account.name, Project.name, Star.created_at)
            .join(Project, Project.id == Star.project_id)
            .join(Account, Account.id == Project.owner_id)
            .where(Star.user_id == user_id, access.readable(who))
            .order_by(Star.created_at.desc())
        )
        return [Starred(*row) for row in found]


def _state(session: Session, who: Principal, project: Project) -> ProjectState:
    return ProjectState(
        owner=project.owner.name,
        name=project.name,
        visibility=project.visibility,
        status=project.status,
        status_reason=project.status_reason,
        publish_answers=project.publish_answers,
        n_stars=project.n_stars,
        is_starred=who.user_id is not None and session.get(Star, (project.id, who.user_id)) is not None,
        role=access.role_on(session, who, project),
    )
