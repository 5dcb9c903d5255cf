"""Evaluations left open: begun, and never completed. After some days without a sample they go, samples and all.

The row stays as a tombstone, so that whoever comes back to its id is told what happened; its key is free again, so that
pushing the same run once more simply begins anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import and_, exists, or_, select

from hub_server.errors import NotFound
from hub_server.hub import Hub
from hub_server.models import Evaluation, Sample, SampleChunk
from hub_server.principal import NOBODY
from hub_server.services import audit
from hub_server.services.evaluation_access import LEFT_OPEN, locked
from hub_server.services.sample_chunks import delete_samples


def remove_left_open(hub: Hub, moment: datetime) -> int:
    """Into which nothing has come for `evaluation_open_days` before `moment`."""
    before = moment - timedelta(days=hub.settings.evaluation_open_days)
    is_late = and_(Evaluation.state == "open", Evaluation.deleted_at.is_(None), Evaluation.arrived_at < before)
    with hub.database.read() as session:
        late = session.scalars(select(Evaluation.id).where(is_late)).all()
    return sum(_remove(hub, evaluation_id, before, moment) for evaluation_id in late)


def remove_samples_of_deleted(hub: Hub, before: datetime) -> None:
    """Of evaluations deleted before that moment, where a crash came between the tombstone and the samples."""
    has_samples = or_(*(exists().where(table.evaluation_id == Evaluation.id) for table in (SampleChunk, Sample)))
    with hub.database.read() as session:
        forgotten = session.scalars(select(Evaluation.id).where(Evaluation.deleted_at < before, has_samples)).all()
    for evaluation_id in forgotten:
        delete_samples(hub, evaluation_id)


def _remove(hub: Hub, evaluation_id: str, before: datetime, moment: datetime) -> bool:
    """False: samples arrived, it was completed or it was deleted since it was looked for."""
    try:
        with hub.database.write(seen=False) as session:
            evaluation = locked(session, evaluation_id)
            if evaluation.state != "open" or evaluation.arrived_at >= before:
                return False
            project = None if evaluation.visibility == "private" else evaluation.project
            audit.record(session, NOBODY, "evaluation.left_open", project=project, target=evaluation.id)
            evaluation.state, evaluation.deleted_at, evaluation.run = LEFT_OPEN, moment, {}
            evaluation.idempotency_key = f"left open {evaluation.id}"  # clients' keys have no space
    except NotFound:
        return False
    delete_samples(hub, evaluation_id)
    return True
