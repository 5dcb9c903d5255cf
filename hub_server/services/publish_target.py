"""`PublishTarget`: where something is published to: whose it becomes, which project and release, and who may.

To somebody without a role, a hidden project and one that is not there look the same.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub_server.errors import BadRequest, Conflict, Forbidden, NotSignedIn
from hub_server.hub import Hub
from hub_server.models import Account, Collaborator, Project, Release, now
from hub_server.principal import Principal
from hub_server.services import audit
from hub_server.services.access import owner_named, role_on, role_on_owner
from hub_server.services.release_rows import spellings
from hub_server.settings import Settings
from verifiers.archives import ultra_normalised
from verifiers.refs import normalised


def owner_of_token(hub: Hub, who: Principal) -> str:
    """Whose `/legacy/` is: the owner that the token is for, else its user. Raises NotSignedIn."""
    if who.user_id is None:
        raise NotSignedIn("sign in first: send a token as the password of the user '__token__'")
    with hub.database.read() as session:
        if who.project_id is not None:
            return session.get_one(Project, who.project_id).owner.name
        return session.get_one(Account, who.owner_id or who.user_id).name


def refuse_strangers(hub: Hub, who: Principal, owner: str) -> None:
    """Asked before a body is read: whoever has no role with this owner at all does not get to use the disk.

    Raises NotSignedIn, NotFound, Forbidden.
    """
    with hub.database.read() as session:
        account = _owner_for_publishing(session, who, owner)
        if role_on_owner(session, who, account) is not None:
            return
        theirs = select(Collaborator).join(Project).where(Project.owner_id == account.id)
        if session.scalar(theirs.where(Collaborator.user_id == who.user_id).limit(1)) is None:
            raise Forbidden(f"you may not publish to '{owner}': you have no role there")


def target_for(
    session: Session, who: Principal, owner: str, name: str, *, lock: bool = False
) -> tuple[Account, Project | None]:
    """Where something is published to: the owner and the project, `None` when this would be its first release.

    Raises NotSignedIn, NotFound for an unknown owner, Forbidden, BadRequest for a name that was deleted. To somebody
    without a role, a hidden project and one that is not there look the same.
    """
    account = _owner_for_publishing(session, who, owner)
    query = select(Project).where(Project.owner_id == account.id, Project.normalized == normalised(name))
    project = session.scalar(query.with_for_update() if lock else query)
    if not who.covers(account.id, None if project is None else project.id):
        raise Forbidden(f"this token is not for '{owner}/{name}'", code="token_elsewhere")
    has = role_on_owner(session, who, account) if project is None else role_on(session, who, project)
    if has is None:
        raise Forbidden(f"you may not publish to '{owner}/{name}': you have no role there")
    if project is None:
        if has != "owner":
            raise Forbidden(f"'{owner}/{name}' is new: only an owner of '{owner}' begins a project, and you are {has}")
        return account, None
    if has == "reader":
        raise Forbidden(f"you may not publish to '{owner}/{name}': that takes a maintainer, and you are {has}")
    if project.deleted_at is not None:
        raise BadRequest(
            f"'{owner}/{name}' was deleted, and a name is never used twice: choose another one", code="name_deleted"
        )
    if project.status in ("archived", "quarantined"):
        raise Forbidden(f"'{owner}/{name}' is {project.status} and takes no files", code=f"project_{project.status}")
    return account, project


def _owner_for_publishing(session: Session, who: Principal, owner: str) -> Account:
    if who.is_anonymous:
        raise NotSignedIn("sign in first: send a token as the password of the user '__token__'")
    if not who.allows("publish"):
        raise Forbidden(f"this token is for '{who.scope}' only; 'publish' is needed", code="token_scope")
    return owner_named(session, owner)


def refuse_alike(session: Session, account: Account, name: str) -> None:
    """Raises Conflict for a new name that reads like another of the owner's, deleted ones included.

    The same name is not meant: it is there when somebody else began it since it was looked for (see `new_project`).
    """
    others = select(Project).where(Project.owner_id == account.id, Project.normalized != normalised(name))
    alike = session.scalar(others.where(Project.ultra_normalized == ultra_normalised(name)).limit(1))
    if alike is not None:
        raise Conflict(
            f"'{name}' reads like '{account.name}/{alike.name}': choose another name", code="name_too_similar"
        )


def new_project(session: Session, who: Principal, account: Account, name: str) -> Project:
    """Private, until its owner says otherwise. Raises Conflict."""
    refuse_alike(session, account, name)
    project = Project(
        owner=account,
        name=name,
        normalized=normalised(name),
        ultra_normalized=ultra_normalised(name),
        visibility="private",
    )
    session.add(project)
    session.flush()  # somebody else may begin it in this moment: an IntegrityError, and the second look sees it
    audit.record(session, who, "project.create", project=project, target=f"{account.name}/{name}")
    return project


def new_release(session: Session, who: Principal, project: Project, version: str) -> Release:
    release = Release(project=project, version=version, published_by_id=who.user_id)
    session.add(release)
    session.flush()
    return release


def release_spelt(session: Session, project: Project, version: str) -> Release | None:
    """The release of this version. Raises Conflict when it is spelt otherwise there, BadRequest when it was deleted."""
    found = session.scalar(
        select(Release).where(Release.project_id == project.id, Release.version.in_(spellings(version))).limit(1)
    )
    if found is None:
        return None
    if found.deleted_at is not None:
        raise BadRequest(
            f"version {found.version} of '{project.name}' was deleted, and a version is never used twice: "
            "publish a new one",
            code="version_deleted",
        )
    if found.version != version:
        raise Conflict(
            f"version {version} of '{project.name}' is there already, as {found.version}", code="version_exists"
        )
    return found


def open_release(session: Session, settings: Settings, project: Project, version: str) -> Release | None:
    """The release if it takes another file, `None` if it is not there yet. Raises Forbidden when it is closed."""
    release = release_spelt(session, project, version)
    if release is None:
        return None
    if release.is_final:
        raise Forbidden(
            f"version {version} of '{project.name}' was published as a whole and takes no more files",
            code="release_final",
        )
    if release.created_at < now() - timedelta(days=settings.release_open_days):
        raise Forbidden(
            f"version {version} of '{project.name}' is older than {settings.release_open_days} days and takes no more "
            "files: publish a new one",
            code="release_closed",
        )
    return release
