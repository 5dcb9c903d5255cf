"""The first schema."""

from alembic import op

from hub_server.models import Base
from hub_server.services.search import create_search, drop_search

revision = "0001"
down_revision = None


def upgrade() -> None:
    Base.metadata.create_all(op.get_bind())
    create_search(op.get_bind())


def downgrade() -> None:
    drop_search(op.get_bind())
    Base.metadata.drop_all(op.get_bind())
