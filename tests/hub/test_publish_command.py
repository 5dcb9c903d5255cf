"""`vf publish` against a hub that answers on this machine, with the real uv."""

from __future__ import annotations

import pytest
from hub_online import Home, online

from verifiers.cli.init import create
from verifiers.errors import ConfigError
from verifiers.hub.version_bump import bumped, write_version

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with online(tmp_path_factory.mktemp("hub") / "data") as hub:
        hub.world.user("ada")
        hub.world.user("bob")
        hub.world.organisation("lab", ada="maintainer")
        yield hub


@pytest.fixture
def home(hub, tmp_path, monkeypatch):
    home = Home(tmp_path, monkeypatch)
    home.use(hub, hub.world.token("ada"))
    return home


def environment(name):
    """A new environment's folder in ./environments, with a comment in its pyproject.toml."""
    folder = create(name)
    file = folder / "pyproject.toml"
    file.write_text(file.read_text().replace('version = "0.1.0"', 'version = "0.1.0"  # raised by hand'))
    return folder


def test_a_new_environment_is_private_and_publishing_it_again_changes_nothing(hub, home):
    environment("zz-new")
    first = home.vf("publish", "zz-new", "--json").json
    assert first["id"] == "ada/zz-new" and first["version"] == "0.1.0" and first["visibility"] == "private"
    assert first["page"] == f"{hub.url}/ada/zz-new"
    assert first["index"] == f"{hub.url}/ada/zz-new/simple/"
    assert first["install"] == "vf-install ada/zz-new@0.1.0"
    assert sorted(first["files"]) == ["zz_new-0.1.0-py3-none-any.whl", "zz_new-0.1.0.tar.gz"]
    assert all(len(sha256) == 64 for sha256 in first["files"].values())
    again = home.vf("publish", "environments/zz_new", "--visibility", "public", "--json").json
    assert again == {**first, "visibility": "public"}  # the same bytes from the same sources
    home.use(hub, None)
    assert "zz-new" in home.vf("hub", "search", "zz-new").out
    home.use(hub, hub.world.token("ada"))
    (home.folder / "environments" / "zz_new" / "README.md").write_text("# Other words\n")
    refused = home.vf("publish", "zz-new", code=3).err
    assert "0.1.0" in refused and "already" in refused


def test_a_dry_run_sends_nothing_and_changes_nothing(hub, home):
    folder = environment("zz-dry")
    before = (folder / "pyproject.toml").read_bytes()
    hub.seen.clear()
    told = home.vf("publish", "zz-dry", "--dry-run", "--bump", "minor", "--json").json
    assert (told["name"], told["version"], told["published"]) == ("zz-dry", "0.2.0", False)
    assert {file["filename"] for file in told["files"]} == {"zz_dry-0.2.0-py3-none-any.whl", "zz_dry-0.2.0.tar.gz"}
    assert all(file.keys() == {"filename", "size_bytes", "sha256", "members"} for file in told["files"])
    assert hub.seen == []
    assert (folder / "pyproject.toml").read_bytes() == before


def test_bump_raises_the_version_and_keeps_comments_and_a_refusal_puts_it_back(hub, home):
    folder = environment("zz-bump")
    assert "published ada/zz-bump 0.1.1 (private)" in home.vf("publish", "zz-bump", "--bump", "patch").out
    text = (folder / "pyproject.toml").read_text()
    assert 'version = "0.1.1"  # raised by hand' in text
    home.use(hub, hub.world.token("ada", "read"))
    assert "is for 'read' only" in home.vf("publish", "zz-bump", "--bump", "major", code=3).err
    assert (folder / "pyproject.toml").read_text() == text


def test_an_archive_that_breaks_a_rule_is_refused_before_anything_is_sent(hub, home):
    folder = environment("zz-large")
    file = folder / "pyproject.toml"
    file.write_text(file.read_text() + '\n[tool.verifiers]\npublish_answers = "perhaps"\n')
    hub.seen.clear()
    refused = home.vf("publish", "zz-large", code=3).err
    assert "zz-large 0.1.0 may not be published" in refused and "publish_answers" in refused
    assert hub.seen == []


def test_publish_answers_of_the_package_becomes_the_projects(hub, home):
    folder = environment("zz-quiet")
    file = folder / "pyproject.toml"
    file.write_text(file.read_text() + "\n[tool.verifiers]\npublish_answers = false\n")
    home.vf("publish", "zz-quiet")
    assert home.vf("hub", "info", "ada/zz-quiet", "--json").json["publish_answers"] is False


def test_who_may_not_publish_learns_it_with_nothing_left_behind(hub, home):
    environment("zz-theirs")
    assert "bob" in home.vf("publish", "zz-theirs", "--owner", "bob", code=3).err
    home.use(hub, None)
    assert "vf login" in home.vf("publish", "zz-theirs", code=3).err
    home.use(hub, hub.world.token("bob"))
    assert home.vf("hub", "search", "zz-theirs", "--json").json["environments"] == []


def test_what_is_no_folder_of_an_environment_is_refused(home):
    (home.folder / "empty").mkdir()
    for what in ("zz-nothing", "empty", "git+https://example.com/x.git"):
        assert "error:" in home.vf("publish", what, code=3).err


# Versions


@pytest.mark.parametrize(
    ("version", "how", "new"),
    [
        ("1.4.2", "major", "2.0.0"),
        ("1.4.2", "patch", "1.4.3"),
        ("1.4", "patch", "1.4.1"),
        ("1.5.0rc1", "rc", "1.5.0rc2"),
        ("1.5.0.dev3", "rc", "1.5.0rc1"),
        ("1.5.0", "post", "1.5.0.post1"),
        ("1.5.0.post1", "post", "1.5.0.post2"),
        ("1!1.0", "minor", "1!1.1.0"),
    ],
)
def test_the_next_version_comes_after_the_last(version, how, new):
    assert bumped(version, how) == new


@pytest.mark.parametrize("how", ["1.4.2", "1.4", "1.4.2rc1", "newer", ""])
def test_a_version_never_falls(how):
    with pytest.raises(ConfigError):
        bumped("1.4.2", how)


def test_the_file_keeps_its_line_ends_and_its_mode(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_bytes(b'[project]\r\nname = "x" # a\r\nversion = "1.0.0"\r\n')
    file.chmod(0o640)
    assert write_version(tmp_path, "minor") == "1.1.0"
    assert file.read_bytes() == b'[project]\r\nname = "x" # a\r\nversion = "1.1.0"\r\n'
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", ['[project]\nname = "x"\ndynamic = ["version"]\n', "[project\n", "project = 1\n"])
def test_a_version_that_is_not_written_there_is_not_invented(tmp_path, text):
    file = tmp_path / "pyproject.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"pyproject\.toml"):
        write_version(tmp_path, "minor")
    assert file.read_text() == text
