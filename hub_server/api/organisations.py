"""`/api/v1/organisations`: making them, their members and roles."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict

from hub_server.http import hub_of, principal
from hub_server.principal import Principal
from hub_server.services import access, organisations
from hub_server.services.organisations import Member, Profile

router = APIRouter(prefix="/organisations", tags=["organisations"])

Who = Annotated[Principal, Depends(principal)]


class NewOrganisation(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    display_name: str = ""


class RoleWish(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: str  # owner, maintainer, reader


@router.get("")
def mine(request: Request, who: Who) -> list[Profile]:
    """Those that I belong to."""
    access.require_signed_in(who, scope="read")
    return organisations.organisations_of(hub_of(request), who)


@router.post("", status_code=201)
def create(request: Request, who: Who, body: NewOrganisation) -> Profile:
    """I become its first owner."""
    return organisations.create_organisation(hub_of(request), who, body.name, body.display_name)


@router.get("/{organisation}/members")
def members(request: Request, who: Who, organisation: str) -> list[Member]:
    """For its members."""
    return organisations.members(hub_of(request), who, organisation)


@router.put("/{organisation}/members/{user}")
def set_member(request: Request, who: Who, organisation: str, user: str, body: RoleWish) -> Member:
    """Add a user or change a role; by an owner. Nobody raises their own."""
    return organisations.set_member(hub_of(request), who, organisation, user, body.role)


@router.delete("/{organisation}/members/{user}", status_code=204)
def remove_member(request: Request, who: Who, organisation: str, user: str) -> Response:
    """By an owner, or the member. The last owner stays."""
    organisations.remove_member(hub_of(request), who, organisation, user)
    return Response(status_code=204)
