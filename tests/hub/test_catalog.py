"""The catalogue: lists, filters, pages, details, sources, differences, lineage."""

import base64
import json
import shlex
from datetime import datetime, timedelta

import pytest
from hub_packages import Package

from hub_server.models import Account, Project, Release, Star, now
from hub_server.principal import NOBODY
from hub_server.services import catalog
from hub_server.services.install_lines import install_lines
from hub_server.services.release_diff import MAX_FILE_BYTES, changed_files
from hub_server.services.search import index_project
from hub_server.services.sources import SourceMember, as_text

API = "/api/v1/projects"


@pytest.fixture
def ada(world):
    return world.user("ada")


def change(hub, ref, **values):
    owner, _, name = ref.partition("/")
    with hub.database.write() as session:
        project = session.query(Project).join(Project.owner).filter(Account.name == owner, Project.name == name).one()
        for key, value in values.items():
            setattr(project, key, value)
        index_project(session, project)


def names(client, query="", **headers):
    answer = client.get(f"{API}?{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    return [card["name"] for card in answer.json()["environments"]]


# Lists


def test_a_list_shows_what_the_asker_may_see_newest_first(client, world, ada):
    bob = world.user("bob")
    for name in ("one-env", "two-env"):
        world.release(f"ada/{name}", visibility="public")
    world.release("ada/secret-env")
    world.project("ada/empty-env", visibility="public")
    assert names(client) == ["two-env", "one-env"]
    assert names(client, **bob.headers) == ["two-env", "one-env"]
    assert names(client, "sort=created", **ada.headers) == ["empty-env", "secret-env", "two-env", "one-env"]
    assert names(client, "mine=true", **bob.headers) == []
    assert names(client, "mine=true") == [], "nobody owns nothing"
    card = client.get(API).json()["environments"][1]
    assert card["owner"] == "ada" and card["version"] == "1.0.0" and card["visibility"] == "public"


def test_filters_are_joined(client, world, ada, hub):
    world.user("bob")
    world.release("ada/math-env", visibility="public", tags=("math", "single-turn"))
    world.release("ada/code-env", visibility="public", tags=("code", "single-turn"))
    world.release("bob/code-env", visibility="public", tags=("code",))
    change(hub, "ada/math-env", task_type="single-turn")
    with hub.database.write() as session:
        release = session.query(Release).join(Project, Project.id == Release.project_id).filter(
            Project.name == "math-env"
        ).one()  # fmt: skip
        release.license = "MIT"
        index_project(session, release.project)
    assert names(client, "tag=code") == ["code-env", "code-env"]
    assert names(client, "tag=code&owner=Ada") == ["code-env"]
    assert names(client, "tag=code&tag=single-turn") == ["code-env"]
    assert names(client, "license=MIT") == ["math-env"]
    assert names(client, "task_type=single-turn&tag=math") == ["math-env"]
    assert names(client, "task_type=single-turn&tag=code") == []
    facets = client.get("/api/v1/facets").json()
    assert facets["n_environments"] == 3
    assert facets["tags"][:2] == [{"value": "code", "n": 2}, {"value": "single-turn", "n": 2}]
    assert facets["licenses"] == [{"value": "MIT", "n": 1}]
    assert facets["owners"] == [{"value": "ada", "n": 2}, {"value": "bob", "n": 1}]


def test_facets_count_public_environments_only_and_at_once(client, world, ada, hub):
    world.release("ada/math-env", visibility="public", tags=("math",))
    world.release("ada/secret-env", tags=("hidden-tag",))
    assert "hidden-tag" not in client.get("/api/v1/facets", headers=ada.headers).text
    change(hub, "ada/math-env", visibility="private")
    assert client.get("/api/v1/facets").json()["tags"] == []


@pytest.mark.parametrize("sort", ["updated", "created", "name", "stars", "downloads", "relevance"])
def test_pages_show_every_environment_once_in_order(hub, world, ada, sort):
    for number in range(7):
        ref = f"ada/env-{number}"
        world.release(ref, visibility="public", package=Package(f"env-{number}", readme="word " * (number % 3 + 1)))
        change(hub, ref, n_stars=number % 3, n_downloads=number // 2, updated_at=now() - timedelta(days=number % 4))
    search = "word" if sort == "relevance" else ""
    every = catalog.environments(hub, NOBODY, catalog.Query(search=search, sort=sort, limit=100))
    assert every.next is None
    assert {card.name for card in every.environments} == {f"env-{number}" for number in range(7)}
    paged, after = [], None
    while True:
        page = catalog.environments(hub, NOBODY, catalog.Query(search=search, sort=sort, limit=2, after=after))
        assert len(page.environments) <= 2
        paged += page.environments
        after = page.next
        if after is None:
            break
    assert paged == list(every.environments)
    if sort == "stars":
        assert [card.n_stars for card in paged] == sorted((card.n_stars for card in paged), reverse=True)
    if sort == "updated":
        assert [card.updated_at for card in paged] == sorted((card.updated_at for card in paged), reverse=True)


def test_a_cursor_of_another_list_or_from_nowhere_is_refused(client, world, ada):
    for name in ("a-env", "b-env"):
        world.release(f"ada/{name}", visibility="public")
    after = client.get(f"{API}?limit=1").json()["next"]
    assert names(client, f"after={after}") == ["a-env"]
    for query in (f"sort=name&after={after}", "after=x", "after=WyJ1cGRhdGVkIiwxLDJd", f"after={'A' * 5000}"):
        answer = client.get(f"{API}?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor")
    assert client.get(f"{API}?limit=1000").status_code == 422
    assert client.get(f"{API}?sort=size").status_code == 422
    assert client.get(f"{API}?tag=a%00b").status_code == 400


def shown_by(cursor):
    return json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))[1:]


@pytest.mark.parametrize("sort", ["updated", "created", "name", "stars", "downloads"])
def test_a_cursor_says_nothing_that_its_page_does_not_show(client, world, ada, sort):
    for name in ("a-env", "b-env", "c-env"):
        world.release(f"ada/{name}", visibility="public")
    page = client.get(f"{API}?limit=2&sort={sort}").json()
    card = page["environments"][-1]
    times = [datetime.fromisoformat(card[key]).isoformat() for key in ("created_at", "updated_at")]
    shown = [card["normalized"], card["n_stars"], card["n_downloads"], *times]
    assert all(value in shown for value in shown_by(page["next"]))


def test_a_list_goes_on_behind_an_environment_that_is_gone(client, world, ada, hub):
    for name in ("a-env", "b-env", "c-env"):
        world.release(f"ada/{name}", visibility="public")
    after = client.get(f"{API}?limit=2&sort=name").json()["next"]
    change(hub, "ada/b-env", visibility="private")
    assert names(client, f"sort=name&after={after}") == ["c-env"]


def test_whether_a_hidden_environment_is_there_changes_nothing_that_others_are_told(client, world, ada, hub):
    """Neither what a search finds, nor its order, nor where its pages end; whatever words the hidden one is made of."""
    texts = {"a-env": "alpha alpha alpha beta", "b-env": "alpha beta beta beta", "c-env": "alpha and beta, " * 9}
    for name, readme in texts.items():
        world.release(f"ada/{name}", visibility="public", package=Package(name, readme=readme))

    def told():
        pages = []
        for search in ("alpha", "beta", "alpha beta", "alph bet"):
            asked = {"search": search, "limit": 1}
            while asked.get("after", "first"):
                pages.append(client.get(API, params=asked).json())
                asked["after"] = pages[-1]["next"]
        return pages

    before = told()
    world.user("bob")
    for number in range(5):
        hidden = Package(f"hidden-{number}", summary="beta", readme="beta " * 500)
        world.release(f"bob/hidden-{number}", package=hidden, tags=("beta",))
    assert told() == before


def test_starred_environments_are_the_askers(client, world, ada, hub):
    bob = world.user("bob")
    project_id = world.project("ada/other-env", visibility="public")
    world.release("ada/other-env")
    world.release("ada/math-env", visibility="public")
    with hub.database.write() as session:
        session.add(Star(project_id=project_id, user_id=bob.id))
    assert names(client, "starred=true", **bob.headers) == ["other-env"]
    assert names(client, "starred=true", **ada.headers) == []
    assert client.get(f"{API}/ada/other-env", headers=bob.headers).json()["is_starred"] is True


# One environment


def test_an_environment_shows_its_newest_release_and_all_versions(client, world, ada, hub):
    world.release("ada/math-env", "0.9.0", visibility="public")
    world.release("ada/math-env", "0.10.0", package=Package("math-env", "0.10.0", requires=("numpy>=2", "verifiers")))
    detail = client.get(f"{API}/Ada/Math_Env").json()
    assert detail["card"]["version"] == "0.10.0"
    assert [release["version"] for release in detail["releases"]] == ["0.10.0", "0.9.0"]
    assert [release["is_latest"] for release in detail["releases"]] == [True, False]
    assert [need["normalized"] for need in detail["latest"]["needs"]] == ["numpy", "verifiers"]
    assert [need["is_library"] for need in detail["latest"]["needs"]] == [False, True]
    assert "<pre>" in detail["latest"]["readme_html"]
    file = detail["releases"][0]["files"][0]
    assert client.get(file["path"]).headers["content-length"] == str(file["size_bytes"])
    assert detail["role"] is None
    assert client.get(f"{API}/ada/math-env", headers=ada.headers).json()["role"] == "owner"


def test_a_version_is_found_in_any_spelling(client, world, ada):
    world.release("ada/math-env", "1.0", visibility="public")
    for spelt in ("1.0", "1", "1.0.0", "latest"):
        assert client.get(f"{API}/ada/math-env/versions/{spelt}").json()["info"]["version"] == "1.0"
    for wrong in ("1.1", "x", "latestt"):
        assert client.get(f"{API}/ada/math-env/versions/{wrong}").status_code == 404
    assert [one["version"] for one in client.get(f"{API}/ada/math-env/versions").json()] == ["1.0"]


def test_keys_that_an_environment_needs_are_named(client, world, ada, hub):
    world.release("ada/math-env", visibility="public")
    with hub.database.write() as session:
        session.query(Release).one().declaration = {"required_keys": ["SEARCH_KEY"], "eval": {"num_examples": 5}}
    latest = client.get(f"{API}/ada/math-env/versions/latest").json()
    assert latest["required_keys"] == ["SEARCH_KEY"]
    assert latest["declaration"]["eval"] == {"num_examples": 5}


@pytest.mark.parametrize(
    "rest",
    ["", "/versions", "/versions/1.0.0", "/versions/1.0.0/files", "/versions/1.0.0/files/README.md",
     "/diff?old=1.0.0", "/lineage", "/used-by", "/install"],
)  # fmt: skip
def test_a_hidden_environment_looks_like_a_missing_one(client, world, ada, rest):
    world.release("ada/math-env")
    eve = world.user("eve")
    for headers in ({}, eve.headers):
        hidden = client.get(f"{API}/ada/math-env{rest}", headers=headers)
        missing = client.get(f"{API}/ada/moth-env{rest}", headers=headers)
        assert hidden.status_code == missing.status_code == 404
        assert hidden.json()["detail"] == missing.json()["detail"].replace("moth", "math")
    assert client.get(f"{API}/ada/math-env{rest}", headers=ada.headers).status_code == 200


# Sources


def test_the_files_of_a_release_are_listed_and_read(client, world, ada, hub):
    text = "def load_environment(**args):\n    return 'ü'\n"
    world.release("ada/math-env", visibility="public", package=Package("math-env", module_text=text))
    base = f"{API}/ada/math-env/versions/1.0.0/files"
    listed = client.get(base).json()
    assert listed["kind"] == "sdist"
    assert [member["path"] for member in listed["members"]] == [
        "PKG-INFO",
        "README.md",
        "math_env.py",
        "pyproject.toml",
    ]
    whole = client.get(f"{base}/math_env.py").json()
    assert (whole["text"], whole["is_cut"]) == (text, False)
    cut = client.get(f"{base}/math_env.py?max_bytes={len(text.encode()) - 4}").json()
    assert cut["is_cut"] is True
    assert text.startswith(cut["text"]) and "ü" not in cut["text"], "cut in the middle of the letter"
    for path in ("nothing.py", "../math_env.py", "%2e%2e/math_env.py", "math_env.py/"):
        assert client.get(f"{base}/{path}").status_code == 404
    assert client.get(f"{base}/math_env.py?max_bytes=600000").status_code == 422
    change(hub, "ada/math-env", status="quarantined")
    assert client.get(f"{base}/math_env.py").status_code == 403


def test_what_is_no_text_is_not_shown_as_one():
    assert as_text(b"\xff\xfe") is None
    assert as_text(b"a\0b") is None
    assert as_text("ü".encode()[:1], is_cut=True) == ""
    assert as_text("ü".encode()[:1]) is None


# Differences


def test_two_versions_are_compared_file_by_file(client, world, ada):
    world.release("ada/math-env", "1.0.0", visibility="public")
    text = "def load_environment(**args):\n    return 1\n"
    world.release("ada/math-env", "1.1.0", package=Package("math-env", "1.1.0", module_text=text))
    diff = client.get(f"{API}/ada/math-env/diff?old=1.0.0").json()
    changes = {change["path"]: change for change in diff["changes"]}
    assert changes.keys() == {"PKG-INFO", "math_env.py", "pyproject.toml"}
    assert diff["n_unchanged"] == 1
    assert changes["math_env.py"]["change"] == "changed"
    assert changes["math_env.py"]["lines"][-2:] == ["-    return None", "+    return 1"]
    assert changes["math_env.py"]["new_size_bytes"] == len(text)
    assert client.get(f"{API}/ada/math-env/diff?old=1.0.0&new=1.0.0").json()["changes"] == []
    assert client.get(f"{API}/ada/math-env/diff?old=3.0").status_code == 404


def member(path, sha256="a", size=10, executable=False):
    return SourceMember(path, size, sha256, executable)


def test_added_removed_moved_and_changed_are_told_apart():
    old = (member("same"), member("gone", "b"), member("here", "c"), member("mode", "d"), member("edited", "e"))
    new = (member("same"), member("come", "f"), member("there", "c"), member("mode", "d", executable=True),
           member("edited", "g"))  # fmt: skip
    changes, n_unchanged = changed_files(old, new)
    told = [(kind, one and one.path, other and other.path) for kind, one, other in changes]
    assert told == [
        ("added", None, "come"),
        ("changed", "edited", "edited"),
        ("removed", "gone", None),
        ("changed", "mode", "mode"),
        ("moved", "here", "there"),
    ]
    assert n_unchanged == 1


def test_a_file_that_is_too_large_is_listed_without_its_lines(client, world, ada):
    for version in ("1.0", "1.1"):
        text = f"load_environment = {version!r}\n" + "# filler\n" * (MAX_FILE_BYTES // 9 + 1)
        package = Package("math-env", version, module_text=text)
        world.release("ada/math-env", version, visibility="public", package=package)
    changes = client.get(f"{API}/ada/math-env/diff?old=1.0&new=1.1").json()["changes"]
    (large,) = [change for change in changes if change["path"] == "math_env.py"]
    assert large["lines"] == []
    assert large["left_out"] == "larger than 200,000 bytes"


# Lineage


def test_lineage_goes_up_to_what_the_asker_may_see(client, world, ada, hub):
    world.user("bob"), world.user("cyd")
    first = world.project("ada/math-env", visibility="public")
    world.release("ada/math-env")
    second = world.project("bob/math-env", visibility="public")
    world.release("bob/math-env")
    world.release("cyd/math-env", visibility="public")
    change(hub, "bob/math-env", forked_from_id=first, forked_from_version="1.0.0")
    change(hub, "cyd/math-env", forked_from_id=second, forked_from_version="1.0.0")

    def of(owner):
        return client.get(f"{API}/{owner}/math-env/lineage").json()

    assert [ancestor["ref"] for ancestor in of("cyd")["ancestors"]] == ["bob/math-env", "ada/math-env"]
    assert [card["owner"] for card in of("ada")["forks"]] == ["bob"]
    assert client.get(f"{API}/bob/math-env").json()["forked_from"] == "ada/math-env"
    change(hub, "bob/math-env", visibility="private")
    assert of("cyd")["ancestors"] == [{"ref": None, "version": None}]
    assert of("ada")["forks"] == []
    assert client.get(f"{API}/cyd/math-env").json()["forked_from"] is None


def test_used_by_counts_the_newest_release_only(client, world, ada):
    world.release("ada/base-env", visibility="public")
    needs = Package("user-env", "1.0", requires=("verifiers", "Base_Env>=1"))
    world.release("ada/user-env", visibility="public", package=needs)
    world.release("ada/secret-env", package=Package("secret-env", requires=("base-env",)))

    def users(**headers):
        return [card["name"] for card in client.get(f"{API}/ada/base-env/used-by", headers=headers).json()]

    assert users() == ["user-env"]
    assert users(**ada.headers) == ["secret-env", "user-env"]
    detail = client.get(f"{API}/ada/user-env").json()
    assert detail["latest"]["needs"][0]["environments"] == ["ada/base-env"]
    world.release("ada/user-env", "2.0", package=Package("user-env", "2.0"))
    assert users() == []


# Installing


def test_install_lines_go_through_the_index_of_that_environment_only(client, world, ada, hub):
    world.release("ada/math-env", visibility="public")
    lines = client.get(f"{API}/ada/Math_Env/install").json()
    index = "https://hub.test/ada/math-env/simple/"
    assert lines == {
        "index_url": index,
        "vf_install": "vf-install ada/math-env",
        "uv_pip": f"uv pip install --extra-index-url {index} math-env",
        "uv_add": f"uv add --index ada-math-env={index} math-env",
        "pip": f"pip install --extra-index-url {index} math-env",
        "warning": None,
    }
    pinned = client.get(f"{API}/ada/math-env/install?version=1").json()
    assert pinned["vf_install"] == "vf-install ada/math-env@1.0.0"
    assert pinned["uv_add"].endswith(" math-env==1.0.0")
    change(hub, "ada/math-env", visibility="private")
    private = client.get(f"{API}/ada/math-env/install", headers=ada.headers).json()
    assert shlex.split(private["pip"])[3] == "https://__token__:$VF_HUB_TOKEN@hub.test/ada/math-env/simple/"
    assert private["uv_add"].startswith("UV_INDEX_ADA_MATH_ENV_USERNAME=__token__ UV_INDEX_ADA_MATH_ENV_PASSWORD=$VF")
    assert index in private["uv_add"], "the token is in no address that uv writes down"


def test_a_release_for_another_library_of_that_name_is_warned_of(client, world, ada):
    old = Package("old-env", requires=("verifiers<0.2,>=0.1.3",))
    world.release("ada/old-env", visibility="public", package=old)
    warning = client.get(f"{API}/ada/old-env/install").json()["warning"]
    assert "verifiers<0.2,>=0.1.3" in warning
    assert warning.endswith("Use: vf-install ada/old-env")


@pytest.mark.parametrize("private", [True, False])
def test_no_install_line_names_a_public_index(private):
    lines = install_lines("https://hub.example", "ada", "math-env", "1!1.0", private=private)
    for line in (lines.uv_pip, lines.uv_add, lines.pip):
        assert line.count("://") == 1
        assert "math-env==1!1.0" in shlex.split(line)
        assert "--index-url" not in shlex.split(line)
