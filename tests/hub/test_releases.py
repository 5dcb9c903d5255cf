"""Releases as a whole: begun, filled, finalized at once or not at all; yanked, taken back, deleted."""

from __future__ import annotations

import base64
import hashlib
import os
from datetime import timedelta
from typing import Any
from urllib.parse import urljoin

import httpx2 as httpx
import pytest
from archive_samples import METADATA, SDIST_NAME, WHEEL_NAME, sdist, sdist_files, wheel, wheel_files
from hub_packages import Package
from hub_servers import places, served
from hub_uploads import upload, upload_sdist, upload_wheel
from hub_world import Person, World, bearer
from sqlalchemy import select

from hub_server.hub import Hub
from hub_server.models import AuditEvent, File, Membership, Project, Release, Staged, now
from hub_server.services.fsck import check_hub
from hub_server.services.release_rows import spellings
from hub_server.services.sweep import sweep
from hub_server.settings import Settings

GAME = Package("math-env", "1.0.0")
BASE = "/api/v1/projects/ada/math-env"


@pytest.fixture
def ada(world: World) -> Person:
    return world.user("ada")


def begin(client, who: Person, version: str = "1.0.0", base: str = BASE) -> Any:
    return client.post(f"{base}/releases", json={"version": version}, headers=who.headers)


def put(client, who: Person, staged: str, filename: str, data: bytes, base: str = BASE, **headers: str) -> Any:
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    sent = {**who.headers, "Content-Digest": f"sha-256=:{digest}:", **headers}
    return client.put(f"{base}/releases/{staged}/files/{filename}", content=data, headers=sent)


def finalize(client, who: Person, staged: str, base: str = BASE) -> Any:
    return client.post(f"{base}/releases/{staged}/finalize", headers=who.headers)


def staged_whole(client, who: Person, package: Package = GAME, base: str = BASE) -> str:
    """A release with both files, not final yet."""
    staged = begin(client, who, package.version, base).json()["id"]
    for filename, data in ((package.wheel_name, package.wheel()), (package.sdist_name, package.sdist())):
        answer = put(client, who, staged, filename, data, base)
        assert answer.status_code == 200, answer.text
    return staged


def counts(hub: Hub) -> tuple[int, int, int]:
    with hub.database.read() as session:
        project, release, file = (len(session.scalars(select(table)).all()) for table in (Project, Release, File))
        return project, release, file


# As a whole


def test_a_release_is_published_as_a_whole(client, hub, ada):
    answer = finalize(client, ada, staged_whole(client, ada))
    assert answer.status_code == 200
    body = answer.json()
    assert (body["owner"], body["name"], body["version"]) == ("ada", "math-env", "1.0.0")
    assert (body["visibility"], body["url"]) == ("private", "https://hub.test/ada/math-env")
    assert body["files"] == {
        GAME.wheel_name: hashlib.sha256(GAME.wheel()).hexdigest(),
        GAME.sdist_name: hashlib.sha256(GAME.sdist()).hexdigest(),
    }
    assert body["content_hash"].startswith("vfh1:")
    assert counts(hub) == (1, 1, 2)
    assert check_hub(hub).is_sound


def test_until_then_nobody_sees_anything_of_it(client, hub, ada):
    staged = staged_whole(client, ada)
    assert counts(hub) == (0, 0, 0)
    assert client.get("/ada/math-env/simple/math-env/", headers=ada.headers).status_code == 404
    assert client.get(f"{BASE}/releases/{staged}", headers=ada.headers).json()["is_final"] is False
    finalize(client, ada, staged)
    page = client.get("/ada/math-env/simple/math-env/", headers=ada.headers)
    assert (page.status_code, GAME.wheel_name in page.text, GAME.sdist_name in page.text) == (200, True, True)


def test_finalizing_again_gives_the_same_answer(client, hub, ada):
    staged = staged_whole(client, ada)
    first, again = finalize(client, ada, staged), finalize(client, ada, staged)
    assert (again.status_code, again.json()) == (200, first.json())
    assert counts(hub) == (1, 1, 2)


def test_putting_a_file_again_changes_nothing_and_another_takes_its_place(client, ada):
    staged = staged_whole(client, ada)
    assert put(client, ada, staged, GAME.wheel_name, GAME.wheel()).status_code == 200
    other = Package("math-env", summary="other")
    files = put(client, ada, staged, GAME.wheel_name, other.wheel()).json()["files"]
    assert files[GAME.wheel_name] == hashlib.sha256(other.wheel()).hexdigest()
    assert len(files) == 2


@pytest.mark.parametrize("kept", ["wheel", "sdist", "nothing"])
def test_half_a_release_is_422_and_stays_unseen(client, hub, ada, kept):
    staged = begin(client, ada).json()["id"]
    if kept == "wheel":
        put(client, ada, staged, GAME.wheel_name, GAME.wheel())
    if kept == "sdist":
        put(client, ada, staged, GAME.sdist_name, GAME.sdist())
    answer = finalize(client, ada, staged)
    assert (answer.status_code, answer.json()["code"]) == (422, "release_incomplete")
    assert counts(hub) == (0, 0, 0)


def test_a_wheel_with_code_that_the_sdist_does_not_show_is_refused(client, hub, ada):
    base = "/api/v1/projects/ada/zz-game"
    staged = begin(client, ada, "0.1.0", base).json()["id"]
    hidden = wheel({**wheel_files(), "zz_game/hidden.py": b"import os\n"})
    put(client, ada, staged, WHEEL_NAME, hidden, base)
    put(client, ada, staged, SDIST_NAME, sdist(), base)
    answer = finalize(client, ada, staged, base)
    assert (answer.status_code, answer.json()["code"]) == (400, "pair_mismatch")
    put(client, ada, staged, WHEEL_NAME, wheel(), base)
    assert finalize(client, ada, staged, base).status_code == 200
    assert sdist_files() and counts(hub) == (1, 1, 2)


def test_item_20_a_finalized_release_takes_no_more_files(client, ada):
    staged = staged_whole(client, ada)
    finalize(client, ada, staged)
    another = GAME.wheel_name.replace("-py3-", "-1-py3-")
    answer = upload_wheel(client, ada.headers, GAME)
    assert (answer.status_code, answer.json()["is_new"]) == (200, False), "the same file again is no change"
    assert put(client, ada, staged, another, GAME.wheel()).status_code == 409
    first = Package("math-env", "1.0.0", summary="another sdist")
    assert upload_sdist(client, ada.headers, first).status_code == 400


def test_a_release_that_is_out_cannot_be_begun_again(client, ada):
    upload_wheel(client, ada.headers, GAME)
    for version in ("1.0.0", "1.0"):
        answer = begin(client, ada, version)
        assert (answer.status_code, answer.json()["code"]) == (409, "version_exists")


def test_somebody_else_may_be_first_between_begin_and_finalize(client, hub, ada):
    staged = staged_whole(client, ada)
    upload_wheel(client, ada.headers, Package("math-env", "1.0.0", summary="first"))
    answer = finalize(client, ada, staged)
    assert (answer.status_code, answer.json()["code"]) == (409, "version_exists")
    assert counts(hub) == (1, 1, 1)


@pytest.mark.parametrize(
    "version, code", [("one", "version_invalid"), ("1.0+local", "version_invalid"), ("", "version_invalid")]
)
def test_item_16_a_version_that_is_none_is_refused_at_once(client, ada, version, code):
    answer = begin(client, ada, version)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_item_17_a_name_that_is_none_is_refused_at_once(client, ada):
    for name in ("-x-", "a" * 101, "zzа"):
        answer = begin(client, ada, base=f"/api/v1/projects/ada/{name}")
        assert (answer.status_code, answer.json()["code"]) == (400, "name_invalid")


def test_item_17_a_name_that_reads_like_another_is_refused_at_once(client, ada):
    upload_wheel(client, ada.headers, GAME)
    answer = begin(client, ada, base="/api/v1/projects/ada/mathenv")
    assert (answer.status_code, answer.json()["code"]) == (409, "name_too_similar")


# What is put


def test_item_01_a_body_without_or_with_another_digest_is_400(client, hub, ada):
    staged = begin(client, ada).json()["id"]
    for digest, code in (
        ("", "digest_missing"),
        ("sha-256=:AAAA:", "digest_missing"),
        ("md5=:AAAA:", "digest_missing"),
        (f"sha-256=:{base64.b64encode(bytes(32)).decode()}:", "digest_mismatch"),
    ):
        answer = put(client, ada, staged, GAME.wheel_name, GAME.wheel(), **{"Content-Digest": digest})
        assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert list(hub.storage.list("files/")) == []
    assert list(hub.settings.temporary.iterdir()) == []


def test_a_file_of_another_project_or_version_is_400(client, ada):
    staged = begin(client, ada).json()["id"]
    for package in (Package("math-env", "2.0.0"), Package("other-env")):
        answer = put(client, ada, staged, package.wheel_name, package.wheel())
        assert (answer.status_code, answer.json()["code"]) == (400, "filename_invalid")


def test_a_hostile_file_is_refused_when_it_comes_and_not_stored(client, hub, ada):
    staged = begin(client, ada).json()["id"]
    answer = put(client, ada, staged, GAME.wheel_name, GAME.wheel() + b"trailing")
    assert (answer.status_code, answer.json()["code"]) == (400, "trailing_data")
    assert list(hub.storage.list("files/")) == []
    assert client.get(f"{BASE}/releases/{staged}", headers=ada.headers).json()["files"] == {}


def test_a_staged_release_is_its_beginners_alone(client, world, ada):
    bob = world.user("bob")
    world.project("ada/math-env", bob="maintainer")
    staged = staged_whole(client, ada)
    for answer in (
        client.get(f"{BASE}/releases/{staged}", headers=bob.headers),
        put(client, bob, staged, GAME.wheel_name, GAME.wheel()),
        finalize(client, bob, staged),
        client.delete(f"{BASE}/releases/{staged}", headers=bob.headers),
        finalize(client, ada, "0" * 32),
        finalize(client, ada, staged, "/api/v1/projects/ada/other-env"),
    ):
        assert answer.status_code == 404
    assert finalize(client, ada, staged).status_code == 200


def test_nobody_and_strangers_begin_nothing(client, world, ada):
    bob = world.user("bob")
    assert client.post(f"{BASE}/releases", json={"version": "1.0.0"}).status_code == 401
    assert begin(client, bob).status_code == 403
    reading = {"Authorization": f"Bearer {world.token('ada', 'read')}"}
    assert client.post(f"{BASE}/releases", json={"version": "1.0.0"}, headers=reading).status_code == 403


def test_a_release_that_was_abandoned_or_not_finalized_in_time_is_gone(client, hub, ada):
    abandoned, late = staged_whole(client, ada), staged_whole(client, ada, Package("math-env", "2.0.0"))
    assert client.delete(f"{BASE}/releases/{abandoned}", headers=ada.headers).status_code == 204
    assert finalize(client, ada, abandoned).status_code == 404
    swept = sweep(hub, now() + timedelta(days=2))
    assert (swept.staged, swept.files) == (1, 6)  # two wheels, two sdists, two METADATA
    assert finalize(client, ada, late).status_code == 404
    assert [list(hub.storage.list(prefix)) for prefix in ("files/", "metadata/")] == [[], []]


def test_files_of_an_open_release_are_not_swept(client, hub, ada):
    staged = staged_whole(client, ada)
    sweep(hub, now() + timedelta(hours=20))
    assert finalize(client, ada, staged).status_code == 200
    assert check_hub(hub).is_sound


def test_a_staged_release_outlives_its_expiry_nowhere(client, hub, ada):
    staged = staged_whole(client, ada)
    with hub.database.write() as session:
        session.scalars(select(Staged)).one().expires_at = now() - timedelta(seconds=1)
    assert finalize(client, ada, staged).status_code == 404


def test_a_token_loses_its_right_between_begin_and_finalize(client, hub, world, ada):
    bob = world.user("bob")
    world.organisation("lab", bob="owner")
    base = "/api/v1/projects/lab/math-env"
    staged = staged_whole(client, bob, base=base)
    with hub.database.write() as session:
        session.delete(session.scalars(select(Membership)).one())
    assert finalize(client, bob, staged, base).status_code == 403
    assert counts(hub) == (0, 0, 0)


# Yanked, taken back, deleted


def yanked(client, who: Person, version: str) -> Any:
    page = client.get(
        "/ada/math-env/simple/math-env/", headers={**who.headers, "Accept": "application/vnd.pypi.simple.v1+json"}
    ).json()
    return {file["filename"]: file["yanked"] for file in page["files"] if f"-{version}-" in file["filename"]}


def test_a_yanked_release_is_marked_in_the_index_and_no_longer_the_latest(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    upload_wheel(client, ada.headers, Package("math-env", "2.0.0", summary="second"))
    answer = client.put(f"{BASE}/versions/2.0/yank", json={"reason": "grader  was\nwrong"}, headers=ada.headers)
    assert answer.json() == {
        "owner": "ada", "name": "math-env", "version": "2.0.0", "yanked": True, "yanked_reason": "grader was wrong",
    }  # fmt: skip
    assert list(yanked(client, ada, "2.0.0").values()) == ["grader was wrong"]
    with hub.database.read() as session:
        project = session.scalars(select(Project)).one()
        assert project.latest_release is not None
        assert (project.latest_release.version, project.summary) == ("1.0.0", GAME.summary)
    client.delete(f"{BASE}/versions/2.0.0/yank", headers=ada.headers)
    assert list(yanked(client, ada, "2.0.0").values()) == [False]
    with hub.database.read() as session:
        assert session.scalars(select(Project)).one().summary == "second"


def test_yanking_without_a_reason_and_twice(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    for _ in range(2):
        assert client.put(f"{BASE}/versions/1.0.0/yank", json={}, headers=ada.headers).status_code == 200
    assert list(yanked(client, ada, "1.0.0").values()) == [True]
    with hub.database.read() as session:
        assert [e.action for e in session.scalars(select(AuditEvent))].count("release.yank") == 1


def test_only_yanked_releases_leave_the_newest_of_them_as_the_latest(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    client.put(f"{BASE}/versions/1.0.0/yank", json={}, headers=ada.headers)
    with hub.database.read() as session:
        project = session.scalars(select(Project)).one()
        assert project.latest_release is not None and project.latest_release.yanked


def test_a_deleted_release_is_in_no_index_and_its_page_is_renewed_at_once(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    upload_wheel(client, ada.headers, Package("math-env", "2.0.0"))
    assert len(yanked(client, ada, "2.0.0")) == 1
    assert client.delete(f"{BASE}/versions/2.0.0", headers=ada.headers).status_code == 204
    assert yanked(client, ada, "2.0.0") == {}
    assert client.delete(f"{BASE}/versions/2.0.0", headers=ada.headers).status_code == 404
    with hub.database.read() as session:
        project = session.scalars(select(Project)).one()
        assert project.latest_release is not None and project.latest_release.version == "1.0.0"
    assert check_hub(hub).is_sound


def test_who_may_yank_and_who_may_delete(client, world, ada):
    bob, eve = world.user("bob"), world.user("eve")
    world.project("ada/math-env", bob="maintainer", eve="reader")
    upload_wheel(client, ada.headers, GAME)
    path = f"{BASE}/versions/1.0.0"
    stranger = world.user("max")
    assert client.put(f"{path}/yank", json={}).status_code == 404
    assert client.put(f"{path}/yank", json={}, headers=stranger.headers).status_code == 404
    assert client.put(f"{path}/yank", json={}, headers=eve.headers).status_code == 403
    assert client.put(f"{path}/yank", json={}, headers=bob.headers).status_code == 200
    assert client.delete(path, headers=bob.headers).status_code == 403
    assert client.delete(path, headers=ada.headers).status_code == 204


def test_item_39_a_project_token_and_a_publishing_token_delete_nothing(client, world, ada):
    upload_wheel(client, ada.headers, GAME)
    for token in (world.token("ada", "publish"), world.token("ada", "admin", project="ada/math-env")):
        answer = client.delete(f"{BASE}/versions/1.0.0", headers=bearer(token))
        assert (answer.status_code, answer.json()["code"]) in ((403, "token_scope"), (403, "token_elsewhere"))


@pytest.fixture
def where():
    """The database and the storage, where they are not in the data folder."""
    with places() as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("deed", ["deleted", "quarantined"])
def test_item_35_a_download_finishes_while_its_release_is_taken_away(tmp_path, where, deed):
    hub = Hub.open(Settings.model_validate({"data": tmp_path / "hub", **where}))
    data = wheel({**wheel_files(), "zz_game/noise.bin": os.urandom(20 << 20)})
    try:
        ada = World(hub).user("ada")
        with (
            served(hub.settings.data, **where) as server,
            httpx.Client(base_url=server.address, headers=ada.headers) as client,
        ):
            assert upload(client, {}, WHEEL_NAME, data, METADATA).status_code == 200
            page = "/ada/zz-game/simple/zz-game/"
            accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
            (file,) = client.get(page, headers=accept).json()["files"]
            address = urljoin(page, file["url"])
            with client.stream("GET", address) as answer:
                pieces = answer.iter_bytes(1 << 16)
                received = next(pieces)
                if deed == "deleted":
                    gone = client.delete("/api/v1/projects/ada/zz-game/versions/0.1.0")
                    assert gone.status_code == 204
                else:
                    with hub.database.write() as session:
                        session.scalars(select(Project)).one().status = "quarantined"
                received += b"".join(pieces)
            assert hashlib.sha256(received).hexdigest() == file["hashes"]["sha256"]
            assert WHEEL_NAME not in client.get(page, headers=accept).text, "the page was renewed at once"
            assert client.get(address).status_code in (403, 404)
    finally:
        hub.close()


# Laws


@pytest.mark.parametrize("version", ["1", "1.0", "1.2.3", "1!2.0.post1.dev3", "0.0", "2026.1rc1"])
def test_the_spellings_of_a_version_are_equal_and_hold_the_one_asked_for(version):
    from packaging.version import Version

    found = spellings(version)
    assert version in found
    assert len(set(found)) == len(found)
    assert {Version(one) for one in found} == {Version(version)}
    assert all(len(one) <= 64 and str(Version(one)) == one for one in found)
