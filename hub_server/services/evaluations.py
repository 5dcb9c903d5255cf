"""Evaluations: begun, completed, shown to more people or fewer, deleted. Their samples arrive through `samples_in`.

An evaluation is bound to a release by what was installed where it ran: the wheel's SHA-256, or the hash of its files
(`files:…`) where an installer kept no more. A run of an edited tree is *dirty*: kept, and never on a leaderboard.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, literal, select, tuple_
from sqlalchemy.orm import Session, joinedload

from hub_server.db import retried
from hub_server.errors import BadRequest, Conflict, Forbidden, NotSignedIn, Unprocessable
from hub_server.hub import Hub
from hub_server.models import Evaluation, ExampleRate, Project, Release, now
from hub_server.principal import Principal
from hub_server.services import access, audit
from hub_server.services.binding import bound_release
from hub_server.services.cursor import read_cursor, write_cursor
from hub_server.services.evaluation_access import (
    evaluation_for_changing,
    evaluation_for_reading,
    evaluation_for_writing,
    locked,
    visible,
)
from hub_server.services.evaluation_summary import Recomputed, check_claims, recompute
from hub_server.services.new_evaluation import (
    VISIBILITIES,
    NewEvaluation,
    check_new,
    kept_of_run,
    setup_of,
    threshold_of,
)
from hub_server.services.sample_chunks import delete_samples


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationView:
    """An evaluation as it is told to whoever may see it."""

    id: str
    owner: str
    project: str
    version: str | None  # None: bound to no release
    wheel_sha256: str | None
    dirty: bool
    model: str
    name: str
    state: str  # open, complete, verified
    visibility: str
    created_by: str
    created_at: datetime
    completed_at: datetime | None
    library_version: str
    setup: str
    run: dict[str, Any]
    n_samples: int
    n_examples: int
    rollouts_per_example: int
    n_unscored: int
    mean_reward: float | None
    lower_bound: float | None
    summary: dict[str, Any]
    verification: dict[str, Any]
    has_answers: bool  # False: the project keeps questions and answers at home


@dataclass(frozen=True, slots=True)
class Begun:
    evaluation: EvaluationView
    is_new: bool  # False: the key was used before, for this same run


def create(hub: Hub, who: Principal, owner: str, name: str, new: NewEvaluation) -> Begun:
    """Begins an evaluation; with a key used before, the one begun then. Anybody who sees the project may.

    Raises BadRequest for what is wrong in itself, Unprocessable when there is no such release or it has another wheel,
    Conflict when the key was used for another evaluation or for one that is deleted.
    """
    check_new(new)
    run = kept_of_run(new)
    return retried(lambda: _create(hub, who, owner, name, new, run))


def _create(hub: Hub, who: Principal, owner: str, name: str, new: NewEvaluation, run: dict[str, Any]) -> Begun:
    with hub.database.write(seen=False) as session:
        project = _project_to_push_to(session, who, owner, name)
        wanted = Evaluation(
            id=secrets.token_hex(16),
            project_id=project.id,
            wheel_sha256=new.wheel_sha256,
            dirty=new.dirty,
            idempotency_key=new.idempotency_key,
            created_by_id=who.user_id,
            visibility=new.visibility,
            model=new.model,
            name=new.name,
            run=run,
            setup=setup_of(run.get("env_args")),
            pass_threshold=threshold_of(new),
            library_version=new.library_version,
        )
        found = session.scalar(
            select(Evaluation).where(
                Evaluation.created_by_id == who.user_id, Evaluation.idempotency_key == new.idempotency_key
            )
        )
        if found is not None:
            _check_same(found, wanted)
            found.arrived_at = now()  # whoever begins it again goes on with it
            return Begun(view(found), is_new=False)
        if not new.dirty:
            wanted.release_id = bound_release(session, project, new.version, new.wheel_sha256).id
        session.add(wanted)
        session.flush()
        session.refresh(wanted)
        _told(session, who, "evaluation.create", wanted, model=new.model)
        return Begun(view(wanted), is_new=True)


def _project_to_push_to(session: Session, who: Principal, owner: str, name: str) -> Project:
    project = access.project_for_reading(session, who, owner, name)
    if who.is_anonymous:
        raise NotSignedIn("sign in first: vf login")
    if not who.allows("publish"):
        raise Forbidden(f"this token is for '{who.scope}' only; 'publish' is needed", code="token_scope")
    if not who.covers(project.owner_id, project.id):
        raise Forbidden(f"this token is not for '{owner}/{name}'", code="token_elsewhere")
    return project


def _check_same(found: Evaluation, wanted: Evaluation) -> None:
    if found.deleted_at is not None:
        raise Conflict(f"this run was pushed as {found.id} and deleted there: push it under a new idempotency_key")
    same = ("project_id", "wheel_sha256", "dirty", "model", "setup")
    differing = [key for key in same if getattr(found, key) != getattr(wanted, key)]
    if differing:
        raise Conflict(
            f"idempotency_key was used for evaluation {found.id}, which differs in {', '.join(differing)}",
            code="key_reused",
        )


def view(evaluation: Evaluation) -> EvaluationView:
    project = evaluation.project
    same = (
        "id", "wheel_sha256", "dirty", "model", "name", "state", "visibility", "created_at", "completed_at",
        "library_version", "setup", "run", "n_samples", "n_examples", "rollouts_per_example", "n_unscored",
        "mean_reward", "lower_bound", "summary", "verification",
    )  # fmt: skip
    return EvaluationView(
        owner=project.owner.name,
        project=project.name,
        version=None if evaluation.release is None else evaluation.release.version,
        created_by=evaluation.created_by.name,
        has_answers=project.publish_answers,
        **{key: getattr(evaluation, key) for key in same},
    )


def get(hub: Hub, who: Principal, evaluation_id: str) -> EvaluationView:
    with hub.database.read() as session:
        return view(evaluation_for_reading(session, who, evaluation_id))


@dataclass(frozen=True, slots=True)
class EvaluationPage:
    evaluations: Sequence[EvaluationView]
    next_after: str | None  # None: there are no more


def of_project(
    hub: Hub,
    who: Principal,
    owner: str,
    name: str,
    *,
    model: str | None = None,
    version: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> EvaluationPage:
    """The newest first. `after` is the `next_after` of the page before."""
    limit = max(1, min(limit, 200))
    with hub.database.read() as session:
        project = access.project_for_reading(session, who, owner, name)
        wanted = (
            select(Evaluation)
            .join(Evaluation.project)
            .outerjoin(Release, Release.id == Evaluation.release_id)
            .where(Evaluation.project_id == project.id, visible(who))
            .options(
                joinedload(Evaluation.project).joinedload(Project.owner),
                joinedload(Evaluation.release),
                joinedload(Evaluation.created_by),
            )
            .order_by(Evaluation.created_at.desc(), Evaluation.id.desc())
            .limit(limit + 1)
        )
        if model is not None:
            wanted = wanted.where(Evaluation.model == model)
        if version is not None:
            wanted = wanted.where(Release.version == version)
        if after is not None:
            created_at, id = read_cursor(after, "newest", (datetime, str))
            last = tuple_(literal(created_at, Evaluation.created_at.type), literal(id))
            wanted = wanted.where(tuple_(Evaluation.created_at, Evaluation.id) < last)
        found = session.scalars(wanted).all()
        shown = [view(evaluation) for evaluation in found[:limit]]
        is_more = len(found) > limit
        return EvaluationPage(shown, write_cursor("newest", (shown[-1].created_at, shown[-1].id)) if is_more else None)


# Changing


def complete(hub: Hub, who: Principal, evaluation_id: str, claims: dict[str, Any] | None = None) -> EvaluationView:
    """Closes the evaluation: its figures are computed from its samples. Repeating it changes nothing.

    Raises Unprocessable (code `metrics_disagree`) naming the `claims` that the samples do not bear out, or that cannot
    be checked; the evaluation stays open then. Conflict when samples arrive meanwhile.
    """
    with hub.database.read() as session:
        evaluation = evaluation_for_writing(session, who, evaluation_id)
        if evaluation.state != "open":
            check_claims(claims or {}, evaluation.summary)
            return view(evaluation)
        if not evaluation.n_samples:
            raise Unprocessable("the evaluation has no samples: send them before completing it", code="no_samples")
        n_samples, threshold = evaluation.n_samples, evaluation.pass_threshold
    computed = recompute(hub, evaluation_id, pass_threshold=threshold)
    check_claims(claims or {}, computed.summary)
    with hub.database.write(seen=False) as session:
        evaluation = locked(session, evaluation_id)
        if evaluation.state == "open":
            if evaluation.n_samples != n_samples:
                raise Conflict("samples arrived while the evaluation was being completed: complete it again")
            _write_figures(session, evaluation, computed)
            _told(session, who, "evaluation.complete", evaluation)
        return view(evaluation)


def _write_figures(session: Session, evaluation: Evaluation, computed: Recomputed) -> None:
    stats = computed.stats
    evaluation.state, evaluation.completed_at = "complete", now()
    evaluation.summary = computed.summary
    evaluation.n_examples = stats.n_examples
    evaluation.rollouts_per_example = computed.rollouts_per_example
    evaluation.n_unscored = stats.n_unscored
    evaluation.mean_reward = stats.mean
    evaluation.lower_bound = None if stats.bounds is None else stats.bounds.lower
    key = {"project_id": evaluation.project_id, "evaluation_id": evaluation.id}
    for start in range(0, len(computed.rates), 5_000):
        session.execute(insert(ExampleRate), [{**key, **rate} for rate in computed.rates[start : start + 5_000]])


def set_visibility(hub: Hub, who: Principal, evaluation_id: str, visibility: str) -> EvaluationView:
    """Whoever pushed it chooses; an owner of the project may hide it (`private`), never show it."""
    if visibility not in VISIBILITIES:
        raise BadRequest(f"visibility is one of {', '.join(VISIBILITIES)}, not '{visibility}'")
    with hub.database.write(seen=False) as session:
        evaluation = evaluation_for_changing(session, who, evaluation_id)
        if evaluation.created_by_id != who.user_id and visibility != "private":
            raise Forbidden(f"only {evaluation.created_by.name}, who pushed it, may show it to more people")
        before, evaluation.visibility = evaluation.visibility, visibility
        _told(session, who, "evaluation.visibility", evaluation, before=before, after=visibility)
        return view(evaluation)


def remove(hub: Hub, who: Principal, evaluation_id: str) -> None:
    """Deletes the samples for good. The evaluation's row stays as a tombstone, so that its key is not used again."""
    with hub.database.write(seen=False) as session:
        evaluation = evaluation_for_changing(session, who, evaluation_id)
        evaluation.deleted_at = now()
        evaluation.summary, evaluation.verification, evaluation.run = {}, {}, {}
        _told(session, who, "evaluation.delete", evaluation)
    delete_samples(hub, evaluation_id)


def _told(session: Session, who: Principal, action: str, evaluation: Evaluation, **detail: Any) -> None:
    """In the audit log; of a private evaluation the environment's owner is told nothing, only the hub's operator."""
    project = None if evaluation.visibility == "private" else evaluation.project
    audit.record(session, who, action, project=project, target=evaluation.id, **detail)
