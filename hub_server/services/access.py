"""Who may do what: the one place where roles, tokens and visibility become yes or no.

What a principal may not see does not exist for it: every look-up here raises the same NotFound for both. Acting on
what one can see without the right is Forbidden.
"""

from __future__ import annotations

from typing import cast

from sqlalchemy import ColumnElement, and_, false, or_, select
from sqlalchemy.orm import Session, joinedload

from hub_server.errors import Forbidden, NotFound, NotSignedIn
from hub_server.models import Account, Collaborator, Membership, Project
from hub_server.principal import ROLES, Principal, Role, Scope
from verifiers.refs import normalised


def role_on_owner(session: Session, who: Principal, owner: Account) -> Role | None:
    """The role over all projects of this owner: one's own account, or an organisation one belongs to."""
    if who.user_id is None:
        return None
    if owner.id == who.user_id or (who.is_admin and who.scope == "admin"):
        return "owner"
    if owner.kind != "organisation":
        return None
    membership = session.get(Membership, (owner.id, who.user_id))
    return None if membership is None else _role(membership.role)


def role_on(session: Session, who: Principal, project: Project) -> Role | None:
    """The highest of the roles that the owner and the project itself give. The token's limits are not looked at."""
    if who.user_id is None:
        return None
    found: list[Role | None] = [role_on_owner(session, who, project.owner)]
    collaborator = session.get(Collaborator, (project.id, who.user_id))
    found.append(None if collaborator is None else _role(collaborator.role))
    roles: list[Role] = [role for role in found if role is not None]
    return max(roles, key=lambda role: ROLES.index(role)) if roles else None


def readable(who: Principal) -> ColumnElement[bool]:
    """The condition on `Project` that holds for all that `who` may see; join `Account` is not needed."""
    alive = Project.deleted_at.is_(None)
    is_public = and_(Project.visibility == "public", Project.latest_release_id.is_not(None))
    if who.user_id is None:
        return and_(alive, is_public)
    if who.is_admin and who.scope == "admin" and who.owner_id is None and who.project_id is None:
        return alive
    theirs = or_(
        Project.owner_id == who.user_id,
        Project.owner_id.in_(select(Membership.organisation_id).where(Membership.user_id == who.user_id)),
        Project.id.in_(select(Collaborator.project_id).where(Collaborator.user_id == who.user_id)),
    )
    if who.project_id is not None:
        theirs = and_(theirs, Project.id == who.project_id)
    elif who.owner_id is not None:
        theirs = and_(theirs, Project.owner_id == who.owner_id)
    return and_(alive, or_(is_public, theirs)) if who.allows("read") else false()


def owner_named(session: Session, name: str) -> Account:
    """Raises NotFound."""
    found = session.scalar(select(Account).where(Account.name == name.lower()))
    if found is None:
        raise NotFound(f"there is no owner '{name}' on this hub")
    return found


def project_for_reading(session: Session, who: Principal, owner: str, name: str) -> Project:
    """The project `owner/name`, if `who` may see it. Raises NotFound, the same for hidden, deleted and missing."""
    found = session.scalar(
        select(Project)
        .join(Project.owner)
        .where(Account.name == owner.lower(), Project.normalized == normalised(name), readable(who))
        .options(joinedload(Project.owner), joinedload(Project.latest_release))
    )
    if found is None:
        raise NotFound(f"there is no environment '{owner}/{name}' here, or you may not see it")
    return found


def project_for(
    session: Session, who: Principal, owner: str, name: str, *, role: Role, scope: Scope = "admin"
) -> Project:
    """The project, if `who` has at least this role on it through a token of at least this scope.

    Raises NotSignedIn, NotFound when it cannot be seen, Forbidden when it can.
    """
    if who.is_anonymous:
        project_for_reading(session, who, owner, name)
        raise NotSignedIn("sign in first: vf login")
    if (who.project_id is not None or who.owner_id is not None) and not _is_covered(session, who, owner, name):
        raise Forbidden(f"this token is not for '{owner}/{name}'", code="token_elsewhere")
    project = project_for_reading(session, who, owner, name)
    has = role_on(session, who, project)
    if has is None or ROLES.index(has) < ROLES.index(role):
        raise Forbidden(f"you need to be {role} of '{owner}/{name}' for this; you are {has or 'a visitor'}")
    if not who.allows(scope):
        raise Forbidden(f"this token is for '{who.scope}' only; '{scope}' is needed", code="token_scope")
    return project


def _is_covered(session: Session, who: Principal, owner: str, name: str) -> bool:
    account = session.scalar(select(Account).where(Account.name == owner.lower()))
    if account is None:
        return False
    project = session.scalar(
        select(Project).where(Project.owner_id == account.id, Project.normalized == normalised(name))
    )
    return who.covers(account.id, None if project is None else project.id)


def owner_for(session: Session, who: Principal, owner: str, *, role: Role, scope: Scope = "admin") -> Account:
    """The owner, if `who` has at least this role on it. Raises NotSignedIn, NotFound, Forbidden."""
    if who.is_anonymous:
        raise NotSignedIn("sign in first: vf login")
    account = owner_named(session, owner)
    has = role_on_owner(session, who, account)
    if has is None or ROLES.index(has) < ROLES.index(role):
        raise Forbidden(f"you need to be {role} of '{owner}' for this; you are {has or 'no member'}")
    if not who.allows(scope):
        raise Forbidden(f"this token is for '{who.scope}' only; '{scope}' is needed", code="token_scope")
    if not who.covers(account.id, None):
        raise Forbidden(f"this token is not for all of '{owner}'", code="token_elsewhere")
    return account


def require_signed_in(who: Principal, *, scope: Scope) -> int:
    """The user's id. Raises NotSignedIn, Forbidden."""
    if who.user_id is None:
        raise NotSignedIn("sign in first: vf login")
    if not who.allows(scope):
        raise Forbidden(f"this token is for '{who.scope}' only; '{scope}' is needed", code="token_scope")
    return who.user_id


def require_whole_token(who: Principal) -> int:
    """For deeds on oneself: a session, or a token that may do all its user may. The user's id.

    Raises NotSignedIn, Forbidden.
    """
    user_id = require_signed_in(who, scope="admin")
    if who.owner_id is not None or who.project_id is not None:
        raise Forbidden("this token is for one owner or environment only", code="token_elsewhere")
    return user_id


def require_hub_admin(who: Principal) -> None:
    if who.is_anonymous:
        raise NotSignedIn("sign in first: vf login")
    if not (who.is_admin and who.allows("admin") and who.owner_id is None and who.project_id is None):
        raise Forbidden("only an administrator of this hub may do this")


def _role(name: str) -> Role | None:
    return cast("Role", name) if name in ROLES else None
