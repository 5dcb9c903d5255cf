"""The hub's tables. Names of owners and projects, file names and versions are never used twice: rows are kept.

Account ─┬─ Project ─┬─ Release ─┬─ File                 a wheel or sdist; its bytes lie in the storage
         │           │           ├─ Validation           one report of `vf-validate`
         │           │           └─ Evaluation ─ Sample  one row a rollout; the records lie in the storage
         │           ├─ Collaborator, Star
         ├─ Membership (user in organisation)
         └─ Token, Session, AuditEvent
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

Id = BigInteger().with_variant(Integer, "sqlite")


class Moment(TypeDecorator[datetime]):
    """A time in UTC, aware, to the microsecond; SQLite keeps it as text without a zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def now() -> datetime:
    return datetime.now(UTC)


class Base(DeclarativeBase):
    type_annotation_map = {dict[str, Any]: JSON, list[str]: JSON, list[Any]: JSON, datetime: Moment, int: Id}


class Generation(Base):
    """One row. Its value grows in every transaction that changes what pages, indexes or tokens say (`db.py`)."""

    __tablename__ = "generation"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[int]


class Account(Base):
    """A user or an organisation: what stands before the slash."""

    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(12))  # user, organisation
    name: Mapped[str] = mapped_column(String(64), unique=True)  # lower case
    display_name: Mapped[str] = mapped_column(String(200), default="")
    about: Mapped[str] = mapped_column(Text, default="")
    password_hash: Mapped[str | None] = mapped_column(Text)  # argon2; None: tokens only
    is_admin: Mapped[bool] = mapped_column(default=False)  # of the whole hub
    is_active: Mapped[bool] = mapped_column(default=True)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Membership(Base):
    """A user's role in an organisation, which holds for all its projects."""

    __tablename__ = "membership"
    organisation_id: Mapped[int] = mapped_column(ForeignKey("account.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("account.id"), primary_key=True, index=True)
    role: Mapped[str] = mapped_column(String(12))  # owner, maintainer, reader
    created_at: Mapped[datetime] = mapped_column(default=now)
    user: Mapped[Account] = relationship(foreign_keys=[user_id])
    organisation: Mapped[Account] = relationship(foreign_keys=[organisation_id])


class Token(Base):
    """A key for programs. Only the SHA-256 of its 256 random bits is here; `prefix` lets people recognise it."""

    __tablename__ = "token"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("account.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    prefix: Mapped[str] = mapped_column(String(20))
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    scope: Mapped[str] = mapped_column(String(8))  # read < publish < admin
    owner_id: Mapped[int | None] = mapped_column(ForeignKey("account.id"))  # None: wherever the user may
    project_id: Mapped[int | None] = mapped_column(ForeignKey("project.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]  # to the hour: a write per request would cost more than it tells
    user: Mapped[Account] = relationship(foreign_keys=[user_id])
    owner: Mapped[Account | None] = relationship(foreign_keys=[owner_id])
    project: Mapped[Project | None] = relationship(foreign_keys=[project_id])


class Session(Base):
    """A browser that signed in; the cookie holds what `sha256` is the hash of."""

    __tablename__ = "session"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("account.id"), index=True)
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime]
    user: Mapped[Account] = relationship()


class Device(Base):
    """A program that waits for its user to allow it a token (`vf login`); gone when it has it, or after ten minutes."""

    __tablename__ = "device"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_code: Mapped[str] = mapped_column(String(9), unique=True)
    client_name: Mapped[str] = mapped_column(String(80))
    scope: Mapped[str] = mapped_column(String(8))
    address: Mapped[str] = mapped_column(String(64), default="")
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime]
    asked_at: Mapped[datetime | None]
    user_id: Mapped[int | None] = mapped_column(ForeignKey("account.id"))  # whoever allowed it
    is_denied: Mapped[bool] = mapped_column(default=False)


class Project(Base):
    """An environment of one owner, with all its releases. A deleted one stays as a tombstone."""

    __tablename__ = "project"
    id: Mapped[int] = mapped_column(primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("account.id"), index=True)
    name: Mapped[str] = mapped_column(String(100))  # as its author writes it
    normalized: Mapped[str] = mapped_column(String(100))
    ultra_normalized: Mapped[str] = mapped_column(String(100))  # look-alikes are one name
    visibility: Mapped[str] = mapped_column(String(8), default="private")  # private, public
    status: Mapped[str] = mapped_column(String(12), default="active")  # active, deprecated, archived, quarantined
    status_reason: Mapped[str] = mapped_column(Text, default="")
    publish_answers: Mapped[bool] = mapped_column(default=True)  # False: answers and prompts of test sets stay at home
    created_at: Mapped[datetime] = mapped_column(default=now)
    updated_at: Mapped[datetime] = mapped_column(default=now)  # of its newest release
    deleted_at: Mapped[datetime | None]
    moved_to_id: Mapped[int | None] = mapped_column(ForeignKey("project.id"), index=True)  # of a transfer's tombstone
    latest_release_id: Mapped[int | None] = mapped_column(
        ForeignKey("release.id", use_alter=True, name="project_latest_release")
    )  # the newest that is neither yanked nor a pre-release, else the newest
    summary: Mapped[str] = mapped_column(Text, default="")  # of that release, and so are tags and task type
    tags: Mapped[list[str]] = mapped_column(default=list)
    task_type: Mapped[str] = mapped_column(String(40), default="")
    n_stars: Mapped[int] = mapped_column(default=0)
    n_downloads: Mapped[int] = mapped_column(default=0)
    forked_from_id: Mapped[int | None] = mapped_column(ForeignKey("project.id"), index=True)
    forked_from_version: Mapped[str | None] = mapped_column(String(64))
    owner: Mapped[Account] = relationship()
    latest_release: Mapped[Release | None] = relationship(foreign_keys=[latest_release_id], post_update=True)
    forked_from: Mapped[Project | None] = relationship(remote_side=[id], foreign_keys=[forked_from_id])
    releases: Mapped[list[Release]] = relationship(
        back_populates="project", foreign_keys="Release.project_id", order_by="Release.id"
    )
    __table_args__ = (
        UniqueConstraint("owner_id", "normalized"),
        UniqueConstraint("owner_id", "ultra_normalized"),
        # One for each order of the catalogue's lists.
        Index("project_by_created", "created_at", "normalized"),
        Index("project_by_updated", "updated_at", "created_at", "normalized"),
        Index("project_by_name", "normalized", "created_at"),
        Index("project_by_stars", "n_stars", "created_at", "normalized"),
        Index("project_by_downloads", "n_downloads", "created_at", "normalized"),
    )


class Collaborator(Base):
    """A user's role on one project, besides what an organisation gives."""

    __tablename__ = "collaborator"
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("account.id"), primary_key=True, index=True)
    role: Mapped[str] = mapped_column(String(12))
    created_at: Mapped[datetime] = mapped_column(default=now)
    user: Mapped[Account] = relationship()


class Star(Base):
    __tablename__ = "star"
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("account.id"), primary_key=True, index=True)
    created_at: Mapped[datetime] = mapped_column(default=now)


class Release(Base):
    """One version of a project. What it says is read from its files, never from a form."""

    __tablename__ = "release"
    id: Mapped[int] = mapped_column(primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), index=True)
    version: Mapped[str] = mapped_column(String(64))  # canonical (PEP 440)
    state: Mapped[str] = mapped_column(String(10), default="published")  # staged: seen by nobody yet; published
    created_at: Mapped[datetime] = mapped_column(default=now)
    published_by_id: Mapped[int | None] = mapped_column(ForeignKey("account.id"))
    is_final: Mapped[bool] = mapped_column(default=False)  # published as a whole: takes no more files
    yanked: Mapped[bool] = mapped_column(default=False)
    yanked_reason: Mapped[str] = mapped_column(Text, default="")
    deleted_at: Mapped[datetime | None]
    summary: Mapped[str] = mapped_column(Text, default="")
    requires_python: Mapped[str | None] = mapped_column(Text)
    requires_dist: Mapped[list[str]] = mapped_column(default=list)
    license: Mapped[str] = mapped_column(Text, default="")
    readme_html: Mapped[str] = mapped_column(Text, default="")  # cleaned
    readme_text: Mapped[str] = mapped_column(Text, default="")
    content_hash: Mapped[str | None] = mapped_column(String(80))  # of the sdist's files (`archives.content_hash`)
    metadata_json: Mapped[dict[str, Any]] = mapped_column(default=dict)  # author, urls, keywords, classifiers
    declaration: Mapped[dict[str, Any]] = mapped_column(default=dict)  # [tool.verifiers], see docs/archives.md
    project: Mapped[Project] = relationship(back_populates="releases", foreign_keys=[project_id])
    published_by: Mapped[Account | None] = relationship()
    files: Mapped[list[File]] = relationship(back_populates="release", order_by="File.id")
    __table_args__ = (UniqueConstraint("project_id", "version"),)


class File(Base):
    """A wheel or sdist. Its bytes lie in the storage at `files/<sha256>`, a wheel's METADATA at `metadata/<sha256>`."""

    __tablename__ = "file"
    id: Mapped[int] = mapped_column(primary_key=True)
    release_id: Mapped[int] = mapped_column(ForeignKey("release.id"), index=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"))
    filename: Mapped[str] = mapped_column(String(255))
    kind: Mapped[str] = mapped_column(String(6))  # wheel, sdist
    size_bytes: Mapped[int]
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    metadata_sha256: Mapped[str | None] = mapped_column(String(64))  # of a wheel
    requires_python: Mapped[str | None] = mapped_column(Text)
    members: Mapped[list[Any]] = mapped_column(default=list)  # [path, size, sha256, executable] each, for browsing
    uploaded_at: Mapped[datetime] = mapped_column(default=now)
    n_downloads: Mapped[int] = mapped_column(default=0)
    release: Mapped[Release] = relationship(back_populates="files")
    __table_args__ = (UniqueConstraint("project_id", "filename"),)


class Staged(Base):
    """A release that is being put together: seen by nobody, in no index, gone when it is not finished in time."""

    __tablename__ = "staged"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)  # random
    owner_id: Mapped[int] = mapped_column(ForeignKey("account.id"))
    name: Mapped[str] = mapped_column(String(100))  # the project may not be there yet
    normalized: Mapped[str] = mapped_column(String(100))
    version: Mapped[str] = mapped_column(String(64))  # canonical
    created_by_id: Mapped[int] = mapped_column(ForeignKey("account.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    expires_at: Mapped[datetime] = mapped_column(index=True)
    release_id: Mapped[int | None] = mapped_column(ForeignKey("release.id"))  # what it became: finishing is repeatable
    owner: Mapped[Account] = relationship(foreign_keys=[owner_id])
    files: Mapped[list[StagedFile]] = relationship(
        back_populates="staged", order_by="StagedFile.filename", cascade="all, delete-orphan"
    )


class StagedFile(Base):
    """A checked file of a staged release; its bytes lie in the storage already."""

    __tablename__ = "staged_file"
    staged_id: Mapped[str] = mapped_column(ForeignKey("staged.id"), primary_key=True)
    filename: Mapped[str] = mapped_column(String(255), primary_key=True)
    kind: Mapped[str] = mapped_column(String(6))  # wheel, sdist
    size_bytes: Mapped[int]
    sha256: Mapped[str] = mapped_column(String(64))
    staged: Mapped[Staged] = relationship(back_populates="files")


class Dependency(Base):
    """That a release's package needs another package; by its normalised name, for 'used by'."""

    __tablename__ = "dependency"
    release_id: Mapped[int] = mapped_column(ForeignKey("release.id"), primary_key=True)
    normalized: Mapped[str] = mapped_column(String(100), primary_key=True, index=True)
    requirement: Mapped[str] = mapped_column(Text)


class Facet(Base):
    """One thing that lists of environments are filtered by and count: written by `search.index_project`."""

    __tablename__ = "facet"
    kind: Mapped[str] = mapped_column(String(12), primary_key=True)  # tag, license, task_type
    value: Mapped[str] = mapped_column(String(100), primary_key=True)
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), primary_key=True, index=True)


class Job:
    """A row of a queue: a worker takes it by its lease, and writes down what came of it."""

    state: Mapped[str] = mapped_column(String(10), default="queued", index=True)  # queued, running, done, failed
    reason: Mapped[str] = mapped_column(Text, default="")
    report: Mapped[dict[str, Any]] = mapped_column(default=dict)
    worker: Mapped[str | None] = mapped_column(String(100))
    lease_until: Mapped[datetime | None]
    attempts: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(default=now)
    finished_at: Mapped[datetime | None]


class Validation(Job, Base):
    """One run of `vf-validate` over a release."""

    __tablename__ = "validation"
    id: Mapped[int] = mapped_column(primary_key=True)
    release_id: Mapped[int] = mapped_column(ForeignKey("release.id"), index=True)
    verdict: Mapped[str | None] = mapped_column(String(16))  # passed, failed, not_validated
    release: Mapped[Release] = relationship()


class Rescoring(Job, Base):
    """One run of an environment's rubric over the samples of an evaluation."""

    __tablename__ = "rescoring"
    id: Mapped[int] = mapped_column(primary_key=True)
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluation.id"), index=True)
    verdict: Mapped[str | None] = mapped_column(String(16))  # verified, differs, not_verified
    evaluation: Mapped[Evaluation] = relationship()


class Evaluation(Base):
    """A run of a model on an environment, pushed as samples. All figures are computed here, from the samples."""

    __tablename__ = "evaluation"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)  # random: its address tells nothing
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), index=True)
    release_id: Mapped[int | None] = mapped_column(ForeignKey("release.id"), index=True)  # None: an edited tree
    wheel_sha256: Mapped[str | None] = mapped_column(String(80))  # or `files:<sha256>`: see `services/binding.py`
    dirty: Mapped[bool] = mapped_column(default=False)  # never bound to a release, never on the leaderboard
    idempotency_key: Mapped[str] = mapped_column(String(128))
    created_by_id: Mapped[int] = mapped_column(ForeignKey("account.id"), index=True)
    # private: whoever pushed it; project: whoever has a role on the project; public: whoever sees the project
    visibility: Mapped[str] = mapped_column(String(8), default="private")
    # open: samples arrive; complete; verified; left_open: a tombstone (`services/left_open.py`)
    state: Mapped[str] = mapped_column(String(10), default="open")
    model: Mapped[str] = mapped_column(String(200))
    name: Mapped[str] = mapped_column(String(200), default="")
    run: Mapped[dict[str, Any]] = mapped_column(default=dict)  # the run's metadata.json, without secrets
    setup: Mapped[str] = mapped_column(String(16), default="")  # hash of env_args: results of another do not compare
    pass_threshold: Mapped[float] = mapped_column(default=0.5)
    library_version: Mapped[str] = mapped_column(String(40), default="")
    created_at: Mapped[datetime] = mapped_column(default=now)
    arrived_at: Mapped[datetime] = mapped_column(default=now)  # its last samples, or the last time it was begun
    completed_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None] = mapped_column(index=True)
    n_samples: Mapped[int] = mapped_column(default=0)
    n_examples: Mapped[int] = mapped_column(default=0)
    rollouts_per_example: Mapped[int] = mapped_column(default=0)  # the most that any example has
    n_unscored: Mapped[int] = mapped_column(default=0)
    mean_reward: Mapped[float | None]
    lower_bound: Mapped[float | None]  # unscored rollouts count as the minimum; leaderboards rank by it
    summary: Mapped[dict[str, Any]] = mapped_column(default=dict)  # verifiers.statistics.Summary and more, as JSON
    verification: Mapped[dict[str, Any]] = mapped_column(default=dict)  # what re-scoring on the hub found
    project: Mapped[Project] = relationship()
    release: Mapped[Release | None] = relationship()
    created_by: Mapped[Account] = relationship()
    __table_args__ = (
        UniqueConstraint("created_by_id", "idempotency_key"),
        Index("evaluation_by_state", "state", "arrived_at"),  # to find those left open
    )


class SampleChunk(Base):
    """A run of samples as they came: gzipped lines in the storage at `samples/<evaluation>/<sha256>`."""

    __tablename__ = "sample_chunk"
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluation.id"), primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    key: Mapped[str] = mapped_column(String(200))
    n_samples: Mapped[int]
    size_bytes: Mapped[int]  # unpacked


class Sample(Base):
    """What lists and filters need to know of one rollout; the record itself is line `line` of chunk `chunk`."""

    __tablename__ = "sample"
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluation.id"), primary_key=True)
    example_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rollout_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    chunk: Mapped[int]
    line: Mapped[int]
    reward: Mapped[float | None]
    digest: Mapped[str] = mapped_column(String(32))  # of the record as it was sent: a repeated one is recognised
    row: Mapped[str] = mapped_column(Text)  # `SampleRow` of the viewer as JSON, read by msgspec alone


class ExampleRate(Base):
    """How often one model's tries of one example passed, per release: seeds a curriculum and flags broken rows."""

    __tablename__ = "example_rate"
    project_id: Mapped[int] = mapped_column(ForeignKey("project.id"), primary_key=True)
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluation.id"), primary_key=True)
    example_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    n: Mapped[int]
    n_scored: Mapped[int]
    n_passed: Mapped[int]
    mean_reward: Mapped[float | None]


class AuditEvent(Base):
    """Who did what to what. Written in the transaction of the deed; never changed."""

    __tablename__ = "audit_event"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now, index=True)
    actor: Mapped[str] = mapped_column(String(64))  # a name, or "system"
    action: Mapped[str] = mapped_column(String(60))  # "release.publish", "token.create" …
    owner_id: Mapped[int | None] = mapped_column(ForeignKey("account.id"), index=True)
    project_id: Mapped[int | None] = mapped_column(ForeignKey("project.id"), index=True)
    target: Mapped[str] = mapped_column(String(300), default="")
    detail: Mapped[dict[str, Any]] = mapped_column(default=dict)
    address: Mapped[str] = mapped_column(String(64), default="")


class RateCount(Base):
    """Hits in one window of one limit, shared by all workers (`limits.py`)."""

    __tablename__ = "rate_count"
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    window: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # seconds since 1970 of its start
    count: Mapped[int]
    __table_args__ = (Index("rate_count_window", "window"),)


# A change in one of these makes every worker drop the pages and tokens it holds.
SEEN_BY_PAGES = (Account, Membership, Token, Session, Project, Collaborator, Release, File)
