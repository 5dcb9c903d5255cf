"""`/api/v1/tokens` and `/api/v1/device`: keys for programs, made by hand or through `vf login`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, ConfigDict

from hub_server.errors import NotFound
from hub_server.http import address_of, anyone, base_url, hub_of, principal
from hub_server.principal import Principal
from hub_server.services import access, access_tokens, devices
from hub_server.services.access_tokens import NewToken, TokenView, TokenWish
from hub_server.services.devices import Waiting

router = APIRouter(tags=["tokens"])

Who = Annotated[Principal, Depends(principal)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TokenBody(Body):
    name: str
    scope: str = "publish"  # read, publish, admin
    owner: str | None = None
    project: str | None = None  # owner/name
    days: float | None = 90  # null: until it is revoked


class DeviceBody(Body):
    client_name: str
    scope: str = "admin"


class DeviceCode(Body):
    device_code: str


@dataclass(frozen=True)
class DeviceStarted:
    device_code: str
    user_code: str
    verification_url: str
    interval_s: int
    expires_in_s: int


@dataclass(frozen=True)
class DeviceToken:
    token: str
    user: str
    scope: str
    expires_at: datetime | None


@router.get("/tokens")
def list_tokens(request: Request, who: Who) -> list[TokenView]:
    """One's own, newest first."""
    return access_tokens.list_tokens(hub_of(request), who)


@router.post("/tokens", status_code=201)
def create_token(request: Request, response: Response, who: Who, body: TokenBody) -> NewToken:
    """The token is in this answer and nowhere else."""
    response.headers["Cache-Control"] = "no-store"
    return access_tokens.create_token(hub_of(request), who, TokenWish(**body.model_dump()))


@router.delete("/tokens/current", status_code=204)
def revoke_current(request: Request, who: Who) -> Response:
    """The token that asks, whatever its scope: `vf logout`."""
    access.require_signed_in(who, scope="read")
    if who.token_id is None:
        raise NotFound("this is a browser's session, not a token: sign out on the page")
    access_tokens.revoke_token(hub_of(request), who, who.token_id)
    return Response(status_code=204)


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(request: Request, who: Who, token_id: Annotated[int, Path(ge=1, lt=1 << 63)]) -> Response:
    """Refused by every worker from now on."""
    access_tokens.revoke_token(hub_of(request), who, token_id)
    return Response(status_code=204)


@router.post("/device", status_code=201, dependencies=[Depends(anyone)])
def start_device(request: Request, response: Response, body: DeviceBody) -> DeviceStarted:
    """The first step of `vf login`: show `user_code`, open `verification_url`, then ask /device/token."""
    response.headers["Cache-Control"] = "no-store"
    started = devices.start(hub_of(request), body.client_name, body.scope, address_of(request))
    url = f"{base_url(request).removesuffix('/api/v1')}/login/device?code={started.user_code}"
    return DeviceStarted(started.device_code, started.user_code, url, started.interval_s, started.expires_in_s)


@router.post("/device/token", dependencies=[Depends(anyone)])
def redeem_device(request: Request, response: Response, body: DeviceCode) -> DeviceToken:
    """The token, once it is allowed; before that 400 with `authorization_pending`, `access_denied`, `expired_token`."""
    response.headers["Cache-Control"] = "no-store"
    made = devices.redeem(hub_of(request), body.device_code)
    return DeviceToken(made.token, made.view.user, made.view.scope, made.view.expires_at)


@router.get("/device/{user_code}")
def waiting_device(request: Request, who: Who, user_code: str) -> Waiting:
    """What waits under a code: which program, from where, for which scope."""
    return devices.waiting(hub_of(request), who, user_code)


@router.post("/device/{user_code}/allow", status_code=204)
def allow_device(request: Request, who: Who, user_code: str) -> Response:
    """With a browser's session only."""
    devices.allow(hub_of(request), who, user_code)
    return Response(status_code=204)


@router.post("/device/{user_code}/deny", status_code=204)
def deny_device(request: Request, who: Who, user_code: str) -> Response:
    devices.deny(hub_of(request), who, user_code)
    return Response(status_code=204)
