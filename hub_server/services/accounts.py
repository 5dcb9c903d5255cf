"""Users: signing in by name and password, making them, disabling them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, select, update
from sqlalchemy import func as sql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session as Transaction

from hub_server import limits, passwords, tokens
from hub_server.errors import BadRequest, Conflict, Forbidden, NotFound, NotSignedIn
from hub_server.hub import Hub
from hub_server.models import Account, Session, Token, now
from hub_server.principal import SYSTEM, Principal
from hub_server.services import access, audit

# First parts of addresses that are the hub's own: no user and no organisation can be called so.
# fmt: off
RESERVED_OWNERS = frozenset(
    {
        "about", "account", "admin", "api", "audit", "compare", "docs", "environments", "evaluations", "explore",
        "files", "healthz", "help", "install", "legacy", "login", "logout", "metrics", "new", "openapi.json",
        "organisations", "projects", "register", "search", "settings", "simple", "stars", "static", "status",
        "system", "tokens", "users",
    }
)
# fmt: on
_NAME = re.compile(r"[a-z0-9](?:-?[a-z0-9]){1,38}")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    display_name: str
    is_admin: bool
    is_active: bool
    has_password: bool
    created_at: datetime


def sign_in(hub: Hub, name: str, password: str, address: str = "") -> str:
    """The secret of a new session, for the browser's cookie. Raises NotSignedIn, the same for every reason, and
    TooMany after ten tries in five minutes."""
    name = name.strip().lower()
    _count_try(hub, name, address)
    account = None
    if _NAME.fullmatch(name):
        with hub.database.read() as session:
            account = session.scalar(select(Account).where(Account.name == name, Account.kind == "user"))
    password_hash = account.password_hash if account is not None and account.is_active else None
    if not passwords.is_right(password, password_hash) or account is None or password_hash is None:
        raise NotSignedIn("the name or the password is wrong", code="password_wrong")
    renewed = passwords.hashed(password) if passwords.is_outdated(password_hash) else None
    secret = tokens.make("vfs_")
    with hub.database.write(seen=False) as session:  # nothing that is held says that this session does not exist
        session.execute(delete(Session).where(Session.user_id == account.id, Session.expires_at < now()))
        ends = now() + timedelta(days=hub.settings.session_days)
        session.add(Session(sha256=secret.sha256, user_id=account.id, expires_at=ends))
        if renewed is not None:
            session.execute(update(Account).where(Account.id == account.id).values(password_hash=renewed))
        audit.record(
            session, Principal(account.id, account.name, address=address), "session.start", owner_id=account.id
        )
    return secret.text


def _count_try(hub: Hub, name: str, address: str) -> None:
    """Before the password is looked at, right or wrong: guesses sent at the same time all count."""
    client = limits.subject_of(address)
    hub.limiter.spend(limits.SIGN_IN, f"{name} {client}")
    hub.limiter.spend(limits.SIGN_IN_ADDRESS, client)
    hub.limiter.spend(limits.SIGN_IN_NAME, name)


def sign_out(hub: Hub, session_cookie: str) -> None:
    """Ends this session; does nothing when it has ended."""
    with hub.database.write() as session:
        session.execute(delete(Session).where(Session.sha256 == tokens.sha256_of(session_cookie)))


def change_password(hub: Hub, who: Principal, old: str, new: str) -> None:
    """Ends all sessions of the user: whoever knew the old password is out. Raises NotSignedIn when `old` is wrong."""
    user_id = access.require_whole_token(who)
    _count_try(hub, who.name, who.address)
    with hub.database.read() as session:
        account = session.get_one(Account, user_id)
    if not passwords.is_right(old, account.password_hash):
        raise Forbidden("the old password is wrong", code="password_wrong")
    set_password(hub, who.name, new, who=who)


def set_password(hub: Hub, name: str, password: str | None, *, who: Principal = SYSTEM) -> None:
    """For the operator, and `change_password`. `None` takes the password away: tokens only."""
    password_hash = None if password is None else passwords.hashed(password)
    with hub.database.write() as session:
        account = user_named(session, name)
        account.password_hash = password_hash
        session.execute(delete(Session).where(Session.user_id == account.id))
        audit.record(session, who, "user.password", owner_id=account.id, target=account.name)


# Users


def register(hub: Hub, who: Principal, name: str, password: str | None) -> User:
    """A new user, made by an administrator, or by anyone where the hub allows it. Raises NotSignedIn, Forbidden,
    BadRequest, Conflict."""
    if not hub.settings.open_registration:
        access.require_hub_admin(who)
    elif password is None:
        raise BadRequest("choose a password", code="password_length")
    if not who.is_admin:
        hub.limiter.spend(limits.REGISTER, limits.subject_of(who.address))
    return create_user(hub, name, password, who=who)


def create_user(
    hub: Hub, name: str, password: str | None = None, *, is_admin: bool = False, who: Principal = SYSTEM
) -> User:
    """Asks nobody: for the operator and for `register`. Raises BadRequest for a name or password that cannot be,
    Conflict for a name that is taken, be it by an organisation."""
    password_hash = None if password is None else passwords.hashed(password)
    with hub.database.write() as session:
        account = new_account(session, "user", name)
        account.password_hash = password_hash
        account.is_admin = is_admin
        session.flush()
        audit.record(session, who, "user.create", owner_id=account.id, target=account.name, is_admin=is_admin)
        return _user(account)


def new_account(session: Transaction, kind: str, name: str) -> Account:
    """Raises BadRequest, Conflict."""
    name = name.strip().lower()
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"'{name[:60]}' cannot be the name of an owner: 2 to 39 letters a-z, digits and single '-' inside",
            code="bad_name",
        )
    if name in RESERVED_OWNERS:
        raise BadRequest(f"'{name}' is a name that the hub needs itself: choose another", code="reserved_name")
    account = Account(kind=kind, name=name)
    try:
        with session.begin_nested():
            session.add(account)
    except IntegrityError:
        raise Conflict(f"the name '{name}' is taken", code="name_taken") from None
    return account


def list_users(hub: Hub, who: Principal = SYSTEM) -> list[User]:
    """All of them, by name; for administrators."""
    if who is not SYSTEM:
        access.require_hub_admin(who)
    with hub.database.read() as session:
        return [_user(a) for a in session.scalars(select(Account).where(Account.kind == "user").order_by(Account.name))]


def set_active(hub: Hub, name: str, is_active: bool, *, who: Principal = SYSTEM) -> User:
    """Disabling ends a user's sessions at once and stops the tokens; enabling lets the tokens work again."""
    if who is not SYSTEM:
        access.require_hub_admin(who)
    with hub.database.write() as session:
        account = user_named(session, name)
        if not is_active:
            _keep_an_admin(session, account)
            session.execute(delete(Session).where(Session.user_id == account.id))
        account.is_active = is_active
        audit.record(
            session, who, "user.enable" if is_active else "user.disable", owner_id=account.id, target=account.name
        )
        return _user(account)


def _keep_an_admin(session: Transaction, account: Account) -> None:
    others = (
        select(sql.count()).select_from(Account).where(Account.is_admin, Account.is_active, Account.id != account.id)
    )
    if account.is_admin and session.scalar(others) == 0:
        raise Conflict(f"'{account.name}' is the last administrator of this hub: make another one first")


def user_named(session: Transaction, name: str) -> Account:
    """Raises NotFound."""
    found = session.scalar(select(Account).where(Account.name == name.strip().lower(), Account.kind == "user"))
    if found is None:
        raise NotFound(f"there is no user '{name[:60]}' on this hub")
    return found


def _user(account: Account) -> User:
    return User(
        account.name,
        account.display_name,
        account.is_admin,
        account.is_active,
        account.password_hash is not None,
        account.created_at,
    )


@dataclass(frozen=True, slots=True)
class FirstAccount:
    name: str
    token: str


def first_account(hub: Hub, name: str) -> FirstAccount | None:
    """On a hub without accounts: an administrator and a token, to be shown once. `None` when there are any."""
    with hub.database.write() as session:
        if session.scalar(select(Account.id).limit(1)) is not None:
            return None
        account = new_account(session, "user", name)
        account.is_admin = True
        session.flush()
        secret = tokens.make()
        session.add(
            Token(user_id=account.id, name="first token", prefix=secret.prefix, sha256=secret.sha256, scope="admin")
        )
        audit.record(session, SYSTEM, "user.create", owner_id=account.id, target=account.name, is_admin=True)
        return FirstAccount(account.name, secret.text)
