"""Which evaluations there are for whom, and who may add to one. What one may not see does not exist."""

from __future__ import annotations

import re

from sqlalchemy import ColumnElement, and_, false, or_, select
from sqlalchemy.orm import Session, joinedload

from hub_server.errors import Forbidden, NotFound, NotSignedIn
from hub_server.models import Collaborator, Evaluation, Membership, Project
from hub_server.principal import Principal
from hub_server.services import access

_ID = re.compile(r"[0-9a-f]{32}")
LEFT_OPEN = "left_open"  # the state of a tombstone: see `services/left_open.py`


def visible(who: Principal) -> ColumnElement[bool]:
    """The condition on `Evaluation` joined with `Project` that holds for all that `who` may see."""
    alive = and_(Evaluation.deleted_at.is_(None), access.readable(who))
    is_done = Evaluation.state != "open"
    public = and_(Evaluation.visibility == "public", is_done)
    if who.user_id is None:
        return and_(alive, public)
    if not who.allows("read"):
        return false()
    if who.is_admin and who.allows("admin") and who.owner_id is None and who.project_id is None:
        return alive
    organisations = select(Membership.organisation_id).where(Membership.user_id == who.user_id)
    collaborations = select(Collaborator.project_id).where(Collaborator.user_id == who.user_id)
    has_role = or_(Project.owner_id == who.user_id, Project.owner_id.in_(organisations), Project.id.in_(collaborations))
    theirs = or_(
        Evaluation.created_by_id == who.user_id,
        and_(Evaluation.visibility.in_(("project", "public")), is_done, has_role),
    )
    if who.project_id is not None:
        theirs = and_(theirs, Project.id == who.project_id)
    elif who.owner_id is not None:
        theirs = and_(theirs, Project.owner_id == who.owner_id)
    return and_(alive, or_(public, theirs))


def evaluation_for_reading(session: Session, who: Principal, evaluation_id: str) -> Evaluation:
    """Raises NotFound, the same for hidden, deleted and missing."""
    found = _ID.fullmatch(evaluation_id) and session.scalar(
        select(Evaluation)
        .join(Evaluation.project)
        .where(Evaluation.id == evaluation_id, visible(who))
        .options(
            joinedload(Evaluation.project).joinedload(Project.owner),
            joinedload(Evaluation.release),
            joinedload(Evaluation.created_by),
        )
    )
    if not found:
        _tell_left_open(session, who, evaluation_id)
        raise NotFound(f"there is no evaluation '{evaluation_id[:40]}' here, or you may not see it")
    return found


def _tell_left_open(session: Session, who: Principal, evaluation_id: str) -> None:
    """To whoever pushed it, and to nobody else."""
    if who.user_id is None or not _ID.fullmatch(evaluation_id):
        return
    found = session.scalar(
        select(Evaluation)
        .join(Evaluation.project)
        .where(Evaluation.id == evaluation_id, Evaluation.state == LEFT_OPEN)
        .where(Evaluation.created_by_id == who.user_id, access.readable(who))
    )
    if found is not None:
        raise NotFound(
            f"evaluation {found.id} was removed with its {found.n_samples} samples: it was begun on "
            f"{found.created_at:%Y-%m-%d}, the last of them came on {found.arrived_at:%Y-%m-%d}, and it was never "
            "completed. Push the run again: that begins a new one, which may have the same idempotency_key",
            code=LEFT_OPEN,
        )


def evaluation_for_writing(session: Session, who: Principal, evaluation_id: str) -> Evaluation:
    """The evaluation, if `who` pushed it. Raises NotSignedIn, NotFound, Forbidden."""
    found = evaluation_for_reading(session, who, evaluation_id)
    if who.is_anonymous:
        raise NotSignedIn("sign in first: vf login")
    if found.created_by_id != who.user_id:
        raise Forbidden(f"evaluation {found.id} was pushed by {found.created_by.name}: only they may add to it")
    check_token(who, found)
    return found


def check_token(who: Principal, evaluation: Evaluation) -> None:
    if not who.allows("publish"):
        raise Forbidden(f"this token is for '{who.scope}' only; 'publish' is needed", code="token_scope")
    if not who.covers(evaluation.project.owner_id, evaluation.project_id):
        raise Forbidden("this token is not for that project", code="token_elsewhere")


def evaluation_for_changing(session: Session, who: Principal, evaluation_id: str) -> Evaluation:
    evaluation = evaluation_for_reading(session, who, evaluation_id)
    if who.is_anonymous:
        raise NotSignedIn("sign in first: vf login")
    check_token(who, evaluation)
    if evaluation.created_by_id != who.user_id and access.role_on(session, who, evaluation.project) != "owner":
        raise Forbidden(f"evaluation {evaluation.id} was pushed by {evaluation.created_by.name}: ask them")
    return evaluation


def locked(session: Session, evaluation_id: str) -> Evaluation:
    """The row, held until the transaction ends, so that whoever else writes to it waits. Raises NotFound."""
    found = session.scalar(
        select(Evaluation)
        .where(Evaluation.id == evaluation_id, Evaluation.deleted_at.is_(None))
        .with_for_update(of=Evaluation)
        .options(joinedload(Evaluation.project).joinedload(Project.owner))
    )
    if found is None:
        raise NotFound(f"there is no evaluation '{evaluation_id[:40]}' here, or you may not see it")
    return found
