"""Organisations and their members: owners run it, maintainers publish, readers see what is private."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, delete, func, or_, select, update
from sqlalchemy.orm import Session, joinedload

from hub_server.errors import Conflict, Forbidden, NotFound, Unprocessable
from hub_server.hub import Hub
from hub_server.models import Account, Collaborator, Membership, Project, Token, now
from hub_server.principal import ROLES, Principal, Role, Scope, role_named
from hub_server.services import access, audit
from hub_server.services.accounts import new_account, user_named

MAX_DISPLAY_NAME_CHARS = 200
MAX_ABOUT_CHARS = 10_000


@dataclass(frozen=True, slots=True)
class Profile:
    """A user or an organisation as others see it."""

    name: str
    kind: str  # user, organisation
    display_name: str
    about: str
    created_at: datetime
    role: Role | None  # of whoever asks


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    display_name: str
    role: str
    since: datetime


def profile(hub: Hub, who: Principal, owner: str) -> Profile:
    """Raises NotFound."""
    with hub.database.read() as session:
        return _profile(session, who, access.owner_named(session, owner))


def edit_profile(
    hub: Hub, who: Principal, owner: str, *, display_name: str | None = None, about: str | None = None
) -> Profile:
    """`None` leaves as it is. By an owner of it. Raises Unprocessable for what is too long."""
    for what, text, limit in (
        ("display name", display_name, MAX_DISPLAY_NAME_CHARS),
        ("text about it", about, MAX_ABOUT_CHARS),
    ):
        if text is not None and (len(text) > limit or "\0" in text):
            raise Unprocessable(f"the {what} has at most {limit} characters and no NUL")
    with hub.database.write() as session:
        account = access.owner_for(session, who, owner, role="owner")
        account.display_name = account.display_name if display_name is None else display_name.strip()
        account.about = account.about if about is None else about
        audit.record(session, who, "account.edit", owner_id=account.id, target=account.name)
        return _profile(session, who, account)


def create_organisation(hub: Hub, who: Principal, name: str, display_name: str = "") -> Profile:
    """Whoever makes it is its first owner. Raises BadRequest, Conflict."""
    user_id = access.require_whole_token(who)
    with hub.database.write() as session:
        account = new_account(session, "organisation", name)
        account.display_name = display_name.strip()[:MAX_DISPLAY_NAME_CHARS]
        session.flush()
        session.add(Membership(organisation_id=account.id, user_id=user_id, role="owner"))
        session.flush()
        audit.record(session, who, "organisation.create", owner_id=account.id, target=account.name)
        return _profile(session, who, account)


def organisations_of(hub: Hub, who: Principal) -> list[Profile]:
    """Those that `who` belongs to, by name."""
    with hub.database.read() as session:
        found = session.scalars(
            select(Account)
            .join(Membership, Membership.organisation_id == Account.id)
            .where(Membership.user_id == (who.user_id or 0))
            .order_by(Account.name)
        )
        return [_profile(session, who, account) for account in found]


def members(hub: Hub, who: Principal, organisation: str) -> list[Member]:
    """For its members. Raises NotSignedIn, NotFound, Forbidden."""
    with hub.database.read() as session:
        account = _organisation(session, who, organisation, role="reader", scope="read")
        found = session.scalars(
            select(Membership)
            .join(Membership.user)
            .where(Membership.organisation_id == account.id)
            .options(joinedload(Membership.user))
            .order_by(Account.name)
        )
        return [_member(membership) for membership in found]


def set_member(hub: Hub, who: Principal, organisation: str, user: str, role: str) -> Member:
    """Adds a user or changes a role; by an owner. Raises Forbidden for raising one's own role, Conflict for lowering
    the last owner's."""
    wanted = role_named(role)
    with hub.database.write() as session:
        account = _organisation(session, who, organisation, role="owner")
        _lock(session, account)
        member = user_named(session, user)
        membership = session.get(Membership, (account.id, member.id))
        before = None if membership is None else role_named(membership.role)
        if member.id == who.user_id and ROLES.index(wanted) > (-1 if before is None else ROLES.index(before)):
            raise Forbidden("nobody raises their own role: ask another owner of it", code="own_role")
        if before == "owner" and wanted != "owner":
            _keep_an_owner(session, account, member)
        if membership is None:
            membership = Membership(organisation_id=account.id, user=member, role=wanted)
            session.add(membership)
        membership.role = wanted
        session.flush()
        audit.record(
            session, who, "member.set", owner_id=account.id, target=member.name, role=wanted, before=before or ""
        )
        return _member(membership)


def remove_member(hub: Hub, who: Principal, organisation: str, user: str) -> None:
    """By an owner, or the member. With the membership go the roles on the organisation's environments and the tokens
    made for them. Raises Conflict for the last owner."""
    with hub.database.write() as session:
        is_leaving = who.name == user.strip().lower()
        account = _organisation(session, who, organisation, role="reader" if is_leaving else "owner")
        _lock(session, account)
        member = user_named(session, user)
        membership = session.get(Membership, (account.id, member.id))
        if membership is None:
            raise NotFound(f"'{member.name}' is no member of '{account.name}'")
        if membership.role == "owner":
            _keep_an_owner(session, account, member)
        session.delete(membership)
        projects = select(Project.id).where(Project.owner_id == account.id)
        session.execute(
            delete(Collaborator).where(Collaborator.user_id == member.id, Collaborator.project_id.in_(projects))
        )
        revoke_tokens(session, member, account, projects)
        audit.record(session, who, "member.remove", owner_id=account.id, target=member.name, role=membership.role)


def revoke_tokens(session: Session, user: Account, owner: Account, projects: Select[int]) -> None:
    """The user's tokens for this owner or one of these environments, so that none wakes up when the user returns."""
    session.execute(
        update(Token)
        .where(
            Token.user_id == user.id,
            Token.revoked_at.is_(None),
            or_(Token.owner_id == owner.id, Token.project_id.in_(projects)),
        )
        .values(revoked_at=now())
    )


def _organisation(session: Session, who: Principal, name: str, *, role: Role, scope: Scope = "admin") -> Account:
    account = access.owner_for(session, who, name, role=role, scope=scope)
    if account.kind != "organisation":
        raise NotFound(f"'{account.name}' is a user, who has no members: make an organisation for several people")
    return account


def _lock(session: Session, organisation: Account) -> None:
    """Two owners who leave at the same time would each see the other one stay."""
    session.execute(select(Account.id).where(Account.id == organisation.id).with_for_update())


def _keep_an_owner(session: Session, organisation: Account, member: Account) -> None:
    others = session.scalar(
        select(func.count())
        .select_from(Membership)
        .join(Membership.user)
        .where(
            Membership.organisation_id == organisation.id,
            Membership.role == "owner",
            Membership.user_id != member.id,
            Account.is_active,
        )
    )
    if not others:
        raise Conflict(
            f"'{member.name}' is the last owner of '{organisation.name}': make another member owner first",
            code="last_owner",
        )


def _profile(session: Session, who: Principal, account: Account) -> Profile:
    return Profile(
        account.name,
        account.kind,
        account.display_name,
        account.about,
        account.created_at,
        access.role_on_owner(session, who, account),
    )


def _member(membership: Membership) -> Member:
    return Member(membership.user.name, membership.user.display_name, membership.role, membership.created_at)
