"""Signing in to a hub and out again: by a token one has, or by a page that one opens in a browser."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any, Literal

from verifiers.errors import SetupError
from verifiers.hub.client import HubClient, HubError
from verifiers.hub.credentials import Login, forget, remember

Say = Callable[[str], None]
Scope = Literal["read", "publish", "admin"]


def sign_in(
    url: str,
    token: str | None = None,
    *,
    scope: Scope = "admin",
    say: Say,
    open_page: Callable[[str], object] | None = None,
) -> Login:
    """Checks the token with the hub, or asks for one of this scope by way of a page, and saves it.

    Raises HubError, SetupError.
    """
    if token is None:
        token = _token_by_page(url, scope, say, open_page)
    login = Login(url, token.strip())
    with HubClient(login) as client:
        login = Login(url, login.token, client.get("whoami")["name"])
    remember(login)
    return login


def sign_out(login: Login, *, revoke: bool = False) -> bool:
    """Forgets the login; whether there was one. The token itself lives on, for it may be in use elsewhere, unless it
    is to be revoked on the hub: then it is worth nothing anywhere. Raises HubError."""
    if revoke and login.token is not None:
        with HubClient(login) as client:
            client.call("DELETE", "tokens", "current")
    return forget(login.url)


def who_am_i(login: Login) -> dict[str, Any]:
    """Raises HubError when the hub does not know the token."""
    with HubClient(login) as client:
        return {"hub": login.url, **client.get("whoami")}


def _token_by_page(url: str, scope: Scope, say: Say, open_page: Callable[[str], object] | None) -> str:
    """The device flow (RFC 8628): whoever is signed in confirms a code on a page of the hub, and we ask until then."""
    with HubClient(Login(url)) as client:
        started = client.call("POST", "device", json={"client_name": f"vf on {platform.node()}", "scope": scope})
        say(f"open {started['verification_url']} and confirm the code {started['user_code']}")
        if open_page is not None:
            open_page(started["verification_url"])
        until = time.monotonic() + started["expires_in_s"]
        while time.monotonic() < until:
            time.sleep(started["interval_s"])
            try:
                answer = client.call(
                    "POST", "device", "token", json={"device_code": started["device_code"]}, again=True
                )
            except HubError as error:
                if error.code == "authorization_pending":
                    continue
                raise
            return answer["token"]
    raise SetupError(f"the code was not confirmed in time. Try again: vf login {url}")
