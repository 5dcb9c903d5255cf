"""A hub is whole in its backup, and any empty hub becomes it, whatever its database and storage."""

import hashlib
import io
import json
import tarfile
import threading
from datetime import timedelta

import pytest
from hub_evaluations import pusher
from hub_packages import Package
from hub_servers import empty_database
from hub_uploads import upload_sdist, upload_wheel
from hub_world import World
from sqlalchemy import select

from hub_server.errors import BadRequest, Conflict, HubError
from hub_server.hub import Hub
from hub_server.models import Account, Base, Device, Generation, Project, Staged, StagedFile, now
from hub_server.models import Session as SignedInSession
from hub_server.services.backup import LEFT_OUT, backup, restore, tables
from hub_server.services.catalog import Query, environments
from hub_server.services.fsck import check_hub
from hub_server.settings import Settings


def rows_of(hub):
    with hub.database.read() as session:
        return {
            table.name: [tuple(row) for row in session.execute(select(table).order_by(*table.primary_key.columns))]
            for table in tables()
        }


def files_of(hub):
    return {
        found.key: b"".join(hub.storage.read(found.key))
        for prefix in ("files/", "metadata/", "samples/")
        for found in hub.storage.list(prefix)
    }


@pytest.fixture
def other(tmp_path):
    """An empty hub elsewhere; on PostgreSQL when the tests have one."""
    with empty_database() as address:
        hub = Hub.open(Settings(data=tmp_path / "other", database_url=address))
        yield hub
        hub.close()


@pytest.fixture
def full(hub, world, client):
    """A bit of everything: releases, a transfer's tombstone, a fork, a staged release, an evaluation, a session."""
    ada = world.user("ada", is_admin=True)
    world.user("bob")
    world.organisation("lab", ada="owner", bob="reader")
    world.project("lab/closed", bob="maintainer")
    runs = pusher(world, client, ada, "ada/sums", visibility="public")
    runs.push([[1.0, 0.0], [None, 0.5]])
    world.release("bob/math-env", "1.0.0", visibility="public", tags=("math",))
    world.release("bob/math-env", "1.1.0", tags=("math", "ünï \U0001f9ee"))
    assert client.put("/api/v1/projects/bob/math-env/stars", headers=ada.headers).is_success
    with hub.database.write() as session:
        first, last = (
            session.scalars(select(Project).where(Project.normalized == n)).one() for n in ("closed", "sums")
        )
        first.moved_to_id, first.forked_from_id = last.id, last.id  # to a row that is written after it
        data = b"a checked file of a release that is not finished"
        sha256 = hashlib.sha256(data).hexdigest()
        hub.storage.put(f"files/{sha256}", data)
        staged = Staged(id="s" * 32, owner_id=ada.id, name="next", normalized="next", version="1", created_by_id=ada.id)
        staged.expires_at = now() + timedelta(hours=1)
        staged.files = [StagedFile(filename="x.whl", kind="wheel", size_bytes=len(data), sha256=sha256)]
        session.add(staged)
        session.add(SignedInSession(sha256="0" * 64, user_id=ada.id, expires_at=now()))
        session.add(Device(sha256="0" * 64, user_code="ABCD-EFGH", client_name="vf", scope="read", expires_at=now()))
    return hub


def test_every_table_is_in_a_backup_but_those_that_are_named(full, tmp_path):
    assert {table.name for table in tables()} == set(Base.metadata.tables) - LEFT_OUT
    manifest = backup(full, tmp_path / "hub.tar")
    empty = {name for name, count in manifest["rows"].items() if not count}
    assert empty <= {"validation", "rescoring"}, "the hub of this test has a row of every other table"


def test_a_backup_is_for_its_owner_alone(full, tmp_path):
    """It holds private releases, and hashes of passwords and tokens."""
    backup(full, tmp_path / "hub.tar")
    assert (tmp_path / "hub.tar").stat().st_mode & 0o077 == 0


def test_a_restored_hub_equals_the_one_that_was_backed_up(full, other, tmp_path):
    manifest = backup(full, tmp_path / "hub.tar")
    assert restore(other, tmp_path / "hub.tar") == manifest
    assert rows_of(other) == rows_of(full)
    assert files_of(other) == files_of(full)
    checkup = check_hub(other)
    assert checkup.is_sound and checkup.orphans == 0
    with other.database.read() as session:
        assert session.scalars(select(SignedInSession)).all() == [] == session.scalars(select(Device)).all()


def test_a_hub_on_sqlite_is_restored_into_any_other(tmp_path, other):
    first = Hub.open(Settings(data=tmp_path / "first"))
    world = World(first)
    world.user("ada")
    world.release("ada/math-env", visibility="public")
    backup(first, tmp_path / "hub.tar")
    restore(other, tmp_path / "hub.tar")
    assert rows_of(other) == rows_of(first)
    first.close()


def test_a_restored_hub_goes_on(full, other, tmp_path):
    """New rows get ids of their own, the search finds what was restored, and what was held before is dropped."""
    before = other.database.freshness.current()
    backup(full, tmp_path / "hub.tar")
    restore(other, tmp_path / "hub.tar")
    assert other.database.is_sqlite is False or other.database.freshness.current() > before
    world = World(other)
    eve = world.user("eve")
    assert eve.id > max(row[0] for row in rows_of(full)["account"])
    world.release("eve/new-env", visibility="public")
    for query, found in [("math", ["bob/math-env"]), ("new", ["eve/new-env"])]:
        page = environments(other, eve.principal, Query(search=query))
        assert [f"{one.owner}/{one.name}" for one in page.environments] == found


def test_a_hub_that_is_used_is_not_restored_into(full, tmp_path):
    backup(full, tmp_path / "hub.tar")
    before = rows_of(full)
    with pytest.raises(Conflict, match="into an empty one"):
        restore(full, tmp_path / "hub.tar")
    assert rows_of(full) == before


def test_a_backup_overwrites_nothing_and_leaves_no_half_file(full, tmp_path):
    (tmp_path / "hub.tar").write_bytes(b"mine")
    with pytest.raises(Conflict, match="there already"):
        backup(full, tmp_path / "hub.tar")
    assert (tmp_path / "hub.tar").read_bytes() == b"mine"
    key = next(iter(files_of(full)))
    full.storage.delete(key)
    with pytest.raises(BadRequest, match="missing"):
        backup(full, tmp_path / "second.tar")
    assert [path.name for path in tmp_path.glob("*.tar*")] == ["hub.tar"]


def rewritten(source, target, change):
    """The tar with some members changed: `change(name, data)` gives the data, or `None` to leave it out."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old.getmembers():
            file = old.extractfile(member)
            assert file is not None
            data = change(member.name, file.read())
            if data is not None:
                member.size = len(data)
                new.addfile(member, io.BytesIO(data))


def _newer(name, data):
    return json.dumps(json.loads(data) | {"revision": "9999"}).encode() if name == "manifest.json" else data


def _other_format(name, data):
    return json.dumps(json.loads(data) | {"format": 99}).encode() if name == "manifest.json" else data


def _row_less(name, data):
    return data.split(b"\n", 1)[1] if name == "tables/account.ndjson" else data


def _broken_row(name, data):
    return b"[1, 2]\n" + data.split(b"\n", 1)[1] if name == "tables/account.ndjson" else data


def _flipped(name, data):
    return bytes([data[0] ^ 1]) + data[1:] if name.startswith("files/files/") else data


def _without_files(name, data):
    return None if name.startswith("files/samples/") else data


def _without_manifest(name, data):
    return None if name == "manifest.json" else data


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_newer, "was made at schema 9999, this hub is at"),
        (_other_format, "has the format 99"),
        (_row_less, "rows of account"),
        (_broken_row, "a row of account"),
        (_flipped, "another SHA-256"),
        (_without_files, "lacks the stored file samples/"),
        (_without_manifest, "no manifest.json"),
    ],
)
def test_a_damaged_or_newer_backup_is_refused_and_leaves_the_hub_empty(full, other, tmp_path, change, said):
    backup(full, tmp_path / "hub.tar")
    rewritten(tmp_path / "hub.tar", tmp_path / "changed.tar", change)
    with pytest.raises(BadRequest, match=said):
        restore(other, tmp_path / "changed.tar")
    assert not any(rows_of(other).values())
    restore(other, tmp_path / "hub.tar")  # what the failed one left is in nobody's way
    assert rows_of(other) == rows_of(full)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_backup_that_was_cut_off_is_refused(full, other, tmp_path, share):
    backup(full, tmp_path / "hub.tar")
    whole = (tmp_path / "hub.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(HubError, match="cut off"):
        restore(other, tmp_path / "cut.tar")
    assert not any(rows_of(other).values())


def test_item_34_a_backup_while_people_upload_is_whole(hub, world, client, other, tmp_path):
    ada = world.user("ada")
    for number in range(3):
        assert upload_wheel(client, ada.headers, Package(f"env-{number}")).status_code == 200
    stop, made = threading.Event(), []

    def go_on():
        while not stop.is_set() and len(made) < 40:
            package = Package(f"later-{len(made)}")
            answers = [upload_wheel(client, ada.headers, package), upload_sdist(client, ada.headers, package)]
            made.append([answer.status_code for answer in answers])

    uploader = threading.Thread(target=go_on)
    uploader.start()
    try:
        while not made and uploader.is_alive():
            stop.wait(0.01)
        backup(hub, tmp_path / "hub.tar", lambda done, total: stop.wait(0.05))  # slower than the uploads
    finally:
        stop.set()
        uploader.join()
    assert made and all(answer == [200, 200] for answer in made)
    restore(other, tmp_path / "hub.tar")
    checkup = check_hub(other)
    assert checkup.is_sound and checkup.orphans == 0
    restored, now_there = rows_of(other), rows_of(hub)
    assert 3 <= len(restored["project"]) <= len(now_there["project"])
    assert all(row in now_there["file"] for row in restored["file"])
    with other.database.read() as session:
        assert session.scalar(select(Account.name)) == "ada" and session.scalar(select(Generation.value))
