"""What Alembic runs to bring a schema up to date: always on the connection, and in the transaction, it is handed."""

from alembic import context

from hub_server.models import Base, Moment

TABLES = set(Base.metadata.tables)


def render_item(kind, item, autogen_context):  # pyright: ignore[reportMissingParameterType]
    """A version names only SQLAlchemy's own types, so that it means the same when ours have changed."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, Moment) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transaction_per_migration=False,
    transactional_ddl=True,  # of SQLite too: `db.py` begins its transactions itself
    render_item=render_item,
    render_as_batch=True,  # SQLite cannot alter a table in place
    # The search's own tables are made by `services/search.py`.
    include_name=lambda name, kind, parents: kind != "table" or name in TABLES,
)
context.run_migrations()
