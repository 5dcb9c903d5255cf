"""`kill -9` in the middle of an upload, at every step: afterwards the release is there whole, or not at all."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hub_packages import Package
from hub_servers import Server, paused_at, places, served
from hub_uploads import fields_of, multipart, upload_wheel
from hub_world import Person, World
from sqlalchemy import select
from starlette.testclient import TestClient

from hub_server.app import create_app
from hub_server.hub import Hub
from hub_server.models import File, Project, Release, now
from hub_server.services.fsck import check_hub
from hub_server.services.sweep import sweep
from hub_server.settings import Settings

pytestmark = pytest.mark.slow

PACKAGE = Package("crash-env", readme="# " + "long " * 20_000)
HOST = "hub.test"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "hub"


@pytest.fixture
def where() -> Iterator[dict[str, str]]:
    """The database and the storage, where they are not in the data folder."""
    with places() as found:
        yield found


@pytest.fixture
def ada(data: Path, where: dict[str, str]) -> Person:
    hub = Hub.open(Settings.model_validate({"data": data, **where}))
    try:
        return World(hub).user("ada")
    finally:
        hub.close()


@pytest.fixture
def reopened(data: Path, where: dict[str, str], ada: Person) -> Iterator[Hub]:
    """The hub as the next start finds it. Opened when it is first asked for, after the kill."""
    hub = Hub.open(Settings.model_validate({"data": data, "allowed_hosts": (HOST,), **where}))
    yield hub
    hub.close()


def connection_of(server: Server, ada: Person, *, only: int | None = None) -> http.client.HTTPConnection:
    """Sends the upload, or its first `only` bytes; the answer is not waited for."""
    body, kind = multipart(
        fields_of(PACKAGE.wheel_name, PACKAGE.wheel(), PACKAGE.metadata), PACKAGE.wheel_name, PACKAGE.wheel()
    )
    connection = http.client.HTTPConnection(*server.host_and_port, timeout=60)
    connection.putrequest("POST", "/legacy/")
    for name, value in {**ada.headers, "Content-Type": kind, "Content-Length": str(len(body))}.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(body[:only])
    return connection


def wait_for(condition: object, what: str) -> None:
    until = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, f"no {what} within a minute"
        time.sleep(0.02)


def rows(hub: Hub) -> tuple[int, int, int]:
    with hub.database.read() as session:
        return tuple(len(session.scalars(select(table)).all()) for table in (Project, Release, File))  # type: ignore[return-value]


def assert_sound_and_open_for_business(hub: Hub, ada: Person, *, published: bool) -> None:
    assert rows(hub) == ((1, 1, 1) if published else (0, 0, 0))
    assert check_hub(hub).problems == ()
    sweep(hub, now() + timedelta(hours=2))
    assert check_hub(hub).orphans == 0
    assert list(hub.settings.temporary.iterdir()) == []
    assert list((hub.settings.data / "files" / ".parts").glob("*")) == []
    with TestClient(create_app(hub=hub), f"https://{HOST}") as client:
        answer = upload_wheel(client, ada.headers, PACKAGE)
        assert (answer.status_code, answer.json()["is_new"]) == (200, not published)
    assert rows(hub) == (1, 1, 1)
    assert check_hub(hub).is_sound


@pytest.mark.parametrize("point", ["written", "linked", "inserting", "committing", "committed"])
def test_item_30_and_31_killed_at_any_step_the_release_is_whole_or_not_there(point, data, where, ada, request):
    if "storage_url" in where and point in ("written", "linked"):
        pytest.skip("steps of a folder: an object store has the whole file or none")
    with paused_at(data, point, **where) as server:
        connection = connection_of(server, ada)
        wait_for((data / "paused").exists, f"pause at {point}")
        server.kill()
        connection.close()
    assert_sound_and_open_for_business(request.getfixturevalue("reopened"), ada, published=point == "committed")


def test_item_30_killed_while_the_body_arrives_nothing_is_left_but_a_temporary_file(data, where, ada, request):
    with served(data, **where) as server:
        connection = connection_of(server, ada, only=2_000)
        wait_for(lambda: list((data / "tmp").iterdir()), "temporary file")
        server.kill()
        connection.close()
    assert_sound_and_open_for_business(request.getfixturevalue("reopened"), ada, published=False)


def test_item_31_a_file_without_a_row_is_an_orphan_and_young_ones_stay(data, where, ada, request):
    with paused_at(data, "inserting", **where) as server:
        connection = connection_of(server, ada)
        wait_for((data / "paused").exists, "pause")
        server.kill()
        connection.close()
    hub = request.getfixturevalue("reopened")
    checkup = check_hub(hub, repair=True)
    assert (checkup.problems, checkup.orphans, checkup.repaired) == ((), 2, 0)  # the wheel and its METADATA


def test_a_killed_reader_of_readmes_is_replaced(hub, world, client):
    """Its process belongs to the hub, and may be the one that runs out of memory."""
    import os
    import signal

    from hub_server.services.readme_process import RENDERER

    ada, threads = world.user("ada"), threading.active_count()
    assert upload_wheel(client, ada.headers, Package("one-env", readme="*one*")).status_code == 200
    process = RENDERER._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert upload_wheel(client, ada.headers, Package("two-env", readme="*two*")).status_code == 200
    with hub.database.read() as session:
        assert [r.readme_html.strip() for r in session.scalars(select(Release).order_by(Release.id))] == [
            "<p><em>one</em></p>", "<p><em>two</em></p>",
        ]  # fmt: skip
    assert threading.active_count() < threads + 50  # those of the pool that answers requests
