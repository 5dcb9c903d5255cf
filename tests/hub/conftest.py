"""A hub in a folder of its own for each test, the application over it, and a client that speaks to it in-process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import hub_servers
import pytest
from hub_world import World
from starlette.applications import Starlette
from starlette.testclient import TestClient

from hub_server.app import create_app
from hub_server.hub import Hub
from hub_server.services import release_diff
from hub_server.services.readme_process import RENDERER
from hub_server.settings import Settings

HOST = "hub.test"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that a busy machine cut short is no failure of what makes it."""
    monkeypatch.setattr(RENDERER, "render_s", 60.0)
    monkeypatch.setattr(release_diff, "COMPARE_S", 60.0)


@pytest.fixture
def database_url() -> Iterator[str | None]:
    """SQLite in the data folder; with VF_TEST_DATABASE_URL (scripts/setup_postgres.sh) an empty database there."""
    with hub_servers.empty_database() as url:
        yield url


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a hub that was just made: bringing the schema up takes longer than most tests."""
    settings = Settings(data=tmp_path_factory.mktemp("empty-hub"))
    Hub.open(settings).close()
    return settings.data / "hub.db"


@pytest.fixture
def settings(tmp_path: Path, database_url: str | None) -> Settings:
    """A test that wants other settings overrides this fixture, or opens a hub of its own."""
    return Settings(data=tmp_path / "hub", database_url=database_url, allowed_hosts=(HOST,))


@pytest.fixture
def hub(settings: Settings, empty_database: Path) -> Iterator[Hub]:
    if settings.database_url is None and not settings.data.exists():
        settings.data.mkdir(parents=True)
        shutil.copy(empty_database, settings.data)
    hub = Hub.open(settings)
    yield hub
    hub.close()


@pytest.fixture
def app(hub: Hub) -> Starlette:
    return create_app(hub=hub)


@pytest.fixture
def client(app: Starlette) -> Iterator[TestClient]:
    """Keeps cookies, follows no redirects, and gets a server's mistake as the 500 that a user would see."""
    with TestClient(app, f"https://{HOST}", raise_server_exceptions=False, follow_redirects=False) as client:
        yield client


@pytest.fixture
def world(hub: Hub) -> World:
    return World(hub)
