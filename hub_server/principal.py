"""`Principal`: who asks. Found once per request, from a token or a session, and handed to every service."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from hub_server.errors import Unprocessable

Scope = Literal["read", "publish", "admin"]
Role = Literal["reader", "maintainer", "owner"]

SCOPES: tuple[Scope, ...] = ("read", "publish", "admin")
ROLES: tuple[Role, ...] = ("reader", "maintainer", "owner")


@dataclass(frozen=True, slots=True)
class Principal:
    """A user with what this token lets through, or nobody. A session and a full token have scope `admin`."""

    user_id: int | None = None  # None: nobody has signed in
    name: str = ""
    is_admin: bool = False  # of the whole hub; counts only with scope `admin`
    scope: Scope = "admin"
    owner_id: int | None = None  # the token is for this owner's projects only
    project_id: int | None = None  # the token is for this project only
    token_id: int | None = None
    address: str = ""  # of the client, for the audit log

    @property
    def is_anonymous(self) -> bool:
        return self.user_id is None

    def allows(self, scope: Scope) -> bool:
        """Whether the token may be used for this at all, whatever the user's roles are."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)

    def covers(self, owner_id: int, project_id: int | None) -> bool:
        """Whether the token is meant for this owner and project."""
        if self.project_id is not None:
            return self.project_id == project_id
        return self.owner_id is None or self.owner_id == owner_id


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A principal whose token or session was found, and how long it lasts."""

    who: Principal
    until: datetime | None  # None: until it is revoked


NOBODY = Principal()
SYSTEM = Principal(name="system", is_admin=True)  # the operator at the data folder (`vf-hub user`): no request


def scope_named(text: str) -> Scope:
    """Raises Unprocessable."""
    if text not in SCOPES:
        raise Unprocessable(f"'{text}' is no scope of a token: there are {', '.join(SCOPES)}", code="unknown_scope")
    return cast("Scope", text)


def role_named(text: str) -> Role:
    """Raises Unprocessable."""
    if text not in ROLES:
        raise Unprocessable(f"'{text}' is no role: there are {', '.join(ROLES)}", code="unknown_role")
    return cast("Role", text)
