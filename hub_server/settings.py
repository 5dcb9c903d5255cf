"""`Settings`: everything that differs between one hub and another. Read once, from `VF_HUB_…` and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1 << 20

LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(str.upper)]


class Settings(BaseSettings):
    """Defaults make a hub on SQLite and a folder; `database_url` and `storage_url` move it elsewhere."""

    model_config = SettingsConfigDict(env_prefix="VF_HUB_", extra="ignore", frozen=True)

    data: Path = Path("hub-data")  # holds hub.db, files/, tmp/
    database_url: str | None = None  # None: SQLite in `data`; postgresql://user:password@host/name
    storage_url: str | None = None  # None: a folder in `data`; s3://bucket/prefix; memory://
    public_url: str | None = None  # None: what the request's Host says, if `allowed_hosts` knows it
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    trusted_proxies: tuple[str, ...] = ()  # addresses whose X-Forwarded-For, -Proto and -Host are believed
    title: str = "Environments hub"
    is_private: bool = False  # nothing without signing in
    open_registration: bool = False  # anyone may make an account

    max_file_bytes: int = 100 * MIB
    max_form_fields: int = 1_000
    max_form_field_bytes: int = 1 * MIB
    body_timeout_s: float = 60.0  # between two pieces of a body
    release_open_days: int = 14  # new files of a release are refused after that
    allow_platform_wheels: bool = False
    allow_direct_urls: bool = False  # dependencies by URL escape the index
    reserved_names: tuple[str, ...] = ()  # environment names that nobody may take, besides the modules of Python

    max_evaluation_bytes: int = 1_000 * MIB  # unpacked
    max_sample_bytes: int = 25 * MIB
    max_samples: int = 1_000_000
    evaluation_open_days: int = 7  # one into which nothing came for so long is removed

    token_cache_s: float = 5.0
    session_days: int = 30
    searches_per_minute: int = 120  # of one user, or of one address that has not signed in
    uploads_per_hour: int = 1_000
    evaluations_per_hour: int = 1_000  # that one user begins
    sample_pushes_per_minute: int = 600  # requests of one user that add samples or complete an evaluation
    verify_downloads: bool = False  # hash each file while it is sent: costs CPU, never sends wrong bytes

    validation: bool = False  # every release is queued for `vf-hub worker`, which runs `vf-validate` on it
    rescoring: bool = False  # evaluations may be queued for `vf-hub worker`, which scores their completions again
    validation_wheels: Path | None = None  # a folder of wheels that packages may need besides what the hub has
    sandbox_min_level: int = 2  # the least that a worker runs packages in (docs/sandboxes.md)
    sandbox_timeout_s: float = 600.0
    log_level: LogLevel = "INFO"
    public_metrics: bool = False  # /metrics without a token; otherwise for administrators
    sweep_after_s: float = Field(default=3600.0)  # files that no row knows are removed when older

    @property
    def database(self) -> str:
        """The address for SQLAlchemy."""
        if self.database_url is None:
            return f"sqlite:///{self.data / 'hub.db'}"
        for plain in ("postgres://", "postgresql://"):
            if self.database_url.startswith(plain):
                return "postgresql+psycopg://" + self.database_url.removeprefix(plain)
        return self.database_url

    @property
    def temporary(self) -> Path:
        """Where uploads arrive before they are checked. On the same file system as a folder storage."""
        return self.data / "tmp"
