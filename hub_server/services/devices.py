"""`vf login`: a program shows a code, its user allows it on the hub's page, the program gets a token (after RFC 8628).

The program keeps a long secret; the short code that people compare can only be allowed, never turned into a token.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from hub_server import limits, tokens
from hub_server.errors import BadRequest, Forbidden, NotFound, TooMany, Unprocessable
from hub_server.hub import Hub
from hub_server.models import Account, Device, now
from hub_server.principal import Principal, scope_named
from hub_server.services import access
from hub_server.services.access_tokens import NewToken, TokenWish, add_token

LIFETIME_S = 600
INTERVAL_S = 3
TOKEN_DAYS = 365
MAX_NAME_CHARS = 80

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels, so that no words appear, and none that looks like a digit


@dataclass(frozen=True, slots=True)
class Started:
    device_code: str  # the program's secret
    user_code: str  # for people: BCDF-GHJK
    interval_s: int  # between two questions
    expires_in_s: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the user is asked to allow."""

    user_code: str
    client_name: str
    scope: str
    address: str
    expires_at: datetime


def start(hub: Hub, client_name: str, scope: str, address: str) -> Started:
    """Raises TooMany, Unprocessable."""
    hub.limiter.spend(limits.DEVICE, limits.subject_of(address))
    name = client_name.strip()
    if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise Unprocessable(f"client_name says in 1 to {MAX_NAME_CHARS} characters what asks, such as 'vf on laptop'")
    secret = tokens.make("vfd_")
    letters = "".join(secrets.choice(_LETTERS) for _ in range(8))
    device = Device(
        sha256=secret.sha256,
        user_code=f"{letters[:4]}-{letters[4:]}",
        client_name=name,
        scope=scope_named(scope),
        address=address,
        expires_at=now() + timedelta(seconds=LIFETIME_S),
    )
    with hub.database.write(seen=False) as session:
        session.execute(delete(Device).where(Device.expires_at < now()))
        session.add(device)
    return Started(secret.text, device.user_code, INTERVAL_S, LIFETIME_S)


def waiting(hub: Hub, who: Principal, user_code: str) -> Waiting:
    """Raises NotSignedIn, NotFound for a code that is wrong, answered or too old, TooMany."""
    _count_guess(hub, access.require_whole_token(who))
    with hub.database.read() as session:
        found = _unanswered(session, user_code)
        return Waiting(found.user_code, found.client_name, found.scope, found.address, found.expires_at)


def allow(hub: Hub, who: Principal, user_code: str) -> None:
    """The program will get a token of the user's. By a browser's session, since what a token could allow would outlive
    it. Raises NotSignedIn, Forbidden, NotFound."""
    user_id = access.require_whole_token(who)
    if who.token_id is not None:
        raise Forbidden("allow this on the hub's page, signed in with your password", code="session_needed")
    _count_guess(hub, user_id)
    with hub.database.write(seen=False) as session:
        _unanswered(session, user_code).user_id = user_id


def deny(hub: Hub, who: Principal, user_code: str) -> None:
    _count_guess(hub, access.require_whole_token(who))
    with hub.database.write(seen=False) as session:
        _unanswered(session, user_code).is_denied = True


def redeem(hub: Hub, device_code: str) -> NewToken:
    """The token, once. Raises BadRequest with the codes of RFC 8628 (authorization_pending, access_denied,
    expired_token) and TooMany with slow_down."""
    with hub.database.write(seen=False) as session:
        found = session.scalar(select(Device).where(Device.sha256 == tokens.sha256_of(device_code)).with_for_update())
        if found is None or found.expires_at < now():
            raise BadRequest("this sign-in has expired: start again with vf login", code="expired_token")
        if found.is_denied:
            pending = BadRequest("the sign-in was refused on the hub's page", code="access_denied")
        elif found.user_id is not None:
            user = session.get_one(Account, found.user_id)
            session.delete(found)
            who = Principal(user.id, user.name, address=found.address)
            return add_token(session, who, user, TokenWish(found.client_name, found.scope, days=TOKEN_DAYS))
        elif found.asked_at is not None and now() - found.asked_at < timedelta(seconds=INTERVAL_S - 1):
            pending = TooMany(f"ask every {INTERVAL_S} s", code="slow_down", retry_after_s=INTERVAL_S)
        else:
            pending = BadRequest("nobody has allowed it yet: ask again", code="authorization_pending")
        found.asked_at = now()
    raise pending


def _count_guess(hub: Hub, user_id: int) -> None:
    """Whoever guessed the code of somebody's terminal could sign it in as himself, or refuse it."""
    hub.limiter.spend(limits.DEVICE_CODE, f"user {user_id}")


def _unanswered(session: Session, user_code: str) -> Device:
    code = user_code.strip().upper()
    found = session.scalar(
        select(Device).where(Device.user_code == code, Device.user_id.is_(None), ~Device.is_denied).with_for_update()
    )
    if found is None or found.expires_at < now():
        raise NotFound("no sign-in waits under this code: it is answered, too old, or mistyped")
    return found
