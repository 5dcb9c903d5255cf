"""The audit log: one row a deed, written in the deed's own transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from hub_server.models import AuditEvent, Project
from hub_server.principal import Principal


def record(
    session: Session,
    who: Principal,
    action: str,
    *,
    owner_id: int | None = None,
    project: Project | None = None,
    target: str = "",
    **detail: Any,
) -> None:
    """`action` is `noun.verb`; `detail` holds plain values and never a secret."""
    session.add(
        AuditEvent(
            actor=who.name or "system",
            action=action,
            owner_id=project.owner_id if project is not None else owner_id,
            project_id=None if project is None else project.id,
            target=target,
            detail=detail,
            address=who.address,
        )
    )
