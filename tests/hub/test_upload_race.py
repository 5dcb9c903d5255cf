"""Sixteen clients push one version at the same moment, to two worker processes: exactly one release comes of it."""

from __future__ import annotations

import base64
import collections
import concurrent.futures
import hashlib
import http.client
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_packages import Package
from hub_servers import Server, places, served
from hub_uploads import fields_of, multipart
from hub_world import Person, World
from sqlalchemy import select

from hub_server.hub import Hub
from hub_server.models import AuditEvent, File, Project, Release
from hub_server.services.fsck import check_hub
from hub_server.settings import Settings

pytestmark = pytest.mark.slow

CLIENTS = 16
JSON = {"Content-Type": "application/json"}
Answer = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """The data that the server works on too: with its workers, four processes on one database."""
    with places() as where:
        hub = Hub.open(Settings.model_validate({"data": tmp_path_factory.mktemp("race") / "hub", **where}))
        yield hub
        hub.close()


@pytest.fixture(scope="module")
def people(hub: Hub) -> list[Person]:
    world = World(hub)
    people = [world.user("ada"), world.user("bob"), world.user("eve")]
    world.organisation("lab", ada="owner", bob="owner")
    return people


@pytest.fixture(scope="module")
def server(hub: Hub, people: list[Person]) -> Iterator[Server]:
    settings = hub.settings
    where = {"database_url": settings.database_url, "storage_url": settings.storage_url}
    where = {name: value for name, value in where.items() if value is not None}
    with served(settings.data, workers=2, **where) as server:
        yield server


def ask(server: Server, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    connection = http.client.HTTPConnection(*server.host_and_port, timeout=120)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else {}
    finally:
        connection.close()


def upload(server: Server, person: Person, package: Package, path: str) -> Callable[[], Answer]:
    wheel = package.wheel()
    body, kind = multipart(fields_of(package.wheel_name, wheel, package.metadata), package.wheel_name, wheel)
    return lambda: ask(server, "POST", path, body, {**person.headers, "Content-Type": kind})


def at_once(actions: list[Callable[[], Answer]]) -> list[Answer]:
    ready = threading.Barrier(len(actions))

    def run(action: Callable[[], Answer]) -> Answer:
        ready.wait()
        return action()

    with concurrent.futures.ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


def released(hub: Hub, name: str) -> list[tuple[str, str, str]]:
    """(owner, version, sha256) of every file of the projects of this name."""
    with hub.database.read() as session:
        query = select(File).join(Release, File.release_id == Release.id).join(Release.project)
        found = session.scalars(query.where(Project.normalized == name)).all()
        return [(f.release.project.owner.name, f.release.version, f.sha256) for f in found]


def test_item_28_the_same_bytes_sixteen_times_are_one_release_and_sixteen_times_200(server, hub, people):
    package = Package("same-env")
    answers = at_once([upload(server, people[0], package, "/legacy/") for _ in range(CLIENTS)])
    assert [status for status, _ in answers] == [200] * CLIENTS
    assert sum(body["is_new"] for _, body in answers) == 1
    assert released(hub, "same-env") == [("ada", "1.0.0", hashlib.sha256(package.wheel()).hexdigest())]
    with hub.database.read() as session:
        events = session.scalars(select(AuditEvent).where(AuditEvent.target == package.wheel_name)).all()
        assert [event.action for event in events] == ["file.publish"]


def test_item_28_other_bytes_from_each_are_one_release_and_fifteen_refusals(server, hub, people):
    packages = [Package("other-env", summary=f"by client {number}") for number in range(CLIENTS)]
    answers = at_once([upload(server, people[0], package, "/legacy/") for package in packages])
    statuses = collections.Counter(status for status, _ in answers)
    assert statuses[200] == 1
    assert all(status in (400, 409) and body["code"] == "file_exists" for status, body in answers if status != 200)
    ((winner, _),) = [(package, a) for package, a in zip(packages, answers, strict=True) if a[0] == 200]
    assert released(hub, "other-env") == [("ada", "1.0.0", hashlib.sha256(winner.wheel()).hexdigest())]


def test_item_28_sixteen_versions_at_once_are_sixteen_releases(server, hub, people):
    packages = [Package("many-env", f"1.{number}.0") for number in range(CLIENTS)]
    answers = at_once([upload(server, people[0], package, "/legacy/") for package in packages])
    assert [status for status, _ in answers] == [200] * CLIENTS
    with hub.database.read() as session:
        (project,) = session.scalars(select(Project).where(Project.normalized == "many-env"))
        assert len(project.releases) == CLIENTS
        assert project.latest_release is not None and project.latest_release.version == "1.15.0"


def test_item_29_a_new_name_has_one_first_push_and_one_owner(server, hub, people):
    """Two owners of an organisation and a stranger, each with other bytes."""
    actions = [
        upload(server, people[number % 3], Package("first-env", summary=f"{number}"), "/lab/legacy/")
        for number in range(CLIENTS)
    ]
    answers = at_once(actions)
    assert [status for status, _ in answers[2::3]] == [403] * len(answers[2::3])  # the stranger's
    statuses = collections.Counter(status for status, _ in answers)
    assert statuses[200] == 1 and set(statuses) <= {200, 400, 403, 409}
    assert [owner for owner, _, _ in released(hub, "first-env")] == ["lab"]


def test_item_28_staged_releases_of_one_version_race_and_one_is_published(server, hub, people):
    ada = people[0]
    base = "/api/v1/projects/ada/staged-env/releases"

    def staged(number: int) -> str:
        package = Package("staged-env", summary=f"by client {number}")
        status, begun = ask(server, "POST", base, b'{"version": "1.0.0"}', {**ada.headers, **JSON})
        assert status == 201
        for name, data in ((package.wheel_name, package.wheel()), (package.sdist_name, package.sdist())):
            digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
            headers = {**ada.headers, "Content-Digest": f"sha-256=:{digest}:"}
            assert ask(server, "PUT", f"{base}/{begun['id']}/files/{name}", data, headers)[0] == 200
        return f"{base}/{begun['id']}/finalize"

    paths = [staged(number) for number in range(6)]
    answers = at_once([lambda path=path: ask(server, "POST", path, b"", ada.headers) for path in paths])
    assert sorted(status for status, _ in answers) == [200] + [409] * 5
    assert len({version for _, version, _ in released(hub, "staged-env")}) == 1
    assert len(released(hub, "staged-env")) == 2


def test_the_hub_is_sound_after_all_of_it(server, hub, people):
    assert check_hub(hub).problems == ()


def test_item_32_a_locked_database_is_waited_for_and_then_503(server, hub, people):
    """Another process holds the lock for longer than 5 s."""
    if not hub.database.is_sqlite:
        pytest.skip("PostgreSQL has no such lock")
    path: Path = hub.settings.data / "hub.db"
    lock = sqlite3.connect(path, isolation_level=None)
    try:
        lock.execute("BEGIN IMMEDIATE")
        connection = http.client.HTTPConnection(*server.host_and_port, timeout=60)
        package = Package("locked-env")
        wheel = package.wheel()
        body, kind = multipart(fields_of(package.wheel_name, wheel, package.metadata), package.wheel_name, wheel)
        connection.request("POST", "/legacy/", body, {**people[0].headers, "Content-Type": kind})
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["code"]) == (503, "unavailable")
        assert int(answer.headers["Retry-After"]) > 0
        lock.execute("ROLLBACK")
        assert upload(server, people[0], package, "/legacy/")()[0] == 200
        connection.close()
    finally:
        lock.close()
