"""Tokens of users: made, listed, revoked. The secret is handed over once; what stays is its SHA-256."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from hub_server import tokens
from hub_server.errors import Forbidden, NotFound, Unprocessable
from hub_server.hub import Hub
from hub_server.models import Account, Project, Token, now
from hub_server.principal import SYSTEM, Principal, scope_named
from hub_server.services import access, audit
from hub_server.services.accounts import user_named

MAX_DAYS = 3650
MAX_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class TokenWish:
    """What a new token is to be good for."""

    name: str  # for people, to recognise it: "laptop", "CI of math-env"
    scope: str = "publish"
    owner: str | None = None  # only for what this owner has
    project: str | None = None  # only for this environment, as owner/name
    days: float | None = 90  # None: until it is revoked


@dataclass(frozen=True, slots=True)
class TokenView:
    id: int
    user: str
    name: str
    prefix: str
    scope: str
    owner: str | None
    project: str | None  # owner/name
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None  # to the hour
    state: str  # active, expired, revoked


@dataclass(frozen=True, slots=True)
class NewToken:
    token: str  # shown this once
    view: TokenView


def create_token(hub: Hub, who: Principal, wish: TokenWish) -> NewToken:
    """For oneself. Raises Forbidden for a token that would outlive the one that asks, Unprocessable for wishes that
    make no sense, NotFound for an owner or environment that `who` has no role on."""
    user_id = access.require_whole_token(who)
    with hub.database.write(seen=False) as session:  # nothing that is held says that the token does not exist
        return add_token(session, who, session.get_one(Account, user_id), wish)


def create_token_for(hub: Hub, user: str, wish: TokenWish) -> NewToken:
    """For the operator at the data folder. Raises NotFound, Unprocessable."""
    with hub.database.write(seen=False) as session:
        return add_token(session, SYSTEM, user_named(session, user), wish)


def add_token(session: Session, who: Principal, user: Account, wish: TokenWish) -> NewToken:
    """Within a transaction; `who` is written into the audit log and has been checked by the caller."""
    name = wish.name.strip()
    if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise Unprocessable(f"a token has a name of 1 to {MAX_NAME_CHARS} characters, so that you recognise it later")
    secret = tokens.make()
    token = Token(
        user=user,
        name=name,
        prefix=secret.prefix,
        sha256=secret.sha256,
        scope=scope_named(wish.scope),
        expires_at=_expiry(session, who, wish.days),
    )
    as_user = Principal(user.id, user.name)
    if wish.project is not None:
        token.project = _project(session, as_user, wish.project)
    elif wish.owner is not None:
        owner = token.owner = access.owner_named(session, wish.owner)
        if access.role_on_owner(session, as_user, owner) is None:
            raise NotFound(f"'{user.name}' has no role at '{owner.name}': a token for it would be good for nothing")
    session.add(token)
    session.flush()
    view = _view(token)
    audit.record(
        session, who, "token.create", owner_id=user.id, target=token.prefix, name=name, scope=token.scope,
        only=view.project or view.owner or "",
    )  # fmt: skip
    return NewToken(secret.text, view)


def _expiry(session: Session, who: Principal, days: float | None) -> datetime | None:
    if days is not None and not 0 < days <= MAX_DAYS:
        raise Unprocessable(f"a token lasts for up to {MAX_DAYS} days, or for ever when days is not given")
    expires_at = None if days is None else now() + timedelta(days=days)
    if who.token_id is not None:
        asking = session.get_one(Token, who.token_id).expires_at
        if asking is not None and (expires_at is None or expires_at > asking):
            raise Forbidden(
                f"a token cannot make one that outlives itself: this one ends at {asking:%Y-%m-%d %H:%M} UTC. Sign in "
                "on the hub's pages to make it",
                code="token_outlives",
            )
    return expires_at


def _project(session: Session, as_user: Principal, ref: str) -> Project:
    owner, slash, name = ref.partition("/")
    if not slash:
        raise Unprocessable(f"'{ref[:100]}' is no environment: write owner/name")
    project = access.project_for_reading(session, as_user, owner, name)
    if access.role_on(session, as_user, project) is None:
        raise NotFound(f"'{as_user.name}' has no role on '{ref[:100]}': a token for it would be good for nothing")
    return project


def list_tokens(hub: Hub, who: Principal) -> list[TokenView]:
    """One's own, newest first, with those that have ended."""
    user_id = access.require_whole_token(who)
    with hub.database.read() as session:
        return _views(session, user_id)


def list_tokens_of(hub: Hub, user: str | None) -> list[TokenView]:
    """For the operator: of one user, or of all."""
    with hub.database.read() as session:
        return _views(session, None if user is None else user_named(session, user).id)


def _views(session: Session, user_id: int | None) -> list[TokenView]:
    query = select(Token).options(
        joinedload(Token.user), joinedload(Token.owner), joinedload(Token.project).joinedload(Project.owner)
    )
    if user_id is not None:
        query = query.where(Token.user_id == user_id)
    return [_view(token) for token in session.scalars(query.order_by(Token.id.desc()))]


def revoke_token(hub: Hub, who: Principal, token_id: int) -> None:
    """One's own, or, by an administrator, anybody's; a token of any scope may revoke itself (`vf logout`).

    Every worker refuses it from this commit on. Raises NotFound for another user's, the same as for none at all.
    """
    with hub.database.write() as session:
        if who is not SYSTEM and not (who.token_id is not None and who.token_id == token_id):
            access.require_whole_token(who)
        token = session.get(Token, token_id, options=[joinedload(Token.user)])
        if token is None or not (token.user_id == who.user_id or who.is_admin):
            raise NotFound(f"you have no token {token_id}")
        if token.revoked_at is None:
            token.revoked_at = now()
            audit.record(session, who, "token.revoke", owner_id=token.user_id, target=token.prefix, name=token.name)


def _view(token: Token) -> TokenView:
    is_over = token.expires_at is not None and token.expires_at <= now()
    return TokenView(
        id=token.id,
        user=token.user.name,
        name=token.name,
        prefix=token.prefix,
        scope=token.scope,
        owner=None if token.owner is None else token.owner.name,
        project=None if token.project is None else f"{token.project.owner.name}/{token.project.name}",
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        state="revoked" if token.revoked_at is not None else "expired" if is_over else "active",
    )
