"""`/api/v1` of accounts: who I am, users, profiles, passwords."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict

from hub_server.http import hub_of, principal
from hub_server.principal import Principal
from hub_server.services import accounts, identity, organisations
from hub_server.services.accounts import User
from hub_server.services.identity import Identity
from hub_server.services.organisations import Profile

router = APIRouter(tags=["accounts"])

Who = Annotated[Principal, Depends(principal)]


class Body(BaseModel):
    """A misspelt field is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")


class NewUser(Body):
    name: str
    password: str | None = None  # None: tokens only


class UserChange(Body):
    is_active: bool


class PasswordChange(Body):
    old: str
    new: str


class ProfileChange(Body):
    display_name: str | None = None
    about: str | None = None


@router.get("/whoami")
def whoami(request: Request, who: Who) -> Identity:
    """Whose token this is, what it lets through, and the organisations of its user."""
    return identity.identity(hub_of(request), who)


@router.get("/users")
def list_users(request: Request, who: Who) -> list[User]:
    """All users of the hub; for its administrators."""
    return accounts.list_users(hub_of(request), who)


@router.post("/users", status_code=201)
def register(request: Request, who: Who, body: NewUser) -> User:
    """A new user: by an administrator, or by anyone where the hub has open registration."""
    return accounts.register(hub_of(request), who, body.name, body.password)


@router.patch("/users/{name}")
def change_user(request: Request, who: Who, name: str, body: UserChange) -> User:
    """Disable a user, whose sessions and tokens stop at once, or enable it again; for administrators."""
    return accounts.set_active(hub_of(request), name, body.is_active, who=who)


@router.put("/password", status_code=204)
def change_password(request: Request, who: Who, body: PasswordChange) -> Response:
    """One's own password. Ends all sessions."""
    accounts.change_password(hub_of(request), who, body.old, body.new)
    return Response(status_code=204)


@router.get("/accounts/{owner}")
def profile(request: Request, who: Who, owner: str) -> Profile:
    """A user or an organisation."""
    return organisations.profile(hub_of(request), who, owner)


@router.patch("/accounts/{owner}")
def edit_profile(request: Request, who: Who, owner: str, body: ProfileChange) -> Profile:
    """What is not given stays as it is."""
    return organisations.edit_profile(hub_of(request), who, owner, display_name=body.display_name, about=body.about)
