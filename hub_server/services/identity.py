"""`Identity`: what `vf whoami` shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import joinedload

from hub_server.errors import NotSignedIn
from hub_server.hub import Hub
from hub_server.models import Account, Membership, Project, Token
from hub_server.principal import Principal


@dataclass(frozen=True, slots=True)
class Belonging:
    organisation: str
    role: str


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    is_admin: bool
    scope: str  # of the token; a session has admin
    owner: str | None  # the token is for this owner only
    project: str | None  # the token is for this environment only, as owner/name
    token_id: int | None  # None: a browser's session
    token_name: str | None
    expires_at: datetime | None
    organisations: list[Belonging]


def identity(hub: Hub, who: Principal) -> Identity:
    """With a token of any scope. Raises NotSignedIn."""
    if who.user_id is None:
        raise NotSignedIn("sign in first: vf login")
    with hub.database.read() as session:
        token = None
        if who.token_id is not None:
            only = joinedload(Token.owner), joinedload(Token.project).joinedload(Project.owner)
            token = session.get_one(Token, who.token_id, options=only)
        belongings = session.execute(
            select(Account.name, Membership.role)
            .join(Membership, Membership.organisation_id == Account.id)
            .where(Membership.user_id == who.user_id)
            .order_by(Account.name)
        )
        project = token.project if token is not None else None
        return Identity(
            name=who.name,
            is_admin=who.is_admin,
            scope=who.scope,
            owner=token.owner.name if token is not None and token.owner is not None else None,
            project=None if project is None else f"{project.owner.name}/{project.name}",
            token_id=who.token_id,
            token_name=None if token is None else token.name,
            expires_at=None if token is None else token.expires_at,
            organisations=[Belonging(*row) for row in belongings],
        )
