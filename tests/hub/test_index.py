"""The package index: what installers rely on, in both of its forms."""

import gzip
import hashlib
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest
from hub_packages import Package
from hub_world import World, until_told
from pypi_simple import ProjectPage
from sqlalchemy import event
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from hub_server.api.index import HTML, JSON, PLAIN_HTML, negotiated
from hub_server.app import create_app
from hub_server.hub import Hub
from hub_server.models import Project, Release
from hub_server.principal import NOBODY
from hub_server.services.index_pages import At, IndexPages
from hub_server.settings import Settings
from verifiers.archives import own_wheel

AS_JSON = {"Accept": JSON}
UV = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
PIP = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01"
PAGE = "/ada/math-env/simple/math-env/"


@pytest.fixture
def ada(world):
    return world.user("ada")


@pytest.fixture
def published(world, ada):
    """`ada/math-env` 0.9.0, 0.10.0 and 1!0.1, public."""
    for version in ("0.10.0", "0.9.0", "1!0.1"):
        world.release("ada/math-env", version, visibility="public")
    return "ada/math-env"


def page_of(client, path=PAGE, **options):
    answer = client.get(path, headers={**AS_JSON, **options.pop("headers", {})}, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def change(hub, **values):
    with hub.database.write() as session:
        project = session.query(Project).filter_by(normalized="math-env").one()
        for key, value in values.items():
            setattr(project, key, value)


# What a page says


def test_a_page_has_all_of_the_simple_api(client, published, hub):
    page = page_of(client)
    assert page["meta"] == {"api-version": "1.4"}
    assert page["name"] == "math-env"
    assert page["project-status"] == {"status": "active"}
    assert page["versions"] == ["0.9.0", "0.10.0", "1!0.1"], "by version, not by letter"
    assert [file["filename"] for file in page["files"]] == [
        "math_env-0.9.0-py3-none-any.whl",
        "math_env-0.9.0.tar.gz",
        "math_env-0.10.0-py3-none-any.whl",
        "math_env-0.10.0.tar.gz",
        "math_env-1!0.1-py3-none-any.whl",
        "math_env-1!0.1.tar.gz",
    ]
    package = Package("math-env", "0.9.0")
    wheel, sdist = page["files"][:2]
    assert wheel["hashes"] == {"sha256": hashlib.sha256(package.wheel()).hexdigest()}
    assert wheel["size"] == len(package.wheel())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", wheel["upload-time"])
    assert wheel["requires-python"] == ">=3.11"
    assert wheel["yanked"] is False
    assert wheel["provenance"] is None
    described = {"sha256": hashlib.sha256(package.metadata).hexdigest()}
    assert wheel["core-metadata"] == wheel["data-dist-info-metadata"] == described
    assert "core-metadata" not in sdist


def test_a_page_of_the_index_is_the_one_that_was_agreed(client, world, hub, ada):
    """Byte for byte: a change of the page is to be seen in a review."""
    world.release("ada/math-env", visibility="public")
    with hub.database.write() as session:
        release = session.query(Release).one()
        release.yanked, release.yanked_reason, release.content_hash = True, 'wrong "<answers>"', "vfh1:00"
        hashes = {file.filename: file.sha256 for file in release.files}
        times = {file.filename: file.uploaded_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ") for file in release.files}
        sizes = {file.filename: file.size_bytes for file in release.files}
        described = release.files[0].metadata_sha256
    wheel, sdist = "math_env-1.0.0-py3-none-any.whl", "math_env-1.0.0.tar.gz"
    json_page = (
        '{"meta":{"api-version":"1.4"},"name":"math-env","project-status":{"status":"active"},"versions":["1.0.0"],'
        f'"files":[{{"filename":"{wheel}","url":"../../files/{hashes[wheel]}/{wheel}",'
        f'"hashes":{{"sha256":"{hashes[wheel]}"}},"size":{sizes[wheel]},"upload-time":"{times[wheel]}",'
        '"yanked":"wrong \\"<answers>\\"","provenance":null,"requires-python":">=3.11",'
        f'"core-metadata":{{"sha256":"{described}"}},"data-dist-info-metadata":{{"sha256":"{described}"}}}},'
        f'{{"filename":"{sdist}","url":"../../files/{hashes[sdist]}/{sdist}",'
        f'"hashes":{{"sha256":"{hashes[sdist]}"}},"size":{sizes[sdist]},"upload-time":"{times[sdist]}",'
        '"yanked":"wrong \\"<answers>\\"","provenance":null,"requires-python":">=3.11","_content-hash":"vfh1:00"}],'
        '"_env":"ada/math-env"}'
    )
    html_page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="pypi:repository-version" content="1.4">
<meta name="pypi:project-status" content="active">
<title>Links for math-env</title>
</head>
<body>
<h1>Links for math-env</h1>
<a href="../../files/{hashes[wheel]}/{wheel}#sha256={hashes[wheel]}" data-requires-python="&gt;=3.11" \
data-core-metadata="sha256={described}" data-dist-info-metadata="sha256={described}" \
data-yanked="wrong &quot;&lt;answers&gt;&quot;">{wheel}</a><br>
<a href="../../files/{hashes[sdist]}/{sdist}#sha256={hashes[sdist]}" data-requires-python="&gt;=3.11" \
data-yanked="wrong &quot;&lt;answers&gt;&quot;">{sdist}</a><br>
</body>
</html>
"""
    assert client.get(PAGE, headers=AS_JSON).text == json_page
    assert client.get(PAGE).text == html_page


@pytest.mark.parametrize("accept", [JSON, HTML])
@pytest.mark.parametrize("path", [PAGE, "/ada/simple/math-env/", "/simple/math-env/"])
def test_a_strict_client_reads_both_forms_and_reaches_the_files(client, published, path, accept):
    answer = client.get(path, headers={"Accept": accept})
    url = f"https://hub.test{path}"
    body, kind = answer.content, answer.headers["content-type"]
    if accept == JSON:
        page = ProjectPage.from_json_data(json.loads(body), url)
    else:
        page = ProjectPage.from_html("math-env", body.decode(), url)
    assert kind.partition(";")[0] == accept
    assert page.project == "math-env"
    assert page.repository_version == "1.4"
    assert [package.version for package in page.packages] == ["0.9.0", "0.9.0", "0.10.0", "0.10.0", "1!0.1", "1!0.1"]
    for package in page.packages:
        got = client.get(urlsplit(package.url).path)
        assert got.status_code == 200
        assert hashlib.sha256(got.content).hexdigest() == package.digests["sha256"]
        if package.package_type == "wheel":
            described = client.get(urlsplit(package.url).path + ".metadata")
            assert hashlib.sha256(described.content).hexdigest() == package.metadata_digests["sha256"]


class Outline(HTMLParser):
    """Every tag that is opened is closed, in order, and no more."""

    VOID = {"meta", "br"}

    def __init__(self):
        super().__init__()
        self.open = []
        self.links = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "a":
            self.links.append(dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("path", [PAGE, "/simple/", "/ada/simple/", "/ada/math-env/simple/"])
def test_the_html_is_well_formed(client, published, path):
    outline = Outline()
    outline.feed(client.get(path).text)
    assert outline.open == []
    assert outline.links


def test_a_yanked_release_stays_listed_and_says_so(client, published, hub):
    with hub.database.write() as session:
        release = session.query(Release).filter_by(version="0.9.0").one()
        release.yanked = True
    files = {file["filename"]: file["yanked"] for file in page_of(client)["files"]}
    assert files["math_env-0.9.0-py3-none-any.whl"] is True
    assert files["math_env-0.10.0.tar.gz"] is False
    assert 'data-yanked=""' in client.get(PAGE).text
    with hub.database.write() as session:
        session.query(Release).filter_by(version="0.9.0").one().yanked_reason = "wrong answers"
    assert page_of(client)["files"][0]["yanked"] == "wrong answers"


def test_staged_and_deleted_releases_are_not_listed(client, published, hub, world):
    with hub.database.write() as session:
        session.query(Release).filter_by(version="0.9.0").one().state = "staged"
        release = session.query(Release).filter_by(version="0.10.0").one()
        release.deleted_at = release.created_at
    page = page_of(client)
    assert page["versions"] == ["1!0.1"]
    assert len(page["files"]) == 2


@pytest.mark.parametrize(("status", "files"), [("deprecated", 6), ("archived", 6), ("quarantined", 0)])
def test_the_status_of_a_project_is_told_and_a_quarantined_one_offers_nothing(client, published, hub, status, files):
    first = page_of(client)["files"][0] if status == "quarantined" else None
    change(hub, status=status, status_reason="see <b>")
    page = page_of(client)
    assert page["project-status"] == {"status": status, "reason": "see <b>"}
    assert len(page["files"]) == files
    assert bool(page["versions"]) == bool(files)
    text = client.get(PAGE).text
    assert f'<meta name="pypi:project-status" content="{status}">' in text
    assert '<meta name="pypi:project-status-reason" content="see &lt;b&gt;">' in text
    if first is not None:
        answer = client.get(urlsplit(urljoin(f"https://hub.test{PAGE}", first["url"])).path)
        assert (answer.status_code, answer.json()["code"]) == (403, "quarantined")


# Lists


def test_the_index_of_one_environment_lists_it_and_the_library(client, published, world):
    world.release("ada/other-env", visibility="public")
    assert page_of(client, "/ada/math-env/simple/") == {
        "meta": {"api-version": "1.4"},
        "projects": [{"name": "math-env"}, {"name": "verifiers"}],
    }
    assert client.get("/ada/math-env/simple/other-env/").status_code == 404


def test_lists_have_what_the_asker_may_see_and_nothing_else(client, world, ada):
    world.user("bob")
    world.release("ada/public-env", visibility="public")
    world.release("ada/private-env")
    world.release("bob/bobs-env", visibility="public")
    world.project("ada/empty-env", visibility="public")

    def names(path, **headers):
        return [project["name"] for project in page_of(client, path, headers=headers)["projects"]]

    assert names("/simple/") == ["bobs-env", "public-env", "verifiers"]
    assert names("/ada/simple/") == ["public-env", "verifiers"]
    assert names("/ada/simple/", **ada.headers) == ["private-env", "public-env", "verifiers"]
    assert names("/simple/", **ada.headers) == ["bobs-env", "private-env", "public-env", "verifiers"]
    assert names("/ada/simple/") == ["public-env", "verifiers"], "what a token was shown is not kept for nobody"
    assert client.get("/nobody/simple/").status_code == 404


# Whose it is


def test_a_private_page_looks_like_a_missing_one(client, world, ada):
    world.release("ada/math-env")
    eve = world.user("eve")
    for path in (PAGE, "/ada/math-env/simple/", "/ada/math-env/simple/verifiers/", "/ada/simple/math-env/"):
        for headers in ({}, eve.headers):
            hidden = client.get(path, headers=headers)
            missing = client.get(path.replace("math", "moth"), headers=headers)
            assert hidden.status_code == missing.status_code == 404
            without_id = [{**answer.json(), "request_id": ""} for answer in (hidden, missing)]
            assert without_id[0] == json.loads(json.dumps(without_id[1]).replace("moth", "math"))
        assert client.get(path, headers=ada.headers).status_code == 200
        assert client.get(path, auth=ada.basic).status_code == 200
        assert client.get(path).status_code == 404, "after its owner was shown it, too"


def test_a_wrong_token_is_refused_on_a_public_page_too(client, published):
    answer = client.get(PAGE, auth=("__token__", "vfh_wrong"))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")


def test_a_name_of_the_whole_hub_is_the_askers_own_then_the_only_one(client, world, ada):
    bob, eve = world.user("bob"), world.user("eve")
    world.release("ada/math-env", "1.0", visibility="public")
    assert page_of(client, "/simple/math-env/")["_env"] == "ada/math-env"
    world.release("bob/math-env", "2.0")
    assert page_of(client, "/simple/math-env/")["_env"] == "ada/math-env"
    assert page_of(client, "/simple/math-env/", headers=bob.headers)["_env"] == "bob/math-env"
    assert page_of(client, "/simple/math-env/", headers=ada.headers)["_env"] == "ada/math-env"
    world.organisation("lab", eve="reader")
    world.release("lab/math-env", "3.0", visibility="public")
    for headers in ({}, {"Accept": "application/json;q=0.5, */*"}):
        answer = client.get("/simple/math-env/", headers=headers)
        assert answer.status_code == 404
        assert answer.json()["code"] == "several_owners"
        assert "/ada/math-env/simple/, /lab/math-env/simple/" in answer.json()["detail"]
        assert "bob" not in answer.json()["detail"], "a private one is not told"
    assert page_of(client, "/simple/math-env/", headers=ada.headers)["_env"] == "ada/math-env"
    assert page_of(client, "/simple/math-env/", headers=eve.headers)["_env"] == "lab/math-env"


def test_a_public_project_without_a_release_is_seen_by_its_owner_only(client, world, ada):
    world.project("ada/math-env", visibility="public")
    assert client.get(PAGE).status_code == 404
    assert page_of(client, headers=ada.headers)["files"] == []
    assert client.get(PAGE).status_code == 404


# Our own library


@pytest.mark.parametrize("base", ["/ada/math-env", "/ada", ""])
def test_every_index_has_the_library_that_this_hub_runs(client, published, base):
    wheel = own_wheel.own_wheel()
    page = page_of(client, f"{base}/simple/verifiers/")
    assert page["versions"] == [wheel.version]
    (file,) = page["files"]
    path = urlsplit(urljoin(f"https://hub.test{base}/simple/verifiers/", file["url"])).path
    answer = client.get(path)
    assert answer.content == wheel.content
    assert hashlib.sha256(answer.content).hexdigest() == file["hashes"]["sha256"]
    assert client.get(path + ".metadata").content == wheel.metadata


def test_another_hash_of_the_library_is_refused_with_the_way_out(client, published):
    answer = client.get(f"/files/{'0' * 64}/{own_wheel.own_wheel().filename}")
    assert answer.status_code == 404
    assert "uv lock --upgrade-package verifiers" in answer.json()["detail"]


# Addresses


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/simple", "/simple/"),
        ("/ada/simple", "/ada/simple/"),
        ("/ada/math-env/simple", "/ada/math-env/simple/"),
        ("/ada/math-env/simple/math-env", PAGE),
        ("/ada/math-env/simple/Math__ENV", PAGE),
        ("/ada/math-env/simple/Math.Env/", PAGE),
        ("/simple/Math_Env/", "/simple/math-env/"),
    ],
)
def test_an_unfinished_or_unnormalised_address_leads_to_the_right_one(client, published, path, location):
    answer = client.get(f"{path}?x=1")
    assert answer.status_code == 301
    assert urljoin(path, answer.headers["location"]) == f"{location}?x=1"
    assert client.get(location).status_code == 200


def test_owners_and_environments_are_found_however_they_are_spelt(client, published):
    assert page_of(client, "/Ada/Math_Env/simple/math-env/") == page_of(client)


@pytest.mark.parametrize("path", [PAGE, "/ada/simple/math-env/", "/simple/math-env/", "/simple/verifiers/"])
def test_links_are_right_under_any_mount_path(app, client, published, path):
    mounted = Starlette(routes=[Mount("/tools/hub", app=app)])
    mounted.state.hub = app.state.hub
    with TestClient(mounted, "https://hub.test", follow_redirects=False) as outer:
        page = page_of(outer, f"/tools/hub{path}")
        for file in page["files"]:
            url = urljoin(f"https://hub.test/tools/hub{path}", file["url"])
            assert outer.get(url).status_code == 200
        unfinished = f"/tools/hub{path}"[:-1]
        assert urljoin(unfinished, outer.get(unfinished).headers["location"]) == f"/tools/hub{path}"


def test_sending_to_an_index_is_not_allowed(client, published):
    assert client.post(PAGE).status_code == 405


# Representations


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (UV, JSON),
        (PIP, JSON),
        (None, PLAIN_HTML),
        ("", PLAIN_HTML),
        ("*/*", PLAIN_HTML),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", PLAIN_HTML),
        ("application/*", JSON),
        ("application/vnd.pypi.simple.latest+json", JSON),
        ("application/vnd.pypi.simple.latest+html;q=0.3, text/html;q=0.2", HTML),
        (f"{JSON};q=0.1, {HTML};q=0.9", HTML),
        (f"{JSON};q=0, */*;q=0.5", PLAIN_HTML),
        (f"{HTML};q=0.5, {JSON};q=0.5", JSON),
        ("application/json", None),
        ("text/html;q=0", None),
        (f"{JSON};q=abc", None),
        (f"{JSON};q=5", None),
        (f"{JSON};q=nan", None),
        ("image/png, */*;q=0", None),
        (";,;=,,;q=", None),
    ],
)
def test_the_type_is_negotiated_by_quality(accept, kind):
    assert negotiated(accept) == kind


def test_what_nobody_can_read_is_406_and_names_what_there_is(client, published):
    answer = client.get(PAGE, headers={"Accept": "application/vnd.pypi.simple.v2+json"})
    assert answer.status_code == 406
    assert JSON in answer.json()["detail"]


def test_the_type_may_stand_in_the_address(client, published):
    assert client.get(f"{PAGE}?format={JSON.replace('+', '%2B')}").headers["content-type"] == JSON
    assert client.get(f"{PAGE}?format=text/plain").status_code == 406


def test_each_representation_has_a_strong_tag_of_its_own_and_is_revalidated(client, published):
    tags = set()
    for accept in (JSON, HTML, PLAIN_HTML):
        for encoding in ("gzip, deflate", "identity"):
            asked = {"Accept": accept, "Accept-Encoding": encoding}
            answer = client.get(PAGE, headers=asked)
            tag = answer.headers["etag"]
            assert re.fullmatch(r'"[0-9a-f]{40}"', tag), "strong: uv revalidates with no other"
            assert answer.headers["content-type"].partition(";")[0] == accept
            tags.add(tag)
            same = client.get(PAGE, headers={**asked, "If-None-Match": f'W/"x", {tag}'})
            assert (same.status_code, same.content) == (304, b"")
            for name in ("etag", "vary", "cache-control"):
                assert same.headers[name] == answer.headers[name]
            assert client.get(PAGE, headers={**asked, "If-None-Match": '"other"'}).status_code == 200
    assert len(tags) == 6


def test_a_packed_page_unpacks_to_the_same_bytes(client, published):
    plain = client.get(PAGE, headers={**AS_JSON, "Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = client.get(PAGE, headers={**AS_JSON, "Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content  # the client has unpacked it
    assert int(packed.headers["content-length"]) == len(gzip.compress(plain.content, 6, mtime=0))
    refused = client.get(PAGE, headers={**AS_JSON, "Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers


def test_caches_may_keep_public_pages_and_must_ask_for_private_ones(client, world, ada):
    world.release("ada/math-env", visibility="public")
    world.release("ada/secret-env")
    public, private = client.get(PAGE), client.get("/ada/secret-env/simple/secret-env/", headers=ada.headers)
    assert public.headers["cache-control"] == "public, max-age=600"
    assert public.headers["vary"] == "Accept, Accept-Encoding"
    assert private.headers["cache-control"] == "private, no-cache"
    assert private.headers["vary"] == "Accept, Accept-Encoding, Authorization"
    assert client.get(PAGE, headers=ada.headers).headers["etag"] == public.headers["etag"]
    for path in ("/simple/", "/ada/simple/", "/simple/math-env/"):
        assert "Authorization" in client.get(path).headers["vary"], "it depends on who asks"


def test_head_is_get_without_the_body(client, published):
    for path in (PAGE, "/simple/", "/ada/simple"):
        got, head = client.get(path), client.head(path)
        assert head.status_code == got.status_code
        assert head.headers == got.headers
        assert head.content == b""


# Freshness


def test_a_publish_is_seen_at_once_by_every_worker(hub, settings, client, published, world):
    other = Hub.open(settings)
    try:
        with TestClient(create_app(hub=other), "https://hub.test") as neighbour:
            before = [one.get(PAGE, headers=AS_JSON).headers["etag"] for one in (client, neighbour)]
            assert before[0] == before[1]
            world.release("ada/math-env", "2.0.0")
            for one in (client, neighbour):
                asked = partial(one.get, PAGE, headers={**AS_JSON, "If-None-Match": before[0]})
                assert until_told(hub, lambda asked=asked: asked().status_code == 200)
                assert "2.0.0" in asked().json()["versions"]
    finally:
        other.close()


def test_a_project_that_becomes_private_is_gone_at_once(client, published, hub, ada):
    assert client.get(PAGE).status_code == 200
    change(hub, visibility="private")
    assert client.get(PAGE).status_code == 404
    assert client.get("/simple/math-env/").status_code == 404
    assert client.get(PAGE, headers=ada.headers).status_code == 200
    change(hub, visibility="public")
    assert client.get(PAGE).status_code == 200


def test_a_held_page_asks_the_database_nothing(client, published, hub):
    client.get(PAGE, headers=AS_JSON)
    asked = []
    event.listen(hub.database.engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
    assert client.get(PAGE, headers=AS_JSON).status_code == 200
    assert client.get("/ada/math-env/simple/numpy/").status_code == 404
    once = len(asked)
    assert client.get("/ada/math-env/simple/numpy/").status_code == 404
    assert len(asked) == once, "and neither does a missing one, which uv asks for with every dependency"


@pytest.mark.parametrize("name", ["math-env", None], ids=["page", "list"])
def test_what_many_ask_for_at_once_is_made_once(client, published, hub, name):
    asked = []
    event.listen(hub.database.engine, "before_cursor_execute", lambda *call: asked.append(call[2]))

    def is_made_once() -> bool:
        asked.clear()
        pages, together = IndexPages(hub), threading.Barrier(8)

        def build(_):
            together.wait()
            return pages.build(NOBODY, At(), name)

        with ThreadPoolExecutor(8) as askers:
            made = list(askers.map(build, range(8)))
        return all(page is made[0] for page in made) and sum("FROM project" in text for text in asked) == 1

    # A notice of PostgreSQL's that comes between has a page made anew, as it should.
    assert until_told(hub, is_made_once)


def test_a_hub_that_is_private_as_a_whole_asks_for_a_token_everywhere(tmp_path):
    hub = Hub.open(Settings(data=tmp_path / "private", is_private=True, allowed_hosts=("hub.test",)))
    world = World(hub)
    ada = world.user("ada")
    world.release("ada/math-env", visibility="public")
    with TestClient(create_app(hub=hub), "https://hub.test") as client:
        wheel = own_wheel.own_wheel()
        paths = [PAGE, "/simple/", "/ada/simple/", "/simple/verifiers/", "/nobody/simple/"]
        paths += [f"/files/{wheel.sha256}/{wheel.filename}"]
        for path in paths:
            answer = client.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Basic realm=")
        assert client.get(PAGE, auth=ada.basic).status_code == 200
        assert client.get(PAGE).status_code == 401, "after a token was shown it, too"
    hub.close()
