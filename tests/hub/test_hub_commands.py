"""`vf hub …` against a hub that answers on this machine: each command once, what it prints and what `--json` holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_evaluations import lines, record, wheel_sha256
from hub_online import Home, online
from hub_packages import Package

from verifiers.cli.hub_session import table
from verifiers.cli.main import load_command
from verifiers.hub.client import HubClient
from verifiers.hub.credentials import Login

CARD = {
    "owner", "name", "normalized", "summary", "tags", "task_type", "license", "version", "visibility", "status",
    "n_stars", "n_downloads", "created_at", "updated_at",
}  # fmt: skip
DETAIL = {
    "card", "status_reason", "publish_answers", "role", "is_starred", "forked_from", "forked_from_version", "latest",
    "releases", "install",
}  # fmt: skip


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with online(tmp_path_factory.mktemp("hub") / "data") as hub:
        hub.world.user("root", is_admin=True)
        for user in ("ada", "bob"):
            hub.world.user(user)
        for version in ("1.0.0", "1.1.0"):
            package = Package("sums", version, readme=f"# Sums {version}")
            hub.world.release("ada/sums", version, visibility="public", package=package, tags=("math",))
        hub.world.release("bob/needs-sums", visibility="public", package=Package("needs-sums", requires=("sums",)))
        yield hub


@pytest.fixture
def ada(hub, tmp_path, monkeypatch):
    return Caller(Home(tmp_path, monkeypatch), hub, hub.world.token("ada"))


class Caller:
    """Calls `vf hub …` as one user."""

    def __init__(self, home, hub, token):
        self.home, self.hub, self.token = home, hub, token
        home.use(hub, token)

    def as_(self, user):
        return Caller(self.home, self.hub, self.hub.world.token(user))

    def __call__(self, *words, code=0, stdin=""):
        self.home.use(self.hub, self.token)
        said = self.home.vf("hub", *words, code=code, stdin=stdin)
        assert "vfh_" not in said.err
        return said

    def json(self, *words, stdin=""):
        return self(*words, "--json", stdin=stdin).json


def evaluation(hub, user, model, rewards, visibility="public"):
    """A completed evaluation of ada/sums 1.1.0; its id."""
    wheel = wheel_sha256(hub.world, "ada/sums", "1.1.0")
    made = [record(example, 0, reward, model=model, wheel=wheel, version="1.1.0")
            for example, reward in enumerate(rewards)]  # fmt: skip
    with HubClient(Login(hub.url, hub.world.token(user))) as client:
        begun = client.call("POST", "projects", "ada", "sums", "evaluations", json={
            "idempotency_key": f"key-of-{model}", "model": model, "version": "1.1.0", "wheel_sha256": wheel,
            "visibility": visibility,
        })  # fmt: skip
        client.call("POST", "evaluations", begun["id"], "samples", content=lambda: iter([lines(made)]))
        client.call("POST", "evaluations", begun["id"], "complete", json={})
    return begun["id"]


# Looking around


def test_search_finds_by_words_and_filters_and_pages(ada):
    found = ada.json("search", "sums", "--owner", "ada", "--tag", "math", "--sort", "name")
    assert [one["name"] for one in found["environments"]] == ["sums"]
    assert found["environments"][0].keys() == CARD
    assert "ada/sums  1.1.0  ★" in ada("search", "--mine").out
    assert ada("search", "nowhere-at-all").out == "nothing was found\n"
    first = ada.json("search", "-n", "1")
    assert first["next"] and f"more: --after {first['next']}" in ada("search", "-n", "1").out
    second = ada.json("search", "-n", "1", "--after", first["next"])
    assert second["environments"] != first["environments"]


def test_info_tells_what_it_is_and_how_it_is_installed(ada):
    told = ada("info", "ada/sums").out
    assert "vf-install ada/sums" in told and "1.1.0" in told
    found = ada.json("info", "ada/sums@1.0.0")
    assert found.keys() == DETAIL and found["latest"]["info"]["version"] == "1.0.0"
    assert found["install"]["vf_install"] == "vf-install ada/sums@1.0.0"
    assert "names no owner" in ada("info", "sums", code=3).err
    assert "no" in ada("info", "ada/sums@9.9.9", code=3).err


def test_what_others_wrote_does_not_steer_the_terminal():
    assert table([["a", "\x1b[2Jgone\x07\x9b"], ["bcd", "\ttabs stay"]]) == "a    �[2Jgone��\nbcd  \ttabs stay"


def test_versions_files_and_differences_of_the_source(ada):
    assert [one["version"] for one in ada.json("versions", "ada/sums")] == ["1.1.0", "1.0.0"]
    assert "latest" in ada("versions", "ada/sums").out.splitlines()[0]
    members = ada.json("files", "ada/sums")["members"]
    assert {"path", "size_bytes"} <= members[0].keys()
    assert "README.md" in ada("files", "ada/sums@1.0.0").out
    assert ada("files", "ada/sums@1.0.0", "README.md").out == "# Sums 1.0.0"
    assert ada.json("files", "ada/sums", "README.md")["text"] == "# Sums 1.1.0"
    difference = ada("diff", "ada/sums", "1.0.0").out
    assert "-# Sums 1.0.0" in difference and "+# Sums 1.1.0" in difference
    assert {change["path"] for change in ada.json("diff", "ada/sums", "1.0.0", "1.1.0")["changes"]} >= {"README.md"}


def test_lineage_users_and_validations(ada):
    found = ada.json("lineage", "ada/sums")
    assert (found["ancestors"], found["forks"]) == ([], [])
    assert ada("lineage", "ada/sums").out == "no forks\n"
    assert [one["name"] for one in ada.json("used-by", "ada/sums")] == ["needs-sums"]
    assert "bob/needs-sums" in ada("used-by", "ada/sums").out
    assert ada.json("validations", "ada/sums") == []
    assert "not validated" in ada("validations", "ada/sums").out


# Looking after an environment


def test_stars(ada):
    assert ada("star", "ada/sums").out == "ada/sums has 1 stars\n"
    assert [(one["owner"], one["name"]) for one in ada.json("stars")] == [("ada", "sums")]
    assert "ada/sums" in ada("stars").out and "ada/sums" in ada("search", "--starred").out
    assert ada.json("unstar", "ada/sums")["n_stars"] == 0


def test_yank_and_unyank(hub, ada):
    hub.world.release("ada/yanks")
    assert "is yanked" in ada("yank", "ada/yanks@1.0.0", "--reason", "wrong answers").out
    assert "yanked: wrong answers" in ada("versions", "ada/yanks").out
    assert ada.json("versions", "ada/yanks")[0]["yanked"] is True
    assert "offered again" in ada("unyank", "ada/yanks@1.0.0").out
    assert "which version" in ada("yank", "ada/yanks", code=3).err


def test_visibility_and_status(hub, ada):
    hub.world.release("ada/shown")
    assert ada.json("visibility", "ada/shown", "public")["visibility"] == "public"
    assert ada.json("status", "ada/shown", "deprecated", "--reason", "use sums")["status"] == "deprecated"
    assert "[deprecated]" in ada("search", "shown").out
    warned = ada.home.vf("pull", "ada/shown").err
    assert "warning: 'ada/shown' is deprecated by its author" in warned
    assert ada("status", "ada/shown", "active").out == "ada/shown is active\n"
    assert "error:" in ada("status", "ada/shown", "quarantined", code=3).err
    ada.as_("root")("status", "ada/shown", "quarantined")
    ada("versions", "ada/shown")
    assert "quarantine" in ada.home.vf("pull", "ada/shown", "-t", "other", code=3).err
    assert ada("visibility", "ada/shown", "secret", code=2).err.startswith("error:")


def test_answers(hub, ada):
    hub.world.release("ada/exam")
    assert ada("answers", "ada/exam", "keep").out == "answers of ada/exam are kept at home\n"
    assert ada.json("info", "ada/exam")["publish_answers"] is False
    assert ada.json("answers", "ada/exam", "publish")["publish_answers"] is True


def test_collaborators(hub, ada):
    hub.world.release("ada/shared")
    bob = ada.as_("bob")
    bob("info", "ada/shared", code=3)
    assert ada("collaborators", "set", "ada/shared", "bob", "reader").out == "bob is reader of ada/shared\n"
    assert ada.json("collaborators", "list", "ada/shared")[0].items() >= {"name": "bob", "role": "reader"}.items()
    bob("info", "ada/shared")
    ada("collaborators", "remove", "ada/shared", "bob")
    bob("info", "ada/shared", code=3)


def test_transfer_and_delete_ask_first(hub, ada):
    hub.world.release("ada/moved")
    ada("organisation", "create", "movers")
    assert "interrupted" in ada("transfer", "ada/moved", "movers", stdin="n\n", code=130).err
    assert ada("transfer", "ada/moved", "movers", stdin="y\n").out.endswith("is movers/moved now\n")
    assert "interrupted" in ada("delete", "movers/moved@1.0.0", stdin="", code=130).err
    ada("versions", "movers/moved")
    assert "deleted movers/moved@1.0.0" in ada("delete", "movers/moved@1.0.0", "-y").out
    assert ada("versions", "movers/moved").out == "nothing is published yet\n"
    assert ada("info", "movers/moved").out.endswith("nothing is published yet\n")
    ada("delete", "movers/moved", "--yes")
    ada("info", "movers/moved", code=3)


# Results


def test_results_are_listed_ranked_compared_shown_and_deleted(hub, ada):
    weak = evaluation(hub, "ada", "weak", [0.0, 1.0, 0.0, 0.0])
    strong = evaluation(hub, "ada", "strong", [1.0, 1.0, 1.0, 0.0])
    ranked = ada.json("leaderboard", "ada/sums")["rows"]
    assert [(one["rank"], one["model"]) for one in ranked] == [(1, "strong"), (2, "weak")]
    assert "strong" in ada("leaderboard", "ada/sums@1.1.0").out.splitlines()[1]
    assert {one["id"] for one in ada.json("evaluations", "ada/sums")} == {weak, strong}
    assert strong in ada("evaluations", "ada/sums", "-m", "strong").out
    assert weak not in ada("evaluations", "ada/sums", "-m", "strong").out
    compared = ada("compare", weak, strong, "-n", "2").out
    assert compared.startswith("candidate - baseline: +0.5000") and "over 4 examples" in compared
    assert ada.json("compare", weak, strong)["difference"]["mean"] == 0.5
    rates = ada.json("pass-rates", "ada/sums")["examples"]
    assert [(one["example_id"], one["n_passed"]) for one in rates] == [(0, 1), (1, 2), (2, 1), (3, 0)]
    assert "2 of 2" in ada("pass-rates", "ada/sums").out
    assert ada.json("evaluation", "show", strong)["mean_reward"] == 0.75
    assert "0.7500" in ada("evaluation", "show", strong).out
    assert ada("evaluation", "visibility", strong, "private").out == f"{strong} is private\n"
    ada.as_("bob")("evaluation", "show", strong, code=3)
    ada("evaluation", "delete", weak, "--yes")
    ada("evaluation", "show", weak, code=3)


def test_without_results_it_says_so(hub, ada):
    hub.world.release("ada/fresh")
    assert "no results yet" in ada("leaderboard", "ada/fresh").out
    assert ada("evaluations", "ada/fresh").out == "none that you may see\n"
    assert ada.json("evaluations", "ada/fresh") == []
    assert ada("pass-rates", "ada/fresh").out == "no results yet\n"


# People


def test_tokens_are_shown_once_and_revoked(hub, ada):
    made = ada.json("token", "create", "CI of sums", "--scope", "read", "--project", "ada/sums", "--days", "7")
    secret = made["token"]
    listed = ada.json("token", "list")
    (mine,) = [one for one in listed if one["name"] == "CI of sums"]
    assert mine.items() >= {"scope": "read", "project": "ada/sums", "state": "active"}.items()
    text = ada("token", "list").out
    assert secret not in text and "CI of sums  read" in text and "until 20" in text
    forever = ada("token", "create", "laptop", "--days", "0").out.strip()
    assert forever.startswith("vfh_")
    (last,) = [one for one in ada.json("token", "list") if one["name"] == "laptop"]
    assert last["expires_at"] is None
    ada("token", "revoke", str(mine["id"]))
    with HubClient(Login(hub.url, secret)) as client, pytest.raises(Exception, match="revoked"):
        client.get("whoami")


def test_organisations_and_their_members(hub, ada):
    assert ada.json("organisation", "create", "lab", "--display-name", "The lab")["name"] == "lab"
    assert "The lab" in ada("organisation", "list").out
    assert ada("organisation", "set", "lab", "bob", "maintainer").out == "bob is maintainer of lab\n"
    assert {(one["name"], one["role"]) for one in ada.json("organisation", "members", "lab")} == {
        ("ada", "owner"), ("bob", "maintainer"),
    }  # fmt: skip
    ada("organisation", "remove", "lab", "bob", "-y")
    assert "bob" not in ada("organisation", "members", "lab").out
    assert {one["name"] for one in ada.json("organisation", "list")} >= {"lab"}


def test_users_are_their_administrators(hub, ada):
    root = ada.as_("root")
    word = "correct horse battery"
    assert root("user", "create", "cyd", stdin=f"{word}\n").out == "made cyd\n"
    assert "cyd" in root("user", "list").out
    root("user", "disable", "cyd")
    assert [one["is_active"] for one in root.json("user", "list") if one["name"] == "cyd"] == [False]
    root("user", "enable", "cyd")
    assert "error:" in ada("user", "list", code=3).err


def test_profiles(ada):
    assert ada.json("profile", "ada", "--display-name", "Ada L.", "--about", "Engines")["about"] == "Engines"
    assert ada("profile", "ada").out == "ada (user)  Ada L.\nEngines\n"


def test_the_audit_log(hub, ada):
    hub.world.release("ada/watched")
    ada("visibility", "ada/watched", "public")
    events = ada.json("audit", "--owner", "ada", "--project", "watched")
    assert events[0]["actor"] == "ada" and events[0]["action"].startswith("project.")
    assert "ada" in ada("audit", "--owner", "ada", "-n", "1").out
    assert "error:" in ada("audit", code=3).err  # the whole hub's is its administrators'
    assert ada.as_("root").json("audit", "--action", "project", "-n", "5")


def test_every_command_is_called_above():
    """A command that is added needs a test."""

    def names(command):
        for name, part in command.commands.items():
            inner = getattr(part, "commands", None)
            yield from (f'"{name}", {other}' for other in names(part)) if inner else [f'"{name}"']

    source = Path(__file__).read_text()
    missing = [name for name in names(load_command("hub")) if f"({name}" not in source]
    assert missing == []
