"""One contract for every place where files may lie: a folder, memory, a bucket of a real S3 server."""

import base64
import concurrent.futures
import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hub_packages import Package
from hub_servers import s3_variables
from hub_uploads import upload_wheel
from hub_world import World
from sqlalchemy import select
from starlette.testclient import TestClient

from hub_server.app import create_app
from hub_server.errors import BadRequest, StorageFull, Unavailable
from hub_server.hub import Hub
from hub_server.models import Project, now
from hub_server.services.fsck import check_hub
from hub_server.services.sweep import sweep
from hub_server.settings import Settings
from hub_server.storage import FolderStorage, MemoryStorage, Storage

KEY = "files/" + hashlib.sha256(b"hello").hexdigest()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of a running S3 server with the bucket `hub` (scripts/setup_s3.sh)."""
    with s3_variables() as address:
        if address is None:
            pytest.skip("VF_TEST_S3_URL names no S3 server")
        yield address


@pytest.fixture(params=["folder", "memory", "object"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return FolderStorage(tmp_path / "store")
    if request.param == "memory":
        return MemoryStorage()
    request.getfixturevalue("s3")
    from hub_server.object_storage import ObjectStorage

    return ObjectStorage(f"s3://hub/{tmp_path.name}")  # a prefix of its own


def all_of(storage: Storage, key: str, start: int = 0, length: int | None = None) -> bytes:
    return b"".join(storage.read(key, start, length))


def test_what_was_put_is_read(storage, tmp_path):
    storage.put(KEY, b"hello")
    (tmp_path / "source").write_bytes(b"from a file")
    storage.put("samples/abc/0123", tmp_path / "source")
    assert (all_of(storage, KEY), storage.size(KEY)) == (b"hello", 5)
    assert all_of(storage, "samples/abc/0123") == b"from a file"


def test_a_file_larger_than_a_piece_comes_back_whole(storage, tmp_path):
    data = os.urandom(1_500_001)
    (tmp_path / "source").write_bytes(data)
    storage.put(KEY, tmp_path / "source")
    assert all_of(storage, KEY) == data
    assert all_of(storage, KEY, 300_000, 700_001) == data[300_000:1_000_001]


@pytest.mark.parametrize("start, length", [(0, None), (2, None), (1, 3), (4, 100), (5, None), (9, 2), (0, 0)])
def test_a_range_is_what_slicing_gives(storage, start, length):
    storage.put(KEY, b"hello")
    assert all_of(storage, KEY, start, length) == b"hello"[start : None if length is None else start + length]


def test_nothing_is_ever_overwritten(storage):
    storage.put(KEY, b"hello")
    storage.put(KEY, b"other")
    assert all_of(storage, KEY) == b"hello"


def test_an_empty_file_is_a_file(storage, tmp_path):
    (tmp_path / "empty").touch()
    storage.put(KEY, tmp_path / "empty")
    assert (storage.size(KEY), all_of(storage, KEY)) == (0, b"")


def test_a_missing_key_has_no_size_and_is_told_before_the_first_piece(storage):
    assert storage.size(KEY) is None
    with pytest.raises(FileNotFoundError):
        storage.read(KEY)


def test_deleting_is_final_and_may_be_repeated(storage):
    storage.put(KEY, b"hello")
    storage.delete(KEY)
    storage.delete(KEY)
    assert storage.size(KEY) is None


def test_list_gives_keys_sizes_and_times_below_a_prefix(storage):
    for key in ("files/aa11", "files/ab22", "metadata/aa33", "samples/one/cc44", "samples/other/dd55"):
        storage.put(key, key.encode())
    now = datetime.now(UTC)
    assert [(f.key, f.size_bytes) for f in storage.list("files/")] == [("files/aa11", 10), ("files/ab22", 10)]
    assert [f.key for f in storage.list("files/ab")] == ["files/ab22"]
    assert [f.key for f in storage.list("samples/o")] == ["samples/one/cc44", "samples/other/dd55"]
    assert [f.key for f in storage.list("samples/one/")] == ["samples/one/cc44"]
    assert list(storage.list("nothing/")) == []
    assert all(abs(now - f.modified_at) < timedelta(minutes=2) for f in storage.list("files/"))


@pytest.mark.parametrize("key", ["", "/etc/passwd", "files/../../etc/passwd", "files//x", "files/./x", "a\\b", "a\0b"])
def test_no_key_leads_out_of_the_storage(storage, key):
    with pytest.raises(ValueError, match="no key"):
        storage.put(key, b"x")


def test_sixteen_writers_of_one_key_make_one_whole_file(storage, tmp_path):
    sources = []
    for number in range(16):
        sources.append(tmp_path / f"source{number}")
        sources[-1].write_bytes(bytes([number]) * 400_000)
    ready = threading.Barrier(16)

    def put(source: Path) -> None:
        ready.wait()
        storage.put(KEY, source)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(put, sources))
    data = all_of(storage, KEY)
    assert data in {bytes([number]) * 400_000 for number in range(16)}
    assert [f.key for f in storage.list("files/")] == [KEY]


# What one of them alone can do


def test_a_put_that_was_cut_off_leaves_a_part_that_no_list_shows(tmp_path):
    storage = FolderStorage(tmp_path / "store")
    storage.put(KEY, b"hello")
    part = tmp_path / "store" / ".parts" / "cut-off"
    part.write_bytes(b"hel")
    assert [f.key for f in storage.list("")] == [KEY]
    assert storage.discard_parts(datetime.now(UTC) - timedelta(hours=1)) == 0
    assert storage.discard_parts(datetime.now(UTC) + timedelta(seconds=1)) == 1
    assert not part.exists()
    assert storage.size(KEY) == 5


def test_item_27_a_full_disk_is_507_and_leaves_nothing(tmp_path, monkeypatch):
    storage = FolderStorage(tmp_path / "store")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)  # where a disk that is full tells of it at last
        with pytest.raises(StorageFull):
            storage.put(KEY, b"hello")
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []
    storage.put(KEY, b"hello")
    assert storage.size(KEY) == 5


def test_item_27_an_object_store_that_is_down_is_503(s3, monkeypatch):
    from hub_server import object_storage

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody listens on the discard port
    monkeypatch.setattr(object_storage, "ATTEMPTS", 1)
    storage = object_storage.ObjectStorage("s3://hub/x")
    for action in (
        lambda: storage.put(KEY, b"x"),
        lambda: storage.size(KEY),
        lambda: storage.read(KEY),
        lambda: list(storage.list("files/")),
    ):
        with pytest.raises(Unavailable) as caught:
            action()
        assert caught.value.retry_after_s


def test_a_storage_of_an_unknown_kind_is_refused():
    from hub_server.object_storage import ObjectStorage

    with pytest.raises(BadRequest, match="ftp"):
        ObjectStorage("ftp://somewhere/else")


# A whole hub on a bucket


@pytest.fixture
def on_bucket(s3: str, tmp_path: Path) -> Iterator[Hub]:
    hub = Hub.open(
        Settings(data=tmp_path / "hub", storage_url=f"s3://hub/{tmp_path.name}", allowed_hosts=("hub.test",))
    )
    yield hub
    hub.close()


def test_a_hub_on_a_bucket_publishes_by_form_and_as_a_whole(on_bucket):
    ada, game, whole = World(on_bucket).user("ada"), Package("math-env"), Package("math-env", "2.0.0")
    with TestClient(create_app(hub=on_bucket), "https://hub.test") as client:
        assert upload_wheel(client, ada.headers, game).status_code == 200
        base = "/api/v1/projects/ada/math-env/releases"
        staged = client.post(base, json={"version": "2.0.0"}, headers=ada.headers).json()["id"]
        for filename, data in ((whole.wheel_name, whole.wheel()), (whole.sdist_name, whole.sdist())):
            digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
            headers = {**ada.headers, "Content-Digest": f"sha-256=:{digest}:"}
            assert client.put(f"{base}/{staged}/files/{filename}", content=data, headers=headers).status_code == 200
        assert client.post(f"{base}/{staged}/finalize", headers=ada.headers).status_code == 200
    on_bucket.storage.put("files/" + "0" * 64, b"orphan")
    assert (check_hub(on_bucket).problems, check_hub(on_bucket).files, check_hub(on_bucket).orphans) == ((), 5, 1)
    assert sweep(on_bucket, now() + timedelta(hours=2)).files == 1
    assert list(on_bucket.settings.temporary.iterdir()) == []


def test_item_27_an_upload_while_the_object_store_is_down_is_503_and_leaves_nothing(s3, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        patch.setattr("hub_server.object_storage.ATTEMPTS", 1)
        hub = Hub.open(Settings(data=tmp_path / "hub", storage_url="s3://hub/down", allowed_hosts=("hub.test",)))
    try:
        ada = World(hub).user("ada")
        with TestClient(create_app(hub=hub), "https://hub.test") as client:
            answer = upload_wheel(client, ada.headers, Package("math-env"))
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert int(answer.headers["retry-after"]) > 0
        with hub.database.read() as session:
            assert session.scalars(select(Project)).all() == []
        assert list(hub.settings.temporary.iterdir()) == []
    finally:
        hub.close()
