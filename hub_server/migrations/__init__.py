"""The schema's versions. `migrate` brings a database up to the code's; one that is newer than the code is refused."""

from __future__ import annotations

from sqlalchemy import select

from hub_server.db import Database
from hub_server.models import Base, Generation


def migrate(database: Database) -> None:
    Base.metadata.create_all(database.engine)
    with database.write(seen=False) as session:
        if session.scalar(select(Generation)) is None:
            session.add(Generation(id=1, value=1))
