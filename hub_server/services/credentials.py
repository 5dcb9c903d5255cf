"""Credentials: the token or session that a request carries becomes a `Principal`."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import joinedload

from hub_server import tokens
from hub_server.errors import HubError, NotSignedIn
from hub_server.hub import Hub
from hub_server.models import Session, Token, now
from hub_server.principal import NOBODY, Principal, SignedIn, scope_named


def principal_of(hub: Hub, authorization: str | None, session_cookie: str | None, address: str = "") -> Principal:
    """Whom the headers name; `NOBODY` without any, and with a session that has ended.

    Raises NotSignedIn for a token that is wrong, expired or revoked: an index client must stop there, not go on to
    another index with the same name.
    """
    credential = _credential(authorization, session_cookie)
    if credential is None:
        return replace(NOBODY, address=address)
    find = _by_session if authorization is None else _by_token
    found = hub.signed_in.get(credential, lambda: find(hub, credential))
    return _as_of_now(found, address)


def held_principal(hub: Hub, authorization: str | None, session_cookie: str | None, address: str) -> Principal | None:
    """`principal_of` when no look into the database is needed, else `None`: for the event loop."""
    credential = _credential(authorization, session_cookie)
    if credential is None:
        return replace(NOBODY, address=address)
    found = hub.signed_in.peek(credential)
    return None if found is None else _as_of_now(found, address)


def _as_of_now(found: SignedIn, address: str) -> Principal:
    if found.until is not None and found.until <= now():
        if found.who.token_id is None:
            return replace(NOBODY, address=address)
        raise NotSignedIn("this token has expired: make another one (vf login)", code="token_expired")
    return replace(found.who, address=address)


def _credential(authorization: str | None, session_cookie: str | None) -> str | None:
    """The SHA-256 of the token or session; `None` when there is neither."""
    if authorization is not None:
        return tokens.sha256_of(token_in(authorization))
    if session_cookie and tokens.is_wellformed(session_cookie, "vfs_"):
        return tokens.sha256_of(session_cookie)
    return None


def token_in(authorization: str) -> str:
    """The token in an `Authorization` header: Bearer, or Basic as password (any user) or as user without password.

    Raises NotSignedIn.
    """
    scheme, _, rest = authorization.strip().partition(" ")
    found = [rest.strip()]
    if scheme.lower() == "basic":
        with contextlib.suppress(binascii.Error, UnicodeDecodeError):
            user, _, password = base64.b64decode(rest.strip(), validate=True).decode("utf-8").partition(":")
            found = [password, user]
    elif scheme.lower() != "bearer":
        raise NotSignedIn("sign in with a token: 'Bearer TOKEN', or Basic with user __token__")
    for text in found:
        if tokens.is_wellformed(text):
            return text
    raise NotSignedIn(
        "this is not a token of a hub. With Basic the user is __token__ and the password the token (vfh_…)",
        code="token_wrong",
    )


def _by_token(hub: Hub, sha256: str) -> SignedIn:
    with hub.database.read() as session:
        token = session.scalar(select(Token).where(Token.sha256 == sha256).options(joinedload(Token.user)))
    # The index was searched for a hash, whose timing tells nothing of the secret; this is for databases that compare
    # text in ways of their own.
    if token is None or not hmac.compare_digest(token.sha256, sha256):
        raise NotSignedIn("this hub does not know the token: make another one (vf login)", code="token_wrong")
    if token.revoked_at is not None:
        raise NotSignedIn("this token was revoked: make another one (vf login)", code="token_revoked")
    if not token.user.is_active:
        raise NotSignedIn("this account is disabled: ask an administrator of the hub", code="account_disabled")
    _note_use(hub, token)
    who = Principal(
        user_id=token.user_id,
        name=token.user.name,
        is_admin=token.user.is_admin,
        scope=scope_named(token.scope),
        owner_id=token.owner_id,
        project_id=token.project_id,
        token_id=token.id,
    )
    return SignedIn(who, token.expires_at)


def _note_use(hub: Hub, token: Token) -> None:
    """To the hour. A hub that cannot write just now still answers reads."""
    if token.last_used_at is not None and token.last_used_at > now() - timedelta(hours=1):
        return
    with contextlib.suppress(HubError), hub.database.write(seen=False) as session:
        session.execute(update(Token).where(Token.id == token.id).values(last_used_at=now()))


def _by_session(hub: Hub, sha256: str) -> SignedIn:
    with hub.database.read() as session:
        found = session.scalar(select(Session).where(Session.sha256 == sha256).options(joinedload(Session.user)))
    if found is None or not found.user.is_active:
        return SignedIn(NOBODY, None)
    return SignedIn(Principal(found.user_id, found.user.name, found.user.is_admin), found.expires_at)
