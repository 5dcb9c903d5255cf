"""The first schema."""

import sqlalchemy as sa
from alembic import op

from hub_server.services.search import create_search, drop_search

revision = "0001"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TABLES = (
    "staged_file",
    "sample_chunk",
    "sample",
    "rescoring",
    "example_rate",
    "validation",
    "staged",
    "file",
    "evaluation",
    "dependency",
    "token",
    "star",
    "release",
    "facet",
    "collaborator",
    "audit_event",
    "session",
    "project",
    "membership",
    "device",
    "rate_count",
    "generation",
    "account",
)  # each before what it points at


def upgrade() -> None:
    _people()
    _projects()
    _releases()
    _evaluations()
    _jobs()
    if op.get_bind().dialect.name != "sqlite":  # where the table above has it already
        op.create_foreign_key("project_latest_release", "project", "release", ["latest_release_id"], ["id"])
    create_search(op.get_bind())


def _people() -> None:
    op.create_table(
        "account",
        sa.Column("id", ID, nullable=False),
        sa.Column("kind", sa.String(length=12), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("display_name", sa.String(length=200), nullable=False),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "generation",
        sa.Column("id", ID, autoincrement=False, nullable=False),
        sa.Column("value", ID, nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "rate_count",
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("window", ID, autoincrement=False, nullable=False),
        sa.Column("count", ID, nullable=False),
        sa.PrimaryKeyConstraint("key", "window"),
    )
    op.create_index("rate_count_window", "rate_count", ["window"])

    op.create_table(
        "device",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("user_code", sa.String(length=9), nullable=False),
        sa.Column("client_name", sa.String(length=80), nullable=False),
        sa.Column("scope", sa.String(length=8), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("user_id", ID, nullable=True),
        sa.Column("is_denied", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("sha256"),
        sa.UniqueConstraint("user_code"),
    )
    op.create_table(
        "membership",
        sa.Column("organisation_id", ID, nullable=False),
        sa.Column("user_id", ID, nullable=False),
        sa.Column("role", sa.String(length=12), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["organisation_id"], ["account.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("organisation_id", "user_id"),
    )
    op.create_index(op.f("ix_membership_user_id"), "membership", ["user_id"])


def _projects() -> None:
    op.create_table(
        "project",
        sa.Column("id", ID, nullable=False),
        sa.Column("owner_id", ID, nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("normalized", sa.String(length=100), nullable=False),
        sa.Column("ultra_normalized", sa.String(length=100), nullable=False),
        sa.Column("visibility", sa.String(length=8), nullable=False),
        sa.Column("status", sa.String(length=12), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=False),
        sa.Column("publish_answers", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("moved_to_id", ID, nullable=True),
        sa.Column("latest_release_id", ID, nullable=True),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("task_type", sa.String(length=40), nullable=False),
        sa.Column("n_stars", ID, nullable=False),
        sa.Column("n_downloads", ID, nullable=False),
        sa.Column("forked_from_id", ID, nullable=True),
        sa.Column("forked_from_version", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["forked_from_id"], ["project.id"]),
        sa.ForeignKeyConstraint(["latest_release_id"], ["release.id"], name="project_latest_release", use_alter=True),
        sa.ForeignKeyConstraint(["moved_to_id"], ["project.id"]),
        sa.ForeignKeyConstraint(["owner_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("owner_id", "normalized"),
        sa.UniqueConstraint("owner_id", "ultra_normalized"),
    )
    op.create_index(op.f("ix_project_forked_from_id"), "project", ["forked_from_id"])
    op.create_index(op.f("ix_project_moved_to_id"), "project", ["moved_to_id"])
    op.create_index(op.f("ix_project_owner_id"), "project", ["owner_id"])
    op.create_index("project_by_created", "project", ["created_at", "normalized"])
    op.create_index("project_by_updated", "project", ["updated_at", "created_at", "normalized"])
    op.create_index("project_by_name", "project", ["normalized", "created_at"])
    op.create_index("project_by_stars", "project", ["n_stars", "created_at", "normalized"])
    op.create_index("project_by_downloads", "project", ["n_downloads", "created_at", "normalized"])

    op.create_table(
        "session",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("user_id", ID, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_index(op.f("ix_session_user_id"), "session", ["user_id"])

    op.create_table(
        "audit_event",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=60), nullable=False),
        sa.Column("owner_id", ID, nullable=True),
        sa.Column("project_id", ID, nullable=True),
        sa.Column("target", sa.String(length=300), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["account.id"]),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_audit_event_at"), "audit_event", ["at"])
    op.create_index(op.f("ix_audit_event_owner_id"), "audit_event", ["owner_id"])
    op.create_index(op.f("ix_audit_event_project_id"), "audit_event", ["project_id"])

    op.create_table(
        "collaborator",
        sa.Column("project_id", ID, nullable=False),
        sa.Column("user_id", ID, nullable=False),
        sa.Column("role", sa.String(length=12), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("project_id", "user_id"),
    )
    op.create_index(op.f("ix_collaborator_user_id"), "collaborator", ["user_id"])

    op.create_table(
        "facet",
        sa.Column("kind", sa.String(length=12), nullable=False),
        sa.Column("value", sa.String(length=100), nullable=False),
        sa.Column("project_id", ID, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"]),
        sa.PrimaryKeyConstraint("kind", "value", "project_id"),
    )
    op.create_index(op.f("ix_facet_project_id"), "facet", ["project_id"])


def _releases() -> None:
    op.create_table(
        "release",
        sa.Column("id", ID, nullable=False),
        sa.Column("project_id", ID, nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("published_by_id", ID, nullable=True),
        sa.Column("is_final", sa.Boolean(), nullable=False),
        sa.Column("yanked", sa.Boolean(), nullable=False),
        sa.Column("yanked_reason", sa.Text(), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("requires_python", sa.Text(), nullable=True),
        sa.Column("requires_dist", sa.JSON(), nullable=False),
        sa.Column("license", sa.Text(), nullable=False),
        sa.Column("readme_html", sa.Text(), nullable=False),
        sa.Column("readme_text", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.String(length=80), nullable=True),
        sa.Column("metadata_json", sa.JSON(), nullable=False),
        sa.Column("declaration", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"]),
        sa.ForeignKeyConstraint(["published_by_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "version"),
    )
    op.create_index(op.f("ix_release_project_id"), "release", ["project_id"])

    op.create_table(
        "star",
        sa.Column("project_id", ID, nullable=False),
        sa.Column("user_id", ID, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("project_id", "user_id"),
    )
    op.create_index(op.f("ix_star_user_id"), "star", ["user_id"])

    op.create_table(
        "token",
        sa.Column("id", ID, nullable=False),
        sa.Column("user_id", ID, nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("prefix", sa.String(length=20), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=8), nullable=False),
        sa.Column("owner_id", ID, nullable=True),
        sa.Column("project_id", ID, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["account.id"]),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["account.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sha256"),
    )
    op.create_index(op.f("ix_token_user_id"), "token", ["user_id"])

    op.create_table(
        "dependency",
        sa.Column("release_id", ID, nullable=False),
        sa.Column("normalized", sa.String(length=100), nullable=False),
        sa.Column("requirement", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["release_id"], ["release.id"]),
        sa.PrimaryKeyConstraint("release_id", "normalized"),
    )
    op.create_index(op.f("ix_dependency_normalized"), "dependency", ["normalized"])


def _evaluations() -> None:
    op.create_table(
        "evaluation",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("project_id", ID, nullable=False),
        sa.Column("release_id", ID, nullable=True),
        sa.Column("wheel_sha256", sa.String(length=80), nullable=True),
        sa.Column("dirty", sa.Boolean(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=128), nullable=False),
        sa.Column("created_by_id", ID, nullable=False),
        sa.Column("visibility", sa.String(length=8), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("run", sa.JSON(), nullable=False),
        sa.Column("setup", sa.String(length=16), nullable=False),
        sa.Column("pass_threshold", sa.Double(), nullable=False),
        sa.Column("library_version", sa.String(length=40), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("arrived_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("n_samples", ID, nullable=False),
        sa.Column("n_examples", ID, nullable=False),
        sa.Column("rollouts_per_example", ID, nullable=False),
        sa.Column("n_unscored", ID, nullable=False),
        sa.Column("mean_reward", sa.Double(), nullable=True),
        sa.Column("lower_bound", sa.Double(), nullable=True),
        sa.Column("summary", sa.JSON(), nullable=False),
        sa.Column("verification", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["created_by_id"], ["account.id"]),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"]),
        sa.ForeignKeyConstraint(["release_id"], ["release.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("created_by_id", "idempotency_key"),
    )
    op.create_index("evaluation_by_state", "evaluation", ["state", "arrived_at"])
    op.create_index(op.f("ix_evaluation_created_by_id"), "evaluation", ["created_by_id"])
    op.create_index(op.f("ix_evaluation_deleted_at"), "evaluation", ["deleted_at"])
    op.create_index(op.f("ix_evaluation_project_id"), "evaluation", ["project_id"])
    op.create_index(op.f("ix_evaluation_release_id"), "evaluation", ["release_id"])

    op.create_table(
        "file",
        sa.Column("id", ID, nullable=False),
        sa.Column("release_id", ID, nullable=False),
        sa.Column("project_id", ID, nullable=False),
        sa.Column("filename", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=6), nullable=False),
        sa.Column("size_bytes", ID, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("metadata_sha256", sa.String(length=64), nullable=True),
        sa.Column("requires_python", sa.Text(), nullable=True),
        sa.Column("members", sa.JSON(), nullable=False),
        sa.Column("uploaded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("n_downloads", ID, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"]),
        sa.ForeignKeyConstraint(["release_id"], ["release.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "filename"),
    )
    op.create_index(op.f("ix_file_release_id"), "file", ["release_id"])
    op.create_index(op.f("ix_file_sha256"), "file", ["sha256"])

    op.create_table(
        "staged",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("owner_id", ID, nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("normalized", sa.String(length=100), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("created_by_id", ID, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("release_id", ID, nullable=True),
        sa.ForeignKeyConstraint(["created_by_id"], ["account.id"]),
        sa.ForeignKeyConstraint(["owner_id"], ["account.id"]),
        sa.ForeignKeyConstraint(["release_id"], ["release.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_staged_expires_at"), "staged", ["expires_at"])


def _jobs() -> None:
    op.create_table(
        "validation",
        sa.Column("id", ID, nullable=False),
        sa.Column("release_id", ID, nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("worker", sa.String(length=100), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", ID, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["release_id"], ["release.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_validation_release_id"), "validation", ["release_id"])
    op.create_index(op.f("ix_validation_state"), "validation", ["state"])

    op.create_table(
        "example_rate",
        sa.Column("project_id", ID, nullable=False),
        sa.Column("evaluation_id", sa.String(length=32), nullable=False),
        sa.Column("example_id", ID, autoincrement=False, nullable=False),
        sa.Column("n", ID, nullable=False),
        sa.Column("n_scored", ID, nullable=False),
        sa.Column("n_passed", ID, nullable=False),
        sa.Column("mean_reward", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluation.id"]),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"]),
        sa.PrimaryKeyConstraint("project_id", "evaluation_id", "example_id"),
    )
    op.create_table(
        "rescoring",
        sa.Column("id", ID, nullable=False),
        sa.Column("evaluation_id", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("worker", sa.String(length=100), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", ID, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluation.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_rescoring_evaluation_id"), "rescoring", ["evaluation_id"])
    op.create_index(op.f("ix_rescoring_state"), "rescoring", ["state"])

    op.create_table(
        "sample",
        sa.Column("evaluation_id", sa.String(length=32), nullable=False),
        sa.Column("example_id", ID, autoincrement=False, nullable=False),
        sa.Column("rollout_index", ID, autoincrement=False, nullable=False),
        sa.Column("chunk", ID, nullable=False),
        sa.Column("line", ID, nullable=False),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("digest", sa.String(length=32), nullable=False),
        sa.Column("row", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluation.id"]),
        sa.PrimaryKeyConstraint("evaluation_id", "example_id", "rollout_index"),
    )
    op.create_table(
        "sample_chunk",
        sa.Column("evaluation_id", sa.String(length=32), nullable=False),
        sa.Column("ordinal", ID, autoincrement=False, nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("n_samples", ID, nullable=False),
        sa.Column("size_bytes", ID, nullable=False),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluation.id"]),
        sa.PrimaryKeyConstraint("evaluation_id", "ordinal"),
    )
    op.create_table(
        "staged_file",
        sa.Column("staged_id", sa.String(length=32), nullable=False),
        sa.Column("filename", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=6), nullable=False),
        sa.Column("size_bytes", ID, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["staged_id"], ["staged.id"]),
        sa.PrimaryKeyConstraint("staged_id", "filename"),
    )


def downgrade() -> None:
    drop_search(op.get_bind())
    if op.get_bind().dialect.name != "sqlite":
        op.drop_constraint("project_latest_release", "project", type_="foreignkey")
    else:
        op.execute("PRAGMA defer_foreign_keys = ON")  # projects and releases point at each other
    for table in TABLES:
        op.drop_table(table)
