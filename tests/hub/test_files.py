"""Files: whole, in parts, revalidated, counted; to nobody who may not have them; never with wrong bytes."""

import hashlib
import random
from email.utils import format_datetime
from urllib.parse import urljoin, urlsplit

import pytest
from hub_packages import Package
from hub_world import World
from sqlalchemy import event
from starlette.testclient import TestClient

from hub_server.api.files import lifespan
from hub_server.app import create_app
from hub_server.hub import Hub
from hub_server.models import AuditEvent, File, Project, Release
from hub_server.services.downloads import Downloads
from hub_server.settings import Settings
from hub_server.storage import MemoryStorage

AS_JSON = {"Accept": "application/vnd.pypi.simple.v1+json"}
PAGE = "/ada/math-env/simple/math-env/"
WHEEL = Package("math-env").wheel()


@pytest.fixture
def ada(world):
    return world.user("ada")


@pytest.fixture
def public(world, ada, client):
    world.release("ada/math-env", visibility="public")
    return urls(client)[0]


def urls(client, **headers):
    """The wheel's and the source archive's paths."""
    page = client.get(PAGE, headers={**AS_JSON, **headers}).json()
    return [urlsplit(urljoin(f"https://hub.test{PAGE}", file["url"])).path for file in page["files"]]


# Whole


def test_a_file_comes_with_all_that_installers_and_caches_need(client, public, hub):
    answer = client.get(public)
    assert answer.status_code == 200
    assert answer.content == WHEEL
    with hub.database.read() as session:
        uploaded = session.query(File).filter_by(kind="wheel").one().uploaded_at.replace(microsecond=0)
    expected = {
        "etag": f'"{hashlib.sha256(WHEEL).hexdigest()}"',
        "last-modified": format_datetime(uploaded, usegmt=True),
        "content-length": str(len(WHEEL)),
        "content-type": "application/octet-stream",
        "content-disposition": "attachment",
        "cache-control": "public, max-age=365000000, immutable",
        "accept-ranges": "bytes",
        "x-content-type-options": "nosniff",
    }
    assert expected.items() <= dict(answer.headers).items()
    assert "content-encoding" not in answer.headers


def test_the_metadata_of_a_wheel_comes_byte_for_byte(client, public):
    answer = client.get(public + ".metadata")
    assert answer.content == Package("math-env").metadata
    assert answer.headers["etag"] == f'"{hashlib.sha256(answer.content).hexdigest()}"'
    sdist = urls(client)[1]
    assert client.get(sdist).status_code == 200
    assert client.get(sdist + ".metadata").status_code == 404


def test_head_is_get_without_the_body(client, public):
    for headers in ({}, {"Range": "bytes=2-5"}, {"Range": "bytes=999999-"}, {"If-None-Match": "*"}):
        for path in (public, public + ".metadata"):
            got, head = client.get(path, headers=headers), client.head(path, headers=headers)
            assert (head.status_code, head.content) == (got.status_code, b"")
            assert head.headers == got.headers


def test_only_the_right_hash_and_name_lead_to_a_file(client, public):
    sha256 = public.split("/")[4]
    wrong = [
        public.replace(sha256, "0" * 64),
        public.replace(sha256, sha256.upper()),
        public.replace(sha256, "x"),
        public.replace("math_env-1", "math_env-2"),
        public.replace("/ada/", "/bob/"),
        public + ".asc",
        public + "/x",
        public.replace("math_env-1", "..%2f..%2fmath_env-1"),
    ]
    for path in wrong:
        assert client.get(path).status_code == 404, path


# Parts


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-99", 0, 100),
        ("bytes=10-10", 10, 11),
        ("bytes=100-", 100, len(WHEEL)),
        ("bytes=-22", len(WHEEL) - 22, len(WHEEL)),
        ("bytes=-999999", 0, len(WHEEL)),
        ("bytes=5-999999", 5, len(WHEEL)),
        ("bytes = 0 - 9", 0, 10),
    ],
)
def test_a_range_gives_that_part(client, public, asked, start, end):
    answer = client.get(public, headers={"Range": asked})
    assert answer.status_code == 206
    assert answer.content == WHEEL[start:end]
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(WHEEL)}"
    assert answer.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("asked", [f"bytes={len(WHEEL)}-", "bytes=999999-9999999", "bytes=-0"])
def test_a_range_beyond_the_end_is_416_with_the_size(client, public, asked):
    answer = client.get(public, headers={"Range": asked})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(WHEEL)}"
    assert answer.content == b""


@pytest.mark.parametrize(
    "asked", ["bytes=0-4,10-20", "bytes=9-3", "bytes=-", "bytes=a-b", "lines=0-4", "bytes=" + "9" * 5000 + "-", ""]
)
def test_what_is_no_single_range_gives_the_whole_file(client, public, asked):
    answer = client.get(public, headers={"Range": asked})
    assert (answer.status_code, answer.content) == (200, WHEEL)


def test_a_part_is_only_given_of_the_file_that_the_client_has_begun(client, public):
    whole = client.get(public)
    part = {"Range": "bytes=0-9"}
    for same in (whole.headers["etag"], whole.headers["last-modified"]):
        assert client.get(public, headers={**part, "If-Range": same}).status_code == 206
    for other in ('"other"', f"W/{whole.headers['etag']}", "Tue, 01 Jan 2030 00:00:00 GMT", "nonsense"):
        assert client.get(public, headers={**part, "If-Range": other}).status_code == 200


# Again


def test_a_file_that_the_client_has_is_not_sent_again(client, public):
    whole = client.get(public)
    for same in (
        {"If-None-Match": whole.headers["etag"]},
        {"If-None-Match": f'"x", W/{whole.headers["etag"]}'},
        {"If-Modified-Since": whole.headers["last-modified"]},
    ):
        answer = client.get(public, headers=same)
        assert (answer.status_code, answer.content) == (304, b"")
        for name in ("etag", "cache-control", "last-modified"):
            assert answer.headers[name] == whole.headers[name]
    newer = {"If-None-Match": '"x"', "If-Modified-Since": whole.headers["last-modified"]}
    assert client.get(public, headers=newer).status_code == 200, "a tag that differs counts more than a date"
    assert client.get(public, headers={"If-Modified-Since": "nonsense"}).status_code == 200


# To whom


def test_a_private_file_looks_like_a_missing_one(client, world, ada):
    world.release("ada/math-env")
    eve = world.user("eve")
    for path in urls(client, **ada.headers):
        for suffix in ("", ".metadata"):
            for headers in ({}, eve.headers):
                hidden = client.get(path + suffix, headers=headers)
                missing = client.get(path.replace("math-env/", "moth-env/") + suffix, headers=headers)
                assert hidden.status_code == missing.status_code == 404
                assert hidden.json()["detail"] == missing.json()["detail"].replace("moth", "math")
        answer = client.get(path, auth=ada.basic)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "private, max-age=365000000"
        assert answer.headers["vary"] == "Authorization"
        assert client.get(path).status_code == 404, "after its owner was sent it, too"


def test_a_file_is_gone_at_once_when_it_becomes_private_quarantined_or_deleted(client, public, hub, ada):
    def change(**values):
        with hub.database.write() as session:
            project = session.query(Project).one()
            for key, value in values.items():
                setattr(project, key, value)

    for path in (public, public + ".metadata"):
        assert client.get(path).status_code == 200
        change(visibility="private")
        assert client.get(path).status_code == 404
        assert client.get(path, headers=ada.headers).status_code == 200
        change(visibility="public", status="quarantined")
        assert client.get(path).json()["code"] == "quarantined"
        change(status="active")
        assert client.get(path).status_code == 200
    with hub.database.write() as session:
        release = session.query(Release).one()
        release.deleted_at = release.created_at
    assert client.get(public).status_code == 404


def test_a_yanked_file_can_still_be_had(client, public, hub):
    with hub.database.write() as session:
        session.query(Release).one().yanked = True
    assert client.get(public).status_code == 200


# Large ones, from a folder and from elsewhere


@pytest.fixture(params=["folder", "elsewhere"])
def large(request, tmp_path, monkeypatch):
    """A client and the path of a wheel of 1 MB."""
    address = "memory://" if request.param == "elsewhere" else None
    hub = Hub.open(Settings(data=tmp_path / "large", storage_url=address, allowed_hosts=("hub.test",)))
    assert isinstance(hub.storage, MemoryStorage) == (request.param == "elsewhere")
    world = World(hub)
    world.user("ada")
    text = f"load_environment = {random.Random(1).randbytes(500_000).hex()!r}\n"
    package = Package("math-env", module_text=text)
    world.release("ada/math-env", visibility="public", package=package)
    with TestClient(create_app(hub=hub), "https://hub.test") as client:
        yield client, urls(client)[0], package.wheel()
    hub.close()


def test_a_large_file_comes_whole_and_in_parts(large):
    client, path, wheel = large
    assert len(wheel) > 2 * (1 << 18)
    assert client.get(path).content == wheel
    for start, end in ((0, 300_000), (262_143, 262_145), (100_000, len(wheel)), (262_144, 524_289)):
        assert client.get(path, headers={"Range": f"bytes={start}-{end - 1}"}).content == wheel[start:end]


# Counting


def test_downloads_are_counted_without_a_write_per_request(app, client, public, hub):
    writes = []
    event.listen(hub.database.engine, "before_cursor_execute", lambda *call: writes.append(call[2]))
    for _ in range(5):
        client.get(public)
    client.get(public, headers={"Range": "bytes=0-3"})
    client.head(public)
    client.get(public + ".metadata")
    client.get(public, headers={"If-None-Match": "*"})
    assert not [statement for statement in writes if statement.split()[0] in ("INSERT", "UPDATE", "DELETE")]
    before = client.get(PAGE).headers["etag"]
    app.state.downloads.write_counts()
    with hub.database.read() as session:
        assert session.query(File).filter_by(kind="wheel").one().n_downloads == 5
        assert session.query(Project).one().n_downloads == 5
    app.state.downloads.write_counts()
    with hub.database.read() as session:
        assert session.query(Project).one().n_downloads == 5, "not twice"
    assert client.get(PAGE).headers["etag"] == before


def test_counts_survive_the_end_of_the_server(settings, hub, world, ada):
    world.release("ada/math-env", visibility="public")
    with TestClient(create_app(hub=hub), "https://hub.test") as client:
        client.get(urls(client)[0])
    with hub.database.read() as session:
        assert session.query(Project).one().n_downloads == 1


def test_counts_that_the_database_refuses_are_kept(hub, world, ada, monkeypatch):
    world.release("ada/math-env", visibility="public")
    downloads = Downloads(hub)
    with hub.database.read() as session:
        file = session.query(File).filter_by(kind="wheel").one()
    stored = downloads.find(ada.principal, "ada", "math-env", file.sha256, file.filename)
    downloads.count(stored)
    with hub.database.engine.connect().execution_options(vf_hub_write=True) as other, other.begin():
        if hub.database.is_sqlite:
            with pytest.raises(Exception, match="does not answer"):
                downloads.write_counts()
    downloads.write_counts()
    with hub.database.read() as session:
        assert session.query(Project).one().n_downloads == 1
    assert lifespan is not None


# Damage


def damage(hub, sha256):
    path = hub.storage.local_path(f"files/{sha256}")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def test_item_36_a_flipped_bit_is_never_sent_when_downloads_are_verified(tmp_path):
    hub = Hub.open(Settings(data=tmp_path / "hub", verify_downloads=True, allowed_hosts=("hub.test",)))
    world = World(hub)
    world.user("ada")
    world.release("ada/math-env", visibility="public")
    with TestClient(create_app(hub=hub), "https://hub.test", raise_server_exceptions=False) as client:
        path = urls(client)[0]
        assert client.get(path).content == WHEEL
        damage(hub, path.split("/")[4])
        for headers in ({}, {"Range": "bytes=0-9"}):
            answer = client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (500, "corrupt_file")
        with hub.database.read() as session:
            event = session.query(AuditEvent).filter_by(action="file.corrupt").first()
        assert event is not None and path.split("/")[4] in event.target
        assert client.get(urls(client)[1]).status_code == 200
    hub.close()


def test_a_lost_file_is_500_and_an_event_not_a_404(client, public, hub):
    sha256 = public.split("/")[4]
    hub.storage.delete(f"files/{sha256}")
    answer = client.get(public)
    assert (answer.status_code, answer.json()["code"]) == (500, "corrupt_file")
    with hub.database.read() as session:
        assert session.query(AuditEvent).filter_by(action="file.corrupt").count() == 1


def test_item_35_a_download_that_has_begun_ends_whole_when_the_file_is_deleted(hub, world, ada):
    world.release("ada/math-env", visibility="public")
    with hub.database.read() as session:
        file = session.query(File).filter_by(kind="wheel").one()
    downloads = Downloads(hub)
    stored = downloads.find(ada.principal, "ada", "math-env", file.sha256, file.filename)
    pieces = downloads.pieces(stored.key)
    hub.storage.delete(stored.key)
    assert b"".join(pieces) == WHEEL
