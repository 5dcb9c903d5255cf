"""Pages: what people see and do, without JavaScript; no script or style stands in them that the policy would refuse."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hub_evaluations import Pusher, lines, record, wheel_sha256
from hub_packages import Package

from hub_server.models import Release
from hub_server.services.accounts import create_user
from hub_server.web.pages import ASSETS, asset_url

ORIGIN = {"Origin": "https://hub.test"}
HTML = {"Accept": "text/html,application/xhtml+xml"}
PASSWORD = "correct horse battery"


class Page(HTMLParser):
    """What a page leads to and runs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[tuple[str, str]] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.inline += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        self.inline += ["style"] if tag == "style" else []
        self.inline += ["script"] if tag == "script" and not given.get("src") else []
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if tag == "form":
            self.forms.append((str(given.get("method", "get")), str(given.get("action"))))


def see(client: Any, path: str, person: Any = None, status: int = 200) -> str:
    answer = client.get(path, headers=HTML | ({} if person is None else person.headers))
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.text)
    assert page.inline == []
    assert len(page.ids) == len(set(page.ids))
    return answer.text


@pytest.fixture
def ada(world):
    return world.user("ada")


@pytest.fixture
def sums(world, ada):
    world.release("ada/sums", visibility="public", package=Package("sums", summary="Add two numbers"), tags=("math",))
    world.release("ada/sums", "1.1.0", package=Package("sums", "1.1.0", summary="Add two numbers"), tags=("math",))
    world.release("ada/hidden", package=Package("hidden", summary="hush"))


def evaluated(world, client, person, ref, *, model="small", text="4"):
    """A finished evaluation that its pusher alone sees: two examples, twice each."""
    push = Pusher(client, person, ref, wheel_sha256(world, ref))
    id = push.begin(model=model)["id"]
    tries = [(example, index) for example in (0, 1) for index in (0, 1)]
    push.send(id, lines(record(e, i, float(i), model=model, wheel=push.wheel, text=text) for e, i in tries))
    push.complete(id)
    return id


def signed_in(hub, client, name="grace"):
    create_user(hub, name, PASSWORD)
    answer = client.post("/login", data={"name": name, "password": PASSWORD}, headers=ORIGIN)
    assert answer.status_code == 303
    return answer


def test_the_front_page_shows_what_one_may_see(client, sums, ada):
    text = see(client, "/")
    assert "Add two numbers" in text and "hush" not in text
    assert "hush" in see(client, "/", ada)


def test_search_narrows_down_and_keeps_what_was_asked(client, sums):
    found = see(client, "/search?q=numbers&tag=math")
    assert "Add two numbers" in found and 'value="numbers"' in found
    assert "Nothing fits" in see(client, "/search?q=zebra")


def test_htmx_gets_the_list_alone(client, sums):
    answer = client.get("/search?q=numbers", headers=HTML | {"HX-Request": "true"})
    assert "Add two numbers" in answer.text
    assert "<html" not in answer.text


def test_an_environments_page_says_how_to_install_it_and_names_no_other_index(client, sums):
    text = see(client, "/ada/sums")
    for line in ("vf-install ada/sums", "uv pip install --extra-index-url https://hub.test/ada/sums/simple/ sums"):
        assert line in text
    assert "1.1.0" in text
    assert not re.search(r"https?://(?!hub\.test)[^\s\"<]*simple", text)


@pytest.mark.parametrize(
    "path", ["/versions", "/diff?old=1.0.0&new=1.1.0", "/source", "/source/1.0.0/sums.py", "/results", "?version=1.0.0"]
)
def test_every_tab_opens_without_signing_in(client, sums, path):
    see(client, f"/ada/sums{path}")


def test_every_link_and_form_of_a_page_leads_somewhere(client, sums, ada):
    seen: set[str] = set()
    todo = [
        "/",
        "/ada",
        "/ada/sums",
        "/ada/sums/versions",
        "/ada/sums/results",
        "/ada/sums/settings",
        "/docs",
        "/tokens",
    ]
    for start in todo:
        page = Page(see(client, start, ada))
        for link in page.links:
            path = link.partition("#")[0]
            if not path or path in seen or not path.startswith("/"):
                continue
            seen.add(path)
            answer = client.get(path, headers=HTML | ada.headers)
            assert answer.status_code in (200, 303), (start, path, answer.status_code)
    assert len(seen) > 15


def test_item_23_a_readme_is_shown_without_anything_that_runs(client, world, ada):
    """How a README is cleaned is told in test_readme; here, that everything beside it is escaped."""
    name = "<img src=x onerror=alert(1)>"
    world.release("ada/sums", visibility="public", package=Package("sums", summary=name), tags=(name,))
    text = see(client, "/ada/sums")
    assert "<img" not in text and "&lt;img" in text


def test_an_image_of_another_host_is_shown_as_its_description(client, world, hub, ada):
    release_id = world.release("ada/sums", visibility="public")
    with hub.database.write() as session:
        release = session.get_one(Release, release_id)
        release.readme_html = '<p><a href="https://x.test"><img src="https://img.test/b.svg" alt="tests pass"></a></p>'
    text = see(client, "/ada/sums")
    assert "img.test" not in text and '<span class="image">tests pass</span>' in text


def test_a_release_that_plain_installers_cannot_take_says_what_can(client, world, ada):
    world.release("ada/old", visibility="public", package=Package("old", requires=("verifiers<0.2",)))
    text = see(client, "/ada/old")
    assert "Use: vf-install ada/old" in text


def test_signing_in_keeps_a_secret_that_scripts_cannot_read(hub, client):
    answer = signed_in(hub, client)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "Secure" in cookie and "SameSite=lax" in cookie
    assert "grace" in see(client, "/account")
    assert client.post("/logout", headers=ORIGIN).status_code == 303
    assert client.get("/account", headers=HTML).headers["location"] == "/login?next=%2Faccount"


def test_a_wrong_password_is_told_on_the_page_and_says_no_more(hub, client):
    create_user(hub, "grace", PASSWORD)
    wrong = client.post("/login", data={"name": "grace", "password": "no"}, headers=ORIGIN | HTML)
    nobody = client.post("/login", data={"name": "nobody", "password": "no"}, headers=ORIGIN | HTML)
    assert wrong.status_code == nobody.status_code == 401
    assert wrong.text.replace("grace", "…") == nobody.text.replace("nobody", "…")


@pytest.mark.parametrize("target", ["https://evil.test/", "//evil.test", "/\\evil.test", "javascript:alert(1)"])
def test_item_45_signing_in_leads_to_this_hub_only(hub, client, target):
    create_user(hub, "grace", PASSWORD)
    form = {"name": "grace", "password": PASSWORD, "next": target}
    assert client.post("/login", data=form, headers=ORIGIN).headers["location"] == "/"


def test_item_40_a_form_of_another_site_changes_nothing(hub, client, sums):
    signed_in(hub, client)
    for headers in ({"Origin": "https://evil.test"}, {}):
        answer = client.post("/ada/sums/star", data={"to": "on"}, headers=headers)
        assert answer.status_code == 403
    assert client.get("/api/v1/projects/ada/sums").json()["card"]["n_stars"] == 0
    assert client.post("/ada/sums/star", data={"to": "on"}, headers=ORIGIN).status_code == 303
    assert client.get("/api/v1/projects/ada/sums").json()["card"]["n_stars"] == 1


def test_a_new_token_is_shown_once_and_stands_in_no_address(hub, client):
    signed_in(hub, client)
    answer = client.post(
        "/tokens", data={"do": "create", "name": "laptop", "scope": "read", "days": "7"}, headers=ORIGIN
    )
    assert answer.status_code == 200
    (token,) = set(re.findall(r"vfh_\w{40,}", answer.text))
    assert answer.headers["cache-control"] == "no-store"
    assert token not in see(client, "/tokens")
    assert client.get("/api/v1/whoami", headers={"Authorization": f"Bearer {token}"}).json()["name"] == "grace"


def test_yanking_deleting_and_hiding_are_forms(client, sums, ada):
    def post(**form):
        return client.post("/ada/sums/change", data=form, headers=ada.headers)

    assert post(do="yank", version="1.1.0", reason="wrong sign").status_code == 303
    assert "wrong sign" in see(client, "/ada/sums/versions")
    assert post(do="unyank", version="1.1.0").status_code == 303
    assert post(do="delete-version", version="1.0.0", confirm="1.1.0").status_code == 422
    assert post(do="delete-version", version="1.0.0", confirm="1.0.0").status_code == 303
    assert post(do="visibility", visibility="private").status_code == 303
    assert client.get("/ada/sums", headers=HTML).status_code == 404
    assert post(do="delete", confirm="sums").status_code == 303
    assert client.get("/ada/sums", headers=HTML | ada.headers).status_code == 404


def test_failures_are_a_page_for_people_and_json_for_programs(client, sums):
    assert "there is no environment" in see(client, "/ada/none", status=404)
    answer = client.get("/ada/none")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    installer = client.get("/ada/none/simple/none/", headers={"Accept": "text/html, application/json;q=0.9"})
    assert not installer.text.lstrip().lower().startswith("<!doctype html><html")


def test_an_evaluations_pages_show_examples_rollouts_and_the_difference(client, world, sums, ada):
    small, large = (evaluated(world, client, ada, "ada/sums", model=model) for model in ("small", "large"))
    text = see(client, f"/evaluations/{small}", ada)
    assert "mean reward" in text and "What is 0 + 2?" in text
    assert "small" in see(client, f"/evaluations/{small}/rollouts/0/0", ada)
    assert "paired difference" in see(client, f"/evaluations/{small}/compare/{large}", ada)
    see(client, f"/evaluations/{small}/compare/{large}/0", ada)
    assert "small" in see(client, "/ada/sums/results", ada)
    see(client, f"/evaluations/{small}", status=404)


def test_a_filter_that_cannot_be_read_is_explained_and_hides_nothing(client, world, sums, ada):
    id = evaluated(world, client, ada, "ada/sums")
    text = see(client, f"/evaluations/{id}?q=reward%3C%3C", ada)
    assert 'role="alert"' in text and "What is 0 + 2?" in text


def test_item_46_html_in_a_completion_is_text(client, world, sums, ada):
    id = evaluated(world, client, ada, "ada/sums", text="<script>alert(1)</script>")
    text = see(client, f"/evaluations/{id}/rollouts/0/0", ada)
    assert "&lt;script&gt;alert(1)" in text


def test_the_reference_names_every_route_of_the_api(client):
    text = see(client, "/docs")
    for path in client.get("/api/v1/openapi.json").json()["paths"]:
        assert f"/api/v1{path}" in text


def test_assets_are_kept_for_good_under_the_hash_of_what_is_in_them(client):
    for name in ASSETS:
        answer = client.get(asset_url(name))
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
        assert client.get(asset_url(name).replace(asset_url(name).split("/")[2], "0" * 16)).status_code == 404


def test_htmx_is_the_release_that_its_hash_names_and_comes_with_its_licence():
    script = ASSETS["htmx.js"]
    told = script.with_name("htmx.sha256").read_text().split()
    assert told == [hashlib.sha256(script.read_bytes()).hexdigest(), script.name]
    assert "Permission to use" in script.with_name("htmx.LICENSE").read_text("utf-8")
