"""Reading the audit log: of one owner or environment by its owners, of the whole hub by its administrators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select

from hub_server.errors import Unprocessable
from hub_server.hub import Hub
from hub_server.models import Account, AuditEvent, Project
from hub_server.principal import Principal
from hub_server.services import access

MAX_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    at: datetime
    actor: str
    action: str  # noun.verb
    owner: str | None
    project: str | None
    target: str
    detail: dict[str, Any]
    address: str | None  # None: of somebody else's client, which only administrators of the hub see


@dataclass(frozen=True, slots=True)
class Events:
    events: list[Event]  # newest first
    after: int | None  # for the next page; None: this was the last


def read(
    hub: Hub,
    who: Principal,
    *,
    owner: str | None = None,
    project: str | None = None,
    action: str | None = None,
    actor: str | None = None,
    after: int | None = None,
    limit: int = 50,
) -> Events:
    """`project` is a name of `owner`'s. `action` is one, or the noun before its dot. What happened to an environment
    under an earlier owner is that owner's to read. Raises NotSignedIn, NotFound, Forbidden, Unprocessable."""
    if not 1 <= limit <= MAX_EVENTS:
        raise Unprocessable(f"limit is 1 to {MAX_EVENTS}")
    query = select(AuditEvent, Account.name, Project.name)
    query = query.outerjoin(Account, Account.id == AuditEvent.owner_id)
    query = query.outerjoin(Project, Project.id == AuditEvent.project_id)
    with hub.database.read() as session:
        if owner is None:
            if project is not None:
                raise Unprocessable("to read of an environment name its owner too")
            access.require_hub_admin(who)
        elif project is None:
            query = query.where(AuditEvent.owner_id == access.owner_for(session, who, owner, role="owner").id)
        else:
            found = access.project_for(session, who, owner, project, role="owner")
            query = query.where(AuditEvent.project_id == found.id, AuditEvent.owner_id == found.owner_id)
        if action:
            is_noun = "." not in action
            query = query.where(
                AuditEvent.action.startswith(f"{action}.", autoescape=True) if is_noun else AuditEvent.action == action
            )
        if actor:
            query = query.where(AuditEvent.actor == actor.lower())
        if after is not None:
            query = query.where(AuditEvent.id < after)
        rows = session.execute(query.order_by(AuditEvent.id.desc()).limit(limit + 1)).all()
        events = [_event(who, *row) for row in rows[:limit]]
        return Events(events, events[-1].id if len(rows) > limit else None)


def _event(who: Principal, event: AuditEvent, owner: str | None, project: str | None) -> Event:
    is_shown = who.is_admin or event.actor == who.name
    return Event(
        event.id,
        event.at,
        event.actor,
        event.action,
        owner,
        project,
        event.target,
        event.detail,
        event.address if is_shown else None,
    )
