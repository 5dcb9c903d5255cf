"""Publishing by the upload form: what becomes of a file, who may, what can never be done again, what is too much."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from io import FileIO
from pathlib import Path
from urllib.parse import urljoin

import pytest
from archive_samples import SDIST_NAME, WHEEL_NAME, form_of, sdist, wheel, wheel_files
from hub_packages import Package
from hub_servers import Server, served
from hub_uploads import fields_of, multipart, upload, upload_sdist, upload_wheel
from hub_world import Person, World, bearer
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from starlette.testclient import TestClient
from waiting import steady

from hub_server.app import create_app
from hub_server.errors import Conflict
from hub_server.hub import Hub
from hub_server.models import Account, AuditEvent, Dependency, File, Project, Release, Token, now
from hub_server.services.access import owner_named
from hub_server.services.fsck import check_hub
from hub_server.services.publish_target import new_project
from hub_server.services.sweep import sweep
from hub_server.settings import Settings

MIB = 1 << 20
GAME = Package("math-env", "1.0.0")


@pytest.fixture
def ada(world: World) -> Person:
    return world.user("ada")


def the_project(hub: Hub, name: str = "math-env") -> Project:
    with hub.database.read() as session:
        (project,) = session.scalars(select(Project).where(Project.normalized == name))
        _ = project.latest_release, project.owner
        return project


def change(hub: Hub, **values: object) -> None:
    """Of the one project there is."""
    with hub.database.write() as session:
        (project,) = session.scalars(select(Project))
        for name, value in values.items():
            setattr(project, name, value)


def send_sample(client, headers, filename=WHEEL_NAME):
    data = wheel() if filename.endswith(".whl") else sdist()
    form = form_of(data, "wheel" if filename.endswith(".whl") else "sdist")
    body, kind = multipart([(key, value) for key, values in form.items() for value in values], filename, data)
    return client.post("/legacy/", content=body, headers={**headers, "Content-Type": kind})


# What becomes of a file


def test_a_first_upload_makes_a_private_project_with_its_release(client, hub, ada):
    answer = upload_wheel(client, ada.headers, GAME)
    assert answer.status_code == 200
    assert answer.json()["url"] == "https://hub.test/ada/math-env"
    project = the_project(hub)
    assert (project.owner.name, project.name, project.visibility) == ("ada", "math-env", "private")
    assert project.latest_release is not None
    assert (project.latest_release.version, project.summary) == ("1.0.0", GAME.summary)
    assert "<h1" in project.latest_release.readme_html


def test_what_the_files_say_is_kept_and_searchable(client, hub, ada):
    for filename in (WHEEL_NAME, SDIST_NAME):
        assert send_sample(client, ada.headers, filename).status_code == 200
    project = the_project(hub, "zz-game")
    release = project.latest_release
    assert release is not None
    assert (project.tags, project.task_type, project.summary) == (["game"], "multi-turn", "A game")
    assert (release.license, release.requires_python) == ("Apache-2.0", ">=3.11")
    assert release.content_hash is not None and release.content_hash.startswith("vfh1:")
    assert release.declaration["required_keys"] == ["OPENAI_API_KEY"]
    assert release.metadata_json["authors"] == ["Ada <ada@example.com>"]
    assert release.metadata_json["urls"] == [["Source", "https://example.com/zz"]]
    assert release.metadata_json["module"] == "zz_game"
    with hub.database.read() as session:
        assert {d.normalized for d in session.scalars(select(Dependency))} == {"verifiers", "numpy"}
        files = {f.kind: f for f in session.scalars(select(File))}
    assert b"".join(hub.storage.read(f"files/{files['wheel'].sha256}")) == wheel()
    assert b"Name: zz-game" in b"".join(hub.storage.read(f"metadata/{files['wheel'].metadata_sha256}"))
    assert files["sdist"].metadata_sha256 is None
    assert "zz_game/words.txt" in [member[0] for member in files["sdist"].members]


def test_publish_answers_is_what_the_newest_upload_says_and_else_what_the_owner_set(client, hub, ada):
    def publish(version: str, said: str) -> bool:
        package = replace(GAME, version=version)
        text = package.pyproject + f"\n[tool.verifiers]\n{said}\n".encode()
        data = package.sdist(pyproject=text)
        assert upload(client, ada.headers, package.sdist_name, data, package.metadata).status_code == 200
        return the_project(hub).publish_answers

    assert publish("1.0.0", "") is True
    assert publish("1.1.0", "publish_answers = false") is False
    assert publish("1.2.0", "") is False
    assert publish("1.3.0", "publish_answers = true") is True


def test_the_wheel_describes_the_release_whichever_comes_first(client, hub, ada):
    by_sdist = Package("math-env", summary="of the sdist")
    by_wheel = Package("math-env", summary="of the wheel")
    upload_sdist(client, ada.headers, by_sdist)
    assert the_project(hub).summary == "of the sdist"
    upload_wheel(client, ada.headers, by_wheel)
    assert the_project(hub).summary == "of the wheel"


def test_the_latest_release_is_the_newest_that_is_no_pre_release(client, hub, ada):
    for version in ("1.0.0", "2.0.0rc1", "0.9.0", "1.10.0", "1.9.0"):
        assert upload_wheel(client, ada.headers, Package("math-env", version)).status_code == 200
    release = the_project(hub).latest_release
    assert release is not None and release.version == "1.10.0"


def test_only_a_pre_release_is_the_latest_when_there_is_nothing_else(client, hub, ada):
    upload_wheel(client, ada.headers, Package("math-env", "1.0.0a1"))
    release = the_project(hub).latest_release
    assert release is not None and release.version == "1.0.0a1"


def test_what_was_published_is_in_the_index_at_once(client, ada):
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    for version in ("1.0.0", "1.1.0"):
        upload_wheel(client, ada.headers, Package("math-env", version))
        page = client.get("/ada/math-env/simple/math-env/", headers={**ada.headers, **accept}).json()
        assert version in page["versions"]


def test_every_upload_is_in_the_audit_log_with_who_and_what(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    with hub.database.read() as session:
        events = {e.action: e for e in session.scalars(select(AuditEvent))}
    assert set(events) == {"project.create", "file.publish"}
    assert (events["file.publish"].actor, events["file.publish"].target) == ("ada", GAME.wheel_name)


# Never twice


def test_item_18_the_same_file_again_is_200_and_no_change(client, hub, ada):
    first = upload_wheel(client, ada.headers, GAME)
    again = upload_wheel(client, ada.headers, GAME)
    assert (first.json()["is_new"], again.status_code, again.json()["is_new"]) == (True, 200, False)
    with hub.database.read() as session:
        assert len(session.scalars(select(File)).all()) == 1


def test_item_18_the_same_name_with_other_bytes_is_400_file_already_exists(client, ada):
    upload_wheel(client, ada.headers, GAME)
    answer = upload_wheel(client, ada.headers, Package("math-env", summary="other"))
    assert (answer.status_code, answer.json()["code"]) == (400, "file_exists")
    assert answer.json()["detail"].startswith("File already exists")


def test_item_19_the_same_name_after_deletion_is_400_for_ever(client, ada):
    upload_wheel(client, ada.headers, GAME)
    upload_wheel(client, ada.headers, Package("math-env", "2.0.0"))
    assert client.delete("/api/v1/projects/ada/math-env/versions/1.0.0", headers=ada.headers).status_code == 204
    for package in (GAME, Package("math-env", summary="other")):
        answer = upload_wheel(client, ada.headers, package)
        assert (answer.status_code, answer.json()["code"]) == (400, "file_exists")
    answer = upload_sdist(client, ada.headers, GAME)  # another file name, of the deleted version
    assert (answer.status_code, answer.json()["code"]) == (400, "version_deleted")


def test_item_19_the_name_of_a_deleted_project_is_400_for_ever(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    change(hub, deleted_at=now())
    answer = upload_wheel(client, ada.headers, Package("math-env", "2.0.0"))
    assert (answer.status_code, answer.json()["code"]) == (400, "name_deleted")


@pytest.mark.parametrize("other", ["1.0", "1", "1.0.0.0"])
def test_item_16_a_version_spelt_otherwise_is_the_same_version(client, ada, other):
    upload_wheel(client, ada.headers, GAME)
    answer = upload_wheel(client, ada.headers, Package("math-env", other))
    assert (answer.status_code, answer.json()["code"]) == (409, "version_exists")


@pytest.mark.parametrize("version", ["1!2.0", "1.0.post1", "1.0.dev3", "2.0rc1"])
def test_versions_with_epochs_and_suffixes_are_published_and_found(client, hub, ada, version):
    answer = upload_wheel(client, ada.headers, Package("math-env", version))
    assert (answer.status_code, answer.json()["version"]) == (200, version)
    path = f"/api/v1/projects/ada/math-env/versions/{version}/yank"
    assert client.put(path, json={"reason": "x"}, headers=ada.headers).status_code == 200


@pytest.mark.parametrize("name", ["toolloop", "too1-loop", "t00l-l00p", "tool_l-oop", "tooi-loop"])
def test_item_17_a_name_that_reads_like_another_of_the_owner_is_409(client, hub, ada, name):
    upload_wheel(client, ada.headers, Package("tool-loop"))
    answer = upload_wheel(client, ada.headers, Package(name))
    assert (answer.status_code, answer.json()["code"]) == (409, "name_too_similar")
    assert the_project(hub, "tool-loop").name == "tool-loop"


@pytest.mark.parametrize("name", ["Tool_Loop", "tool_loop", "TOOL-loop"])
def test_another_spelling_of_a_name_is_the_same_project(client, hub, ada, name):
    upload_wheel(client, ada.headers, Package("tool-loop"))
    assert upload_wheel(client, ada.headers, Package(name, "2.0.0")).status_code == 200
    assert len(the_project(hub, "tool-loop").name) == 9


def test_item_17_reserved_names_are_refused(tmp_path):
    hub = Hub.open(Settings(data=tmp_path / "other", reserved_names=("Math_Env",), allowed_hosts=("hub.test",)))
    try:
        who = World(hub).user("ada")
        with TestClient(create_app(hub=hub), "https://hub.test") as client:
            answer = upload_wheel(client, who.headers, GAME)
        assert (answer.status_code, answer.json()["code"]) == (400, "name_reserved")
    finally:
        hub.close()


def test_the_same_name_is_free_for_another_owner(client, world, ada):
    bob = world.user("bob")
    assert [upload_wheel(client, who.headers, GAME).status_code for who in (ada, bob)] == [200, 200]


# Statuses and times


@pytest.mark.parametrize("status", ["archived", "quarantined"])
def test_item_20_an_archived_or_quarantined_project_takes_no_files(client, hub, ada, status):
    upload_wheel(client, ada.headers, GAME)
    change(hub, status=status)
    answer = upload_wheel(client, ada.headers, Package("math-env", "2.0.0"))
    assert (answer.status_code, answer.json()["code"]) == (403, f"project_{status}")


def test_a_deprecated_project_takes_files(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    change(hub, status="deprecated")
    assert upload_wheel(client, ada.headers, Package("math-env", "2.0.0")).status_code == 200


@pytest.mark.parametrize("age, status", [(timedelta(days=13, hours=23), 200), (timedelta(days=14, hours=1), 403)])
def test_item_20_a_release_older_than_14_days_takes_no_more_files(client, hub, ada, age, status):
    upload_wheel(client, ada.headers, GAME)
    with hub.database.write() as session:
        session.scalars(select(Release)).one().created_at = now() - age
    answer = upload_sdist(client, ada.headers, GAME)
    assert (answer.status_code, answer.json().get("code")) == (status, None if status == 200 else "release_closed")


def test_item_20_the_same_file_of_an_old_release_is_still_200(client, hub, ada):
    """A retry changes nothing, so nothing stands against it."""
    upload_wheel(client, ada.headers, GAME)
    with hub.database.write() as session:
        session.scalars(select(Release)).one().created_at = now() - timedelta(days=99)
    assert upload_wheel(client, ada.headers, GAME).status_code == 200


# Who may


def test_nobody_publishes_without_a_token(client, ada):
    answer = upload_wheel(client, {}, GAME)
    assert (answer.status_code, answer.headers["www-authenticate"][:5]) == (401, "Basic")


def test_basic_with_the_user_token_is_what_twine_and_uv_send(client, ada):
    body, kind = multipart(fields_of(GAME.wheel_name, GAME.wheel(), GAME.metadata), GAME.wheel_name, GAME.wheel())
    answer = client.post("/legacy/", content=body, headers={"Content-Type": kind}, auth=ada.basic)
    assert answer.status_code == 200


def test_item_38_a_revoked_token_publishes_nothing_more(client, hub, ada):
    assert upload_wheel(client, ada.headers, GAME).status_code == 200
    with hub.database.write() as session:
        session.scalars(select(Token)).one().revoked_at = now()
    assert upload_wheel(client, ada.headers, Package("math-env", "2.0.0")).status_code == 401


def test_a_token_for_reading_publishes_nothing(client, world, ada):
    answer = upload_wheel(client, bearer(world.token("ada", "read")), GAME)
    assert (answer.status_code, answer.json()["code"]) == (403, "token_scope")


def test_a_token_for_publishing_begins_projects_of_its_user(client, world, ada):
    assert upload_wheel(client, bearer(world.token("ada", "publish")), GAME).status_code == 200


def test_item_39_a_token_of_one_project_publishes_to_no_other(client, world, ada):
    upload_wheel(client, ada.headers, GAME)
    headers = bearer(world.token("ada", "publish", project="ada/math-env"))
    assert upload_wheel(client, headers, Package("math-env", "2.0.0")).status_code == 200
    for package in (Package("new-env"), Package("math-envs")):
        answer = upload_wheel(client, headers, package)
        assert (answer.status_code, answer.json()["code"]) == (403, "token_elsewhere")


def test_legacy_is_the_owner_that_the_token_is_for(client, hub, world, ada):
    world.organisation("lab", ada="owner")
    assert upload_wheel(client, bearer(world.token("ada", "publish", owner="lab")), GAME).json()["owner"] == "lab"
    answer = upload_wheel(client, bearer(world.token("ada", "publish", owner="lab")), GAME, "/ada/legacy/")
    assert (answer.status_code, answer.json()["code"]) == (403, "token_elsewhere")


def test_in_an_organisation_owners_begin_projects_and_maintainers_publish(client, world, ada):
    bob, eve = world.user("bob"), world.user("eve")
    world.organisation("lab", ada="owner", bob="maintainer", eve="reader")
    assert upload_wheel(client, bob.headers, GAME, "/lab/legacy/").status_code == 403
    assert upload_wheel(client, ada.headers, GAME, "/lab/legacy/").status_code == 200
    second = Package("math-env", "2.0.0")
    assert upload_wheel(client, eve.headers, second, "/lab/legacy/").status_code == 403
    assert upload_wheel(client, bob.headers, second, "/lab/legacy/").status_code == 200


def test_a_collaborator_publishes_to_the_one_project(client, world, ada):
    bob = world.user("bob")
    world.project("ada/math-env", bob="maintainer")
    assert upload_wheel(client, bob.headers, GAME, "/ada/legacy/").status_code == 200
    assert upload_wheel(client, bob.headers, Package("other-env"), "/ada/legacy/").status_code == 403


def test_item_37_a_stranger_cannot_tell_a_hidden_project_from_none(client, world, ada):
    upload_wheel(client, ada.headers, GAME)
    bob = world.user("bob")
    hidden = upload_wheel(client, bob.headers, Package("math-env", "2.0.0"), "/ada/legacy/").json()
    missing = upload_wheel(client, bob.headers, Package("none-env", "2.0.0"), "/ada/legacy/").json()
    assert hidden["status"] == 403
    assert hidden.pop("request_id") != missing.pop("request_id")
    assert str(hidden).replace("math-env", "none-env") == str(missing)


def test_an_owner_that_is_not_there_is_404(client, ada):
    assert upload_wheel(client, ada.headers, GAME, "/nobody/legacy/").status_code == 404


def test_an_inactive_account_publishes_nothing(client, hub, ada):
    with hub.database.write() as session:
        session.scalars(select(Account)).one().is_active = False
    assert upload_wheel(client, ada.headers, GAME).status_code == 401


# The address


def test_without_the_slash_it_is_308_which_keeps_the_body(client, ada):
    body, kind = multipart(fields_of(GAME.wheel_name, GAME.wheel(), GAME.metadata), GAME.wheel_name, GAME.wheel())
    for path in ("/legacy", "/ada/legacy"):
        answer = client.post(path, content=body, headers={**ada.headers, "Content-Type": kind})
        assert (answer.status_code, urljoin(path, answer.headers["location"])) == (308, f"{path}/")


@pytest.mark.parametrize(
    "path, place",
    [("/simple/", "/legacy/"), ("/ada/simple/", "/ada/legacy/"), ("/ada/math-env/simple/", "/ada/legacy/")],
)
def test_uploading_to_an_index_says_where_to_upload(client, path, place):
    answer = client.post(path, content=b"x")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert f"https://hub.test{place}" in answer.json()["detail"]


def test_looking_at_the_upload_address_says_how_to_use_it(client):
    answer = client.get("/legacy/")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "twine upload --repository-url https://hub.test/legacy/" in answer.json()["detail"]


# Forms that are none


def refused(client, headers, body: bytes, kind: str) -> tuple[int, str]:
    answer = client.post("/legacy/", content=body, headers={**headers, "Content-Type": kind})
    return answer.status_code, answer.json()["code"]


def test_item_02_a_form_without_a_file_is_400(client, ada):
    body, kind = multipart(fields_of(GAME.wheel_name, GAME.wheel(), GAME.metadata), None, b"")
    assert refused(client, ada.headers, body, kind) == (400, "form_invalid")


@pytest.mark.parametrize("action", ["submit", "doc_upload", None])
def test_another_action_is_400(client, ada, action):
    answer = upload(client, ada.headers, GAME.wheel_name, GAME.wheel(), GAME.metadata, **{"action": action})
    assert (answer.status_code, answer.json()["code"]) == (400, "form_invalid")


@pytest.mark.parametrize(
    "body, kind",
    [
        (b"", "multipart/form-data; boundary=x"),
        (b"--x\r\n", "multipart/form-data; boundary=x"),
        (b"no boundary at all" * 1000, "multipart/form-data; boundary=x"),
        (b"--x\r\nContent-Disposition: form-data\r\n\r\nv\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nv\r\n--x", "multipart/form-data; boundary=x"),
        (b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n\xff\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\n: nameless\r\n\r\nv\r\n--x--\r\n", "multipart/form-data; boundary=x"),
        (b"{}", "application/json"),
        (b"a=b", "application/x-www-form-urlencoded"),
        (b"x", "multipart/form-data"),
        (b"x", "multipart/form-data; boundary=" + "b" * 300),
    ],
)
def test_item_26_a_malformed_form_is_400(client, hub, ada, body, kind):
    assert refused(client, ada.headers, body, kind) == (400, "form_invalid")
    assert list(hub.settings.temporary.iterdir()) == []


def test_item_26_too_many_fields_are_400_before_they_are_read(client, ada):
    body, kind = multipart([(f"field{number}", "") for number in range(100_000)], None, b"")
    started = time.process_time()
    assert refused(client, ada.headers, body, kind) == (400, "form_invalid")
    assert time.process_time() - started < 5


def test_item_26_a_field_name_of_a_megabyte_is_400(client, ada):
    body, kind = multipart([("n" * MIB, "v")], None, b"")
    assert refused(client, ada.headers, body, kind) == (400, "form_invalid")


def test_item_26_a_field_of_more_than_a_megabyte_is_400(client, ada):
    body, kind = multipart([("description", "v" * (MIB + 1))], None, b"")
    assert refused(client, ada.headers, body, kind) == (400, "form_invalid")


def test_item_26_two_files_are_400(client, hub, ada):
    fields = fields_of(GAME.wheel_name, GAME.wheel(), GAME.metadata)
    body, kind = multipart(fields, GAME.wheel_name, GAME.wheel())
    second, _ = multipart([], "other.whl", b"x")
    assert refused(client, ada.headers, body.removesuffix(b"--b0undary--\r\n") + second, kind) == (400, "form_invalid")
    assert list(hub.settings.temporary.iterdir()) == []


def test_fields_and_files_that_nobody_asked_for_are_passed_over(client, ada):
    fields = [*fields_of(GAME.wheel_name, GAME.wheel(), GAME.metadata), ("comment", "x"), ("attestations", "[]")]
    body, kind = multipart(fields, GAME.wheel_name, GAME.wheel())
    signature = (
        b'--b0undary\r\nContent-Disposition: form-data; name="gpg_signature"; filename="a.asc"\r\n\r\nsigned\r\n'
    )
    answer = client.post("/legacy/", content=signature + body, headers={**ada.headers, "Content-Type": kind})
    assert answer.status_code == 200


# Sizes, paces and faults


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Server, Person, Hub]]:
    """A real server that takes files of 1 MB and waits for a second."""
    hub = Hub.open(Settings(data=tmp_path / "hub"))
    try:
        ada = World(hub).user("ada")
        with served(hub.settings.data, max_file_bytes=str(MIB), body_timeout_s="1") as server:
            yield server, ada, hub
    finally:
        hub.close()


def begin(server: Server, ada: Person, **headers: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(*server.host_and_port, timeout=100)
    connection.putrequest("POST", "/legacy/")
    kind = "multipart/form-data; boundary=b0undary"
    for name, value in {**ada.headers, "Content-Type": kind, **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    return connection


def answered(connection: http.client.HTTPConnection) -> tuple[int, str]:
    answer = connection.getresponse()
    try:
        return answer.status, json.loads(answer.read())["code"]
    finally:
        connection.close()


@pytest.mark.slow
@steady(0.3)
def test_item_25_a_body_that_is_too_large_or_too_slow_is_refused_early(small):
    server, ada, hub = small
    head, _ = multipart([(":action", "file_upload")], "x.whl", b"")
    head = head.removesuffix(b"\r\n--b0undary--\r\n")

    declared = begin(server, ada, Content_Length=str(1 << 40))
    assert answered(declared) == (413, "too_large"), "told by Content-Length, before a byte came"

    chunked = begin(server, ada, Transfer_Encoding="chunked")
    sent = 0
    piece = head + bytes(100_000)
    while sent < 3 * MIB and not _has_answer(chunked.sock):
        chunked.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        sent, piece = sent + len(piece), bytes(100_000)
    assert answered(chunked) == (413, "too_large")

    stalled = begin(server, ada, Content_Length="100000")
    stalled.send(head)
    started = time.monotonic()
    assert answered(stalled) == (408, "too_slow")
    assert time.monotonic() - started < 10

    trickling = begin(server, ada, Content_Length="100000")
    trickling.send(head)
    started = time.monotonic()
    while not _has_answer(trickling.sock) and time.monotonic() - started < 20:
        trickling.send(b"x")
        time.sleep(0.2)
    assert answered(trickling) == (408, "too_slow"), "each piece comes in time, and it would take for ever"
    assert time.monotonic() - started < 15

    left = begin(server, ada, Content_Length="100000")
    left.send(head)
    left.close()
    until = time.monotonic() + 60
    while list(hub.settings.temporary.iterdir()) and time.monotonic() < until:
        time.sleep(0.05)
    assert list(hub.settings.temporary.iterdir()) == [], "nothing of the five stays on the disk"


def _has_answer(sock: socket.socket | None) -> bool:
    import select as io

    assert sock is not None
    return bool(io.select([sock], [], [], 0)[0])


@pytest.mark.slow
@steady(0.3)
def test_a_file_over_the_limit_is_413_with_a_sentence(small):
    server, ada, _ = small
    body, kind = multipart(fields_of(GAME.wheel_name, GAME.wheel(), GAME.metadata), GAME.wheel_name, bytes(MIB + 1))
    connection = http.client.HTTPConnection(*server.host_and_port, timeout=100)
    connection.request("POST", "/legacy/", body, {**ada.headers, "Content-Type": kind})
    answer = connection.getresponse()
    assert (answer.status, "1,048,576" in json.loads(answer.read())["detail"]) == (413, True)
    connection.close()


@pytest.mark.parametrize("where", ["upload", "store"])
def test_item_27_a_full_disk_is_507_and_the_hub_is_healthy_again_by_itself(client, hub, ada, where, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def on_a_full_disk(path: Path, _: str) -> FileIO:
        path.touch()
        return FileIO("/dev/full", "w")  # the kernel says that there is no room

    with monkeypatch.context() as disk:
        if where == "upload":
            disk.setattr("hub_server.multipart.FileIO", on_a_full_disk)
        else:
            disk.setattr(os, "fsync", full)
        answer = upload_wheel(client, ada.headers, GAME)
    assert (answer.status_code, answer.json()["code"]) == (507, "storage_full")
    with hub.database.read() as session:
        assert session.scalars(select(Project)).all() == []
    assert list(hub.settings.temporary.iterdir()) == []
    assert upload_wheel(client, ada.headers, GAME).status_code == 200
    assert check_hub(hub).is_sound


@pytest.mark.slow
def test_item_27_on_a_disk_that_is_really_full(tmp_path):
    """A data folder of 6 MiB, in a mount namespace of its own: what does not fit is 507, what fits is published."""
    data = tmp_path / "hub"
    data.mkdir()
    enough = ["unshare", "--mount", "--map-root-user"]
    mount = f"mount -t tmpfs -o size=6m none {data}"
    if subprocess.run([*enough, "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("no mount namespaces on this machine")
    with served(data, prefix=[*enough, "sh", "-c", f'{mount} && exec "$0" "$@"'], owner="ada") as server:
        person = Person("ada", 0, server.token, True)
        noise = os.urandom(4 * MIB)
        large = wheel({**wheel_files(), "zz_game/noise.bin": noise})
        for data_sent, expected in ((large, 507), (wheel(), 200), (wheel(), 200)):
            form = form_of(data_sent)
            fields = [(key, value) for key, values in form.items() for value in values]
            body, kind = multipart(fields, WHEEL_NAME, data_sent)
            connection = http.client.HTTPConnection(*server.host_and_port, timeout=60)
            connection.request("POST", "/legacy/", body, {**person.headers, "Content-Type": kind})
            answer = connection.getresponse()
            assert answer.status == expected, answer.read()
            connection.close()


# What fsck sees, and what is swept


def test_item_36_a_flipped_bit_is_reported_by_fsck(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    upload_sdist(client, ada.headers, GAME)
    assert (check_hub(hub).problems, check_hub(hub).files) == ((), 3)
    (stored, *_) = hub.storage.list("files/")
    path = hub.storage.local_path(stored.key)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    (problem,) = check_hub(hub).problems
    assert (problem.kind, problem.subject) == ("hash", stored.key)


def test_a_row_without_its_file_is_reported_and_repair_does_not_hide_it(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    (stored,) = hub.storage.list("files/")
    hub.storage.delete(stored.key)
    assert [(p.kind, p.subject) for p in check_hub(hub, repair=True).problems] == [("missing", stored.key)]


def test_repair_removes_old_orphans_alone_and_sets_the_latest_release_right(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    upload_wheel(client, ada.headers, Package("math-env", "2.0.0"))
    hub.storage.put("files/" + "a" * 64, b"old")
    hub.storage.put("files/" + "b" * 64, b"young")
    old = time.time() - 4000
    os.utime(hub.storage.local_path("files/" + "a" * 64), (old, old))
    with hub.database.write() as session:
        first = session.scalars(select(Release).where(Release.version == "1.0.0")).one()
        session.scalars(select(Project)).one().latest_release = first
    found = check_hub(hub)
    assert ([p.kind for p in found.problems], found.orphans) == (["latest_release"], 2)
    assert check_hub(hub, repair=True).repaired == 2
    assert check_hub(hub).is_sound
    assert hub.storage.size("files/" + "a" * 64) is None
    assert hub.storage.size("files/" + "b" * 64) == 5
    assert the_project(hub).latest_release.version == "2.0.0"


def test_the_sweeper_leaves_what_rows_name_however_old(client, hub, ada):
    upload_wheel(client, ada.headers, GAME)
    (hub.settings.temporary / "upload-cut-off").write_bytes(b"x")
    hub.storage.put("metadata/" + "c" * 64, b"orphan")
    swept = sweep(hub, now() + timedelta(days=365))
    assert (swept.files, swept.parts) == (1, 1)
    assert check_hub(hub).files == 2
    assert check_hub(hub).is_sound


def test_an_upload_of_bytes_that_are_swept_meanwhile_stores_them_again(client, hub, ada, monkeypatch):
    """The file lay there as an orphan, so that `put` had nothing to do; then the sweeper came."""
    import hub_server.services.publish as publish

    hold, swept = publish.hold_stored, []

    def sweep_before(session: object) -> None:
        for stored in list(hub.storage.list("files/")):
            hub.storage.delete(stored.key)
            swept.append(stored.key)
        hold(session)

    with monkeypatch.context() as moment:
        moment.setattr(publish, "hold_stored", sweep_before)
        assert upload_wheel(client, ada.headers, GAME).status_code == 200
    assert len(swept) == 1
    assert check_hub(hub).is_sound


def test_a_running_hub_sweeps_by_itself(hub, app, monkeypatch):
    left = hub.settings.temporary / "upload-cut-off"
    left.write_bytes(b"x")
    os.utime(left, (time.time() - 4000, time.time() - 4000))
    with monkeypatch.context() as often:
        often.setattr("hub_server.api.upload.SWEEP_EVERY_S", 0.02)
        with TestClient(app):
            until = time.monotonic() + 60
            while left.exists() and time.monotonic() < until:
                time.sleep(0.02)
    assert not left.exists()


def test_item_28_a_name_that_another_began_meanwhile_is_looked_for_again_and_not_called_alike(
    hub: Hub, world: World, ada: Person
) -> None:
    """On PostgreSQL it may be committed between the look for it and the look for names that read like it."""
    world.project("ada/many-env")
    with pytest.raises(IntegrityError), hub.database.write() as session:
        new_project(session, ada.principal, owner_named(session, "ada"), "many-env")
    with pytest.raises(Conflict, match="reads like"), hub.database.write() as session:
        new_project(session, ada.principal, owner_named(session, "ada"), "manyenv")
