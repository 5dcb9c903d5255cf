"""Validation: `vf-validate` run over a release in a sandbox by `vf-hub worker`, its report kept for the release's page.

A report is what a process that the package ran in said. It helps honest authors; it is no proof against hostile ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from hub_server.errors import Conflict
from hub_server.hub import Hub
from hub_server.models import Project, Release, Validation
from hub_server.principal import Principal
from hub_server.services import access, audit, job_queue
from hub_server.services.details import release_named
from hub_server.services.sandboxed import Ended, NotPossible, Packages, lay_out, run_inside

Verdict = Literal["passed", "failed", "not_validated"]
MOST_CHECKS = 100
MOST_TEXT = 1_000  # characters of one reason


class Check(msgspec.Struct, frozen=True):
    name: str
    status: str  # ok, failed, not applicable
    reason: str = ""


class Report(msgspec.Struct, frozen=True):
    """What `vf-validate --json` prints."""

    env: str
    version: str | None
    ok: bool
    checks: list[Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationView:
    id: int
    version: str
    state: str  # queued, running, done, failed
    verdict: str | None  # passed, failed, not_validated; None: not done yet
    reason: str
    checks: Sequence[Check]
    usage: dict[str, Any]  # wall_s, cpu_s, peak_memory_mb
    created_at: datetime
    finished_at: datetime | None


def request(hub: Hub, who: Principal, owner: str, name: str, version: str) -> ValidationView:
    """Queues a release once more. Raises Conflict when it waits already, or when this hub validates nothing."""
    if not hub.settings.validation:
        raise Conflict("this hub validates nothing: its operator has VF_HUB_VALIDATION off", code="switched_off")
    with hub.database.write() as session:
        project = access.project_for(session, who, owner, name, role="maintainer", scope="publish")
        release = release_named(session, project, version)
        if session.scalar(_open().where(Validation.release_id == release.id)) is not None:
            raise Conflict(f"version {release.version} waits for its validation already", code="queued")
        job = Validation(release_id=release.id)
        session.add(job)
        session.flush()
        audit.record(session, who, "validation.request", project=project, target=release.version)
        session.refresh(job)
        return _view(job)


def enqueue_missing(hub: Hub, limit: int = 100) -> int:
    """Queues published releases that were never validated, the newest first; how many."""
    with hub.database.write(seen=False) as session:
        known = select(Validation.release_id)
        wanted = (
            select(Release.id)
            .join(Release.project)
            .where(Release.state == "published", Release.deleted_at.is_(None), Project.deleted_at.is_(None))
            .where(Release.id.not_in(known))
            .order_by(Release.id.desc())
            .limit(limit)
        )
        found = list(session.scalars(wanted))
        session.add_all(Validation(release_id=id) for id in found)
        return len(found)


def of_project(
    hub: Hub, who: Principal, owner: str, name: str, *, version: str | None = None, limit: int = 50
) -> list[ValidationView]:
    """The newest first."""
    with hub.database.read() as session:
        project = access.project_for_reading(session, who, owner, name)
        wanted = (
            select(Validation)
            .join(Validation.release)
            .where(Release.project_id == project.id, Release.deleted_at.is_(None))
            .options(joinedload(Validation.release))
            .order_by(Validation.id.desc())
            .limit(max(1, min(limit, 200)))
        )
        if version is not None:
            wanted = wanted.where(Release.version == version)
        return [_view(job) for job in session.scalars(wanted)]


def latest(session: Session, release: Release) -> ValidationView | None:
    """The newest finished validation of a release, for its page."""
    found = session.scalar(
        select(Validation)
        .where(Validation.release_id == release.id, Validation.state == "done")
        .order_by(Validation.id.desc())
        .limit(1)
        .options(joinedload(Validation.release))
    )
    return None if found is None else _view(found)


def _open() -> Any:
    return select(Validation.id).where(Validation.state.in_(("queued", "running"))).limit(1)


def _view(job: Validation) -> ValidationView:
    return ValidationView(
        id=job.id,
        version=job.release.version,
        state=job.state,
        verdict=job.verdict,
        reason=job.reason,
        checks=msgspec.convert(job.report.get("checks", []), list[Check]),
        usage=job.report.get("usage", {}),
        created_at=job.created_at,
        finished_at=job.finished_at,
    )


# The work


@dataclass(frozen=True, slots=True)
class Judged:
    verdict: Verdict
    reason: str
    report: dict[str, Any]


def work(hub: Hub, job_id: int, worker: str) -> None:
    """Validates the release of a job that `worker` holds, and writes the verdict unless it lost the job meanwhile."""
    judged = _judge(hub, job_id)
    with hub.database.write() as session:
        job = job_queue.held(session, Validation, job_id, worker)
        if job is not None:
            job_queue.finish(job, judged.verdict, judged.reason, judged.report)


def _judge(hub: Hub, job_id: int) -> Judged:
    try:
        with hub.database.read() as session:
            release = session.get_one(Validation, job_id).release
            if release.deleted_at is not None:
                raise NotPossible("the release was deleted")
            packages = Packages.of(release)
        with tempfile.TemporaryDirectory(prefix="vf-worker-") as made:
            folder = Path(made)
            lay_out(hub, packages, folder)
            arguments = ["-m", "verifiers.cli.main", "validate", packages.name, "--json"]
            return judge(run_inside(hub.settings, folder, arguments), packages.version)
    except NotPossible as error:
        return Judged("not_validated", str(error), {})


def judge(ended: Ended, version: str) -> Judged:
    """What the program's end and its report amount to. What it printed comes from a stranger, and is read as such."""
    usage = {"usage": ended.usage}
    if ended.outcome not in ("ok", "nonzero-exit"):
        return Judged("not_validated", f"the validation ended by a limit of its sandbox: {ended.outcome}", usage)
    try:
        report = msgspec.json.decode(ended.stdout.strip().rpartition("\n")[2], type=Report)
    except (msgspec.DecodeError, RecursionError):
        said = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return Judged("not_validated", f"the validation gave no report: {said[:MOST_TEXT]}", usage)
    checks = [
        {"name": check.name[:100], "status": check.status[:20], "reason": check.reason[:MOST_TEXT]}
        for check in report.checks[:MOST_CHECKS]
    ]
    kept = {"checks": checks, **usage}
    failed = [check["name"] for check in checks if check["status"] == "failed"]
    if report.version != version:
        return Judged("failed", f"what was installed says it is version {str(report.version)[:40]}", kept)
    if not failed and report.ok:
        return Judged("passed", "", kept)
    network = next((check["reason"] for check in checks if check["name"] == "network"), "")
    if "asked for" in network and "none was asked for" not in network:
        return Judged("not_validated", f"needs network, and a validation has none: {network}", kept)
    return Judged("failed", f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}"[:MOST_TEXT], kept)
