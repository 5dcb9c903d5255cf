"""Collaborators: users with a role on one environment, besides what its organisation gives."""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.orm import joinedload

from hub_server.errors import NotFound, Unprocessable
from hub_server.hub import Hub
from hub_server.models import Account, Collaborator, Token, now
from hub_server.principal import Principal, role_named
from hub_server.services import access, audit
from hub_server.services.accounts import user_named
from hub_server.services.organisations import Member


def collaborators(hub: Hub, who: Principal, owner: str, name: str) -> list[Member]:
    """For those who have a role on it themselves."""
    with hub.database.read() as session:
        project = access.project_for(session, who, owner, name, role="reader", scope="read")
        found = session.scalars(
            select(Collaborator)
            .join(Collaborator.user)
            .where(Collaborator.project_id == project.id)
            .options(joinedload(Collaborator.user))
            .order_by(Account.name)
        )
        return [Member(c.user.name, c.user.display_name, c.role, c.created_at) for c in found]


def set_collaborator(hub: Hub, who: Principal, owner: str, name: str, user: str, role: str) -> Member:
    """By an owner of the environment. Raises Unprocessable for the role owner, which only organisations share."""
    wanted = role_named(role)
    if wanted == "owner":
        raise Unprocessable(
            "a collaborator is maintainer or reader; for several owners transfer it to an organisation",
            code="unknown_role",
        )
    with hub.database.write() as session:
        project = access.project_for(session, who, owner, name, role="owner")
        member = user_named(session, user)
        if member.id == project.owner_id:
            raise Unprocessable(f"'{member.name}' is the owner of '{project.name}'")
        found = session.get(Collaborator, (project.id, member.id))
        before = "" if found is None else found.role
        if found is None:
            found = Collaborator(project_id=project.id, user=member, role=wanted)
            session.add(found)
        found.role = wanted
        session.flush()
        audit.record(session, who, "collaborator.set", project=project, target=member.name, role=wanted, before=before)
        return Member(member.name, member.display_name, found.role, found.created_at)


def remove_collaborator(hub: Hub, who: Principal, owner: str, name: str, user: str) -> None:
    """By an owner of the environment, or the collaborator. With the role go the user's tokens for it."""
    with hub.database.write() as session:
        is_leaving = who.name == user.strip().lower()
        project = access.project_for(session, who, owner, name, role="reader" if is_leaving else "owner")
        member = user_named(session, user)
        found = session.get(Collaborator, (project.id, member.id))
        if found is None:
            raise NotFound(f"'{member.name}' is no collaborator of '{project.name}'")
        session.delete(found)
        session.execute(
            update(Token)
            .where(Token.project_id == project.id, Token.user_id == member.id, Token.revoked_at.is_(None))
            .values(revoked_at=now())
        )
        audit.record(session, who, "collaborator.remove", project=project, target=member.name, role=found.role)
