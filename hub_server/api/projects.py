"""`/api/v1/projects/{owner}/{name}/…`: what owners decide about an environment; stars; the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from hub_server.http import hub_of, principal
from hub_server.principal import Principal
from hub_server.services import audit_log, collaborators, projects
from hub_server.services.audit_log import Events
from hub_server.services.organisations import Member
from hub_server.services.projects import ProjectState, Starred

router = APIRouter(tags=["environments"])

Who = Annotated[Principal, Depends(principal)]
PROJECT = "/projects/{owner}/{name}"


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class VisibilityWish(Body):
    visibility: Literal["private", "public"]


class StatusWish(Body):
    status: Literal["active", "deprecated", "archived", "quarantined"]
    reason: str = ""


class SettingsWish(Body):
    publish_answers: bool


class TransferWish(Body):
    to: str


class RoleWish(Body):
    role: str  # maintainer, reader


@router.get(f"{PROJECT}/settings")
def state(request: Request, who: Who, owner: str, name: str) -> ProjectState:
    """Visibility, status, stars, and the role of whoever asks."""
    return projects.state(hub_of(request), who, owner, name)


@router.patch(f"{PROJECT}/settings")
def edit(request: Request, who: Who, owner: str, name: str, body: SettingsWish) -> ProjectState:
    """`publish_answers: false` keeps answers and prompts of test sets at home."""
    return projects.set_publish_answers(hub_of(request), who, owner, name, body.publish_answers)


@router.put(f"{PROJECT}/visibility")
def set_visibility(request: Request, who: Who, owner: str, name: str, body: VisibilityWish) -> ProjectState:
    return projects.set_visibility(hub_of(request), who, owner, name, body.visibility)


@router.put(f"{PROJECT}/status")
def set_status(request: Request, who: Who, owner: str, name: str, body: StatusWish) -> ProjectState:
    """Deprecate, archive or make active again; quarantine is the administrators'."""
    return projects.set_status(hub_of(request), who, owner, name, body.status, body.reason)


@router.post(f"{PROJECT}/transfer")
def transfer(request: Request, who: Who, owner: str, name: str, body: TransferWish) -> ProjectState:
    """To an organisation or a user that I own, or am."""
    return projects.transfer(hub_of(request), who, owner, name, body.to)


@router.delete(PROJECT, status_code=204)
def delete(request: Request, who: Who, owner: str, name: str) -> Response:
    """For ever: nobody can take the name again."""
    projects.delete_project(hub_of(request), who, owner, name)
    return Response(status_code=204)


@router.put(f"{PROJECT}/stars")
def star(request: Request, who: Who, owner: str, name: str) -> ProjectState:
    return projects.set_star(hub_of(request), who, owner, name, True)


@router.delete(f"{PROJECT}/stars")
def unstar(request: Request, who: Who, owner: str, name: str) -> ProjectState:
    return projects.set_star(hub_of(request), who, owner, name, False)


@router.get("/stars")
def starred(request: Request, who: Who) -> list[Starred]:
    """What I gave a star, newest first."""
    return projects.starred(hub_of(request), who)


@router.get(f"{PROJECT}/collaborators")
def list_collaborators(request: Request, who: Who, owner: str, name: str) -> list[Member]:
    """For those who have a role on the environment."""
    return collaborators.collaborators(hub_of(request), who, owner, name)


@router.put(f"{PROJECT}/collaborators/{{user}}")
def set_collaborator(request: Request, who: Who, owner: str, name: str, user: str, body: RoleWish) -> Member:
    return collaborators.set_collaborator(hub_of(request), who, owner, name, user, body.role)


@router.delete(f"{PROJECT}/collaborators/{{user}}", status_code=204)
def remove_collaborator(request: Request, who: Who, owner: str, name: str, user: str) -> Response:
    collaborators.remove_collaborator(hub_of(request), who, owner, name, user)
    return Response(status_code=204)


@router.get("/audit", tags=["audit"])
def audit(
    request: Request,
    who: Who,
    owner: str | None = None,
    project: Annotated[str | None, Query(description="a name of the owner's")] = None,
    action: Annotated[str | None, Query(description="such as 'token.create', or all of 'token'")] = None,
    actor: str | None = None,
    after: Annotated[int | None, Query(ge=0, lt=1 << 63, description="`after` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=audit_log.MAX_EVENTS)] = 50,
) -> Events:
    """Who did what, newest first: of an owner or environment for its owners, of the hub for its administrators."""
    return audit_log.read(
        hub_of(request), who, owner=owner, project=project, action=action, actor=actor, after=after, limit=limit
    )
