"""The schema's versions. `migrate` brings a database up to the code's; one that is newer than the code is refused.

Each version is a file in `versions/`, never changed after a release. `python scripts/hub_migration.py "what changes"`
writes the next one from the difference between `models.py` and the versions so far.
"""

from __future__ import annotations

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, select, text

from hub_server.db import Database
from hub_server.errors import HubError
from hub_server.models import Generation

logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells of every start what is always so

LOCK = 0x76665F687562  # PostgreSQL's advisory lock of whoever migrates: "vf_hub"


class NewerSchema(HubError):
    status, code = 500, "newer_schema"


def migrate(database: Database) -> None:
    """All in one transaction: a version that fails half-way leaves the schema as it was. Several workers may start at
    once; the first migrates and the others wait. Raises NewerSchema."""
    with database.engine.connect().execution_options(vf_hub_write=True) as connection, connection.begin():
        if not database.is_sqlite:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
        config = configuration()
        found, known = revision_of(connection), ScriptDirectory.from_config(config)
        if found is not None and found not in {script.revision for script in known.walk_revisions()}:
            raise NewerSchema(
                f"this database is at schema {found}, which this release ({known.get_current_head()}) does not know: "
                "it was written by a newer hub. Start that release, or restore a backup made before it"
            )
        if found != known.get_current_head():
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        if connection.scalar(select(Generation.value)) is None:
            connection.execute(Generation.__table__.insert().values(id=1, value=1))  # pyright: ignore[reportAttributeAccessIssue]


def configuration() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    return config


def revision_of(connection: Connection) -> str | None:
    """The schema's version; `None` for an empty database."""
    return MigrationContext.configure(connection).get_current_revision()
