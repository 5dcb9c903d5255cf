"""The versions of the schema: they make what the models say, wholly or not at all, and go back."""

import subprocess
import sys
from contextlib import contextmanager

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from hub_servers import empty_database
from sqlalchemy import inspect, text

import hub_server.migrations as migrations
from hub_server.db import Database
from hub_server.models import Account, Base, Project, Release
from hub_server.settings import Settings

OUR_OWN_SEARCH = "project_search"  # with SQLite's tables below it


@pytest.fixture
def database(tmp_path):
    """With nothing in it."""
    with empty_database() as address:
        database = Database(Settings(data=tmp_path, database_url=address).database)
        yield database
        database.close()


@contextmanager
def begun(database):
    with database.engine.connect().execution_options(vf_hub_write=True) as connection, connection.begin():
        yield connection


def named(database):
    """Everything that is there by name: tables, and those of the search."""
    return set(inspect(database.engine).get_table_names())


def is_ours(name):
    return not name.startswith(OUR_OWN_SEARCH) and name != "alembic_version"


def moved(database, way, revision):
    with begun(database) as connection:
        config = migrations.configuration()
        config.attributes["connection"] = connection
        way(config, revision)


def head():
    return ScriptDirectory.from_config(migrations.configuration()).get_current_head()


def test_the_versions_make_exactly_what_the_models_say(database):
    migrations.migrate(database)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "include_name": lambda name, kind, parents: kind != "table" or is_ours(name),
            },
        )
        assert compare_metadata(context, Base.metadata) == []
    assert OUR_OWN_SEARCH in named(database)


def test_the_models_by_themselves_make_the_same_columns_indexes_and_keys(database, tmp_path):
    migrations.migrate(database)
    with empty_database() as address:
        other = Database(Settings(data=tmp_path / "other", database_url=address).database)
        (tmp_path / "other").mkdir(exist_ok=True)
        Base.metadata.create_all(other.engine)
        assert described(database) == described(other)
        other.close()


def described(database):
    found = inspect(database.engine)
    return {
        name: {
            "columns": {c["name"]: (str(c["type"]), c["nullable"]) for c in found.get_columns(name)},
            "key": found.get_pk_constraint(name)["constrained_columns"],
            "indexes": {tuple(index["column_names"]) for index in found.get_indexes(name)},
            "unique": {tuple(sorted(one["column_names"])) for one in found.get_unique_constraints(name)},
            "foreign": {
                (tuple(key["constrained_columns"]), key["referred_table"]) for key in found.get_foreign_keys(name)
            },
        }
        for name in named(database)
        if is_ours(name)
    }


def test_migrating_twice_changes_nothing(database):
    migrations.migrate(database)
    first = described(database)
    with database.write() as session:
        value = session.scalar(text("SELECT value FROM generation"))
    migrations.migrate(database)
    assert described(database) == first
    with database.read() as session:
        assert session.scalar(text("SELECT value FROM generation")) == value + 1, "the write above, and no more"


def test_all_versions_can_be_taken_back_and_made_again(database):
    migrations.migrate(database)
    first = described(database)
    with database.write() as session:  # two tables that point at each other
        project = Project(owner=Account(kind="user", name="ada"), name="x", normalized="x", ultra_normalized="x")
        project.latest_release = Release(project=project, version="1")
        session.add(project)
    moved(database, command.downgrade, "base")
    assert {name for name in named(database) if name != "alembic_version"} == set()
    migrations.migrate(database)
    assert described(database) == first


@pytest.fixture
def broken_versions(tmp_path, monkeypatch):
    """One more version, which fails after it has changed something."""
    folder = tmp_path / "versions"
    folder.mkdir()
    (folder / "9998_breaks.py").write_text(
        f"revision = '9998'\ndown_revision = {head()!r}\n"
        "from alembic import op\n\n\ndef upgrade():\n"
        "    op.execute('CREATE TABLE half_way (id INTEGER PRIMARY KEY)')\n"
        "    op.execute('ALTER TABLE account ADD COLUMN nickname VARCHAR(10)')\n"
        "    op.execute('INSERT INTO half_way VALUES (1)')\n"
        "    op.execute('ALTER TABLE no_such_table ADD COLUMN x INTEGER')\n"
    )
    plain = migrations.configuration

    def with_one_more():
        config = plain()
        ours = plain().get_main_option("script_location")
        config.set_main_option("path_separator", "os")
        config.set_main_option("version_locations", f"{ours}/versions:{folder}")
        return config

    return lambda: monkeypatch.setattr(migrations, "configuration", with_one_more)


def test_item_33_a_version_that_fails_half_way_leaves_the_schema_as_it_was(database, broken_versions):
    migrations.migrate(database)
    with database.write() as session:
        session.execute(text("UPDATE generation SET value = 77"))
    first, names, revision = described(database), named(database), head()
    broken_versions()
    with pytest.raises(Exception, match="no_such_table"):
        migrations.migrate(database)
    assert (described(database), named(database)) == (first, names)
    with database.read() as session:
        assert session.scalar(text("SELECT value FROM generation")) == 78
        assert migrations.revision_of(session.connection()) == revision


def test_item_33_an_empty_database_stays_empty_when_a_later_version_fails(database, broken_versions):
    broken_versions()
    with pytest.raises(Exception, match="no_such_table"):
        migrations.migrate(database)
    assert named(database) == set()


def test_item_33_a_database_of_a_newer_hub_is_refused_and_not_touched(database):
    migrations.migrate(database)
    with begun(database) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(migrations.NewerSchema, match=r"at schema 9999, which this release \(\w+\) does not know"):
        migrations.migrate(database)
    with database.read() as session:
        assert migrations.revision_of(session.connection()) == "9999"


def test_two_processes_that_start_at_once_make_one_schema(tmp_path):
    with empty_database() as address:
        url = Settings(data=tmp_path, database_url=address).database
        program = (
            "import sys; from hub_server.db import Database; from hub_server.migrations import migrate;"
            "database = Database(sys.argv[1]); sys.stdin.readline(); migrate(database); database.close()"
        )
        both = [
            subprocess.Popen(
                [sys.executable, "-c", program, url],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            for _ in range(2)
        ]  # fmt: skip
        for process in both:
            assert process.stdin
            process.stdin.write(b"go\n")
            process.stdin.flush()
        for process in both:
            said = process.communicate(timeout=120)[0]
            assert process.returncode == 0, said.decode()
        database = Database(url)
        with database.read() as session:
            assert session.scalar(text("SELECT count(*) FROM generation")) == 1
            assert migrations.revision_of(session.connection()) == head()
        database.close()
