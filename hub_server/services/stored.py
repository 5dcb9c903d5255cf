"""Which stored files the rows name: everything else in the storage is an orphan."""

from __future__ import annotations

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from hub_server.models import File, SampleChunk, StagedFile

_SWEEPING = 0x7666_6875_62  # the number of PostgreSQL's advisory lock


def stored_keys(session: Session) -> set[str]:
    """Every key that a row needs. Deleted releases and evaluations keep their rows, and so their files."""
    keys = {f"files/{sha256}" for sha256 in session.scalars(select(File.sha256))}
    keys |= {f"metadata/{sha}" for sha in session.scalars(select(File.metadata_sha256).distinct()) if sha}
    keys |= {f"files/{sha256}" for sha256 in session.scalars(select(StagedFile.sha256))}
    keys |= set(session.scalars(select(SampleChunk.key)))
    return keys


def hold_stored(session: Session) -> None:
    """Until the transaction ends, no file is swept: between looking that it is there and committing its row.

    On SQLite a write transaction is alone anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"SELECT pg_advisory_xact_lock_shared({_SWEEPING})"))


def hold_sweeping(session: Session) -> None:
    """Waits for those that hold stored files, and keeps others waiting until the transaction ends."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"SELECT pg_advisory_xact_lock({_SWEEPING})"))
