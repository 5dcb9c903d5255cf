"""Queues of work for `vf-hub worker`: a row is taken by its lease, and free again when its worker has gone silent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from hub_server.hub import Hub
from hub_server.models import Rescoring, Validation, now

Job = Validation | Rescoring
LEASE_S = 120.0  # renewed while the work goes on
MOST_ATTEMPTS = 3


def take(hub: Hub, kind: type[Job], worker: str) -> int | None:
    """The oldest job that nobody works on; `None` when there is none. It is this worker's for `LEASE_S`."""
    while True:
        with hub.database.write(seen=False) as session:
            is_free = or_(kind.state == "queued", and_(kind.state == "running", kind.lease_until < now()))
            oldest = select(kind).where(is_free).order_by(kind.id).limit(1)
            job = session.scalar(oldest.with_for_update(skip_locked=True, of=kind))
            if job is None:
                return None
            if job.attempts < MOST_ATTEMPTS:
                job.state, job.worker, job.attempts = "running", worker, job.attempts + 1
                job.lease_until = now() + timedelta(seconds=LEASE_S)
                return job.id
            # It takes its worker down with it each time.
            _end(job, "failed", None, f"given up after {job.attempts} attempts: no worker came back from it", {})


def renew(hub: Hub, kind: type[Job], job_id: int, worker: str) -> bool:
    """Whether the job is still this worker's, which it then is for another `LEASE_S`."""
    with hub.database.write(seen=False) as session:
        job = held(session, kind, job_id, worker)
        if job is None:
            return False
        job.lease_until = now() + timedelta(seconds=LEASE_S)
        return True


def held(session: Session, kind: type[Job], job_id: int, worker: str) -> Any:
    """The job if `worker` still holds it: one whose lease ran out may be another's by now."""
    return session.scalar(
        select(kind).where(kind.id == job_id, kind.worker == worker, kind.state == "running").with_for_update(of=kind)
    )


def finish(job: Job, verdict: str, reason: str, report: dict[str, Any]) -> None:
    _end(job, "done", verdict, reason, report)


def _end(job: Job, state: str, verdict: str | None, reason: str, report: dict[str, Any]) -> None:
    job.state, job.verdict, job.report = state, verdict, report
    job.reason = reason.replace("\0", "")[:2_000]  # PostgreSQL has no text with it
    job.lease_until, job.finished_at = None, now()


def give_back(hub: Hub, kind: type[Job], job_id: int, worker: str) -> None:
    """Leaves the job to the next attempt."""
    with hub.database.write(seen=False) as session:
        job = held(session, kind, job_id, worker)
        if job is not None:
            job.state, job.lease_until = "queued", None
