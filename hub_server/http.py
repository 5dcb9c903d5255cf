"""What every route asks of a request: who sent it (`principal`), through which address the hub is seen, its cookie."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from hub_server import limits
from hub_server.errors import BadRequest, NotSignedIn
from hub_server.hub import Hub
from hub_server.principal import Principal
from hub_server.services import credentials
from hub_server.settings import Settings

# Browsers take a `__Host-` cookie from this very host by https alone: no neighbour under the same domain can plant one.
SECURE_COOKIE: Final = "__Host-vf-hub"
LOOPBACK_COOKIE: Final = "vf-hub"  # of a hub on one's own machine, by plain http


async def principal(request: Request) -> Principal:
    """Who asks. A FastAPI dependency, and a call in Starlette routes: all but the sign-in page start with it.

    Raises NotSignedIn for a wrong token, and for nobody on a hub that is private as a whole; TooMany for a flood of
    searches or uploads.
    """
    who = await anyone(request)
    hub = hub_of(request)
    if who.is_anonymous and hub.settings.is_private:
        raise NotSignedIn("this hub is private: sign in, or send a token")
    limit = _limit_of(request.scope, hub.settings)
    if limit is not None:
        subject = limits.subject_of(who.address) if who.user_id is None else f"user {who.user_id}"
        await run_in_threadpool(hub.limiter.spend, limit, subject)
    return who


async def anyone(request: Request) -> Principal:
    """`principal` for what is shown to nobody too: the sign-in page. Raises NotSignedIn for a wrong token."""
    hub = hub_of(request)
    headers = request.headers
    authorization = headers.get("authorization")
    cookie = None
    if authorization is None and "cookie" in headers:
        cookie = request.cookies.get(_cookie_name(request))
    address = address_of(request)
    who = credentials.held_principal(hub, authorization, cookie, address)
    if who is None:
        who = await run_in_threadpool(credentials.principal_of, hub, authorization, cookie, address)
    request.scope.setdefault("state", {})["who"] = who.name  # for the log
    return who


def _limit_of(scope: Scope, settings: Settings) -> limits.Limit | None:
    """What a request counts against, by its address; `None`: nothing."""
    method, path = scope["method"], scope["path"].removeprefix(_mount(scope))
    if method in ("GET", "HEAD"):
        if not _is_search(path, scope["query_string"]):
            return None
        return limits.Limit("search", settings.searches_per_minute, 60, lease=10)
    if method != "POST":
        return None
    if path.endswith(("/legacy/", "/releases")):
        return limits.Limit("upload", settings.uploads_per_hour, 3600, lease=10)
    if path.endswith("/evaluations"):
        return limits.Limit("evaluation", settings.evaluations_per_hour, 3600, lease=10)
    if _EVALUATION.match(path) and path.endswith(("/samples", "/complete", "/verification")):
        return limits.Limit("samples", settings.sample_pushes_per_minute, 60, lease=10)
    return None


_EVALUATION = re.compile(r"(?:/api/v1)?/evaluations/")
_SOUGHT = re.compile(rb"(?:^|&)(?:q|filter|sort|order)=[^&]")


def _is_search(path: str, query: bytes) -> bool:
    """Whether an answer takes a look at many rows or files: what is searched, filtered or compared."""
    if query and (path in ("/", "/search") or path.endswith("/projects")):
        return True
    if _EVALUATION.match(path):
        return "/compare/" in path or _SOUGHT.search(query) is not None
    return path.endswith("/diff")


def hub_of(request: Request) -> Hub:
    return request.app.state.hub


def address_of(request: Request) -> str:
    """The client's, behind trusted proxies too (`door.py`)."""
    client = request.scope.get("client")
    return client[0] if client else ""


def base_url(request: Request) -> str:
    """Where the hub is seen, without a slash at the end: `public_url`, else this request's host, an allowed one."""
    public = hub_of(request).settings.public_url
    if public:
        return public.rstrip("/")
    return f"{request.scope['scheme']}://{request.headers.get('host', '')}{_mount(request.scope)}"


def _mount(scope: Scope) -> str:
    """The path under which the whole hub lies; inside the JSON API `root_path` has the API's own path too."""
    return scope.get("app_root_path", scope.get("root_path", ""))


# The session's cookie


def session_cookie(request: Request) -> str | None:
    return request.cookies.get(_cookie_name(request))


def set_session(request: Request, response: Response, secret: str) -> None:
    """Raises BadRequest by plain http from another machine: the secret would cross the network in the open."""
    is_secure = request.url.scheme == "https"
    if not is_secure and not is_loopback(request.url.hostname or ""):
        raise BadRequest(
            "signing in needs https: put a proxy with a certificate before the hub and name it in "
            "VF_HUB_TRUSTED_PROXIES, or open the hub as http://127.0.0.1",
            code="https_needed",
        )
    response.set_cookie(
        _cookie_name(request),
        secret,
        max_age=hub_of(request).settings.session_days * 86_400,
        path="/",
        secure=is_secure,
        httponly=True,
        samesite="lax",
    )


def clear_session(request: Request, response: Response) -> None:
    is_secure = request.url.scheme == "https"
    response.delete_cookie(_cookie_name(request), path="/", secure=is_secure, httponly=True, samesite="lax")


def _cookie_name(request: Request) -> str:
    return SECURE_COOKIE if request.scope["scheme"] == "https" else LOOPBACK_COOKIE


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def local_path(target: str | None, default: str = "/") -> str:
    """Where to go after signing in: `target` if it is a path on this hub, else `default`; never another host."""
    if not target or not target.startswith("/") or target[1:2] in ("/", "\\"):
        return default
    # Browsers drop control characters before they read an address, and read a backslash as a slash.
    if "\\" in target or any(ord(letter) < 0x21 or ord(letter) == 0x7F for letter in target):
        return default
    return target
