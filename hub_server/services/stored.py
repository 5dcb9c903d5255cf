"""Which stored files the rows name: everything else in the storage is an orphan."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub_server.models import File, SampleChunk


def stored_keys(session: Session) -> set[str]:
    """Every key that a row needs. Deleted releases and evaluations keep their rows, and so their files."""
    keys = {f"files/{sha256}" for sha256 in session.scalars(select(File.sha256))}
    keys |= {f"metadata/{sha}" for sha in session.scalars(select(File.metadata_sha256).distinct()) if sha}
    keys |= set(session.scalars(select(SampleChunk.key)))
    return keys
