"""Writes the hub's next schema version from what `hub_server/models.py` says: python scripts/hub_migration.py "what"

The file is a draft: read it, and see tests/hub/test_migrations.py pass on SQLite and on PostgreSQL. A foreign key with
`use_alter` is to be added by hand on PostgreSQL, as in the first version."""

import sys
import tempfile
from pathlib import Path

from alembic import command

from hub_server.db import Database
from hub_server.migrations import configuration


def main(message: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'hub.db'}")
        config = configuration()
        with database.engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            number = len(list((Path(config.get_main_option("script_location") or "") / "versions").glob("0*.py"))) + 1
            command.revision(config, message, autogenerate=True, rev_id=f"{number:04}")
        database.close()


if __name__ == "__main__":
    main(sys.argv[1])
