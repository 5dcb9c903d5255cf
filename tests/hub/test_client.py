"""The client's side of a hub: logins, requests, downloads. Item 48 of the hub's list of faults."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat

import pytest
from hub_online import Answer, Home, online, problem, scripted, told
from hub_packages import Package

from hub_server.principal import Principal
from hub_server.services import devices
from hub_server.services.access import owner_named
from verifiers.errors import ConfigError, EnvironmentNotFound, SetupError
from verifiers.hub.account import sign_in
from verifiers.hub.client import HubClient, HubError, HubNotFound
from verifiers.hub.credentials import Login, checked_url, current_login, forget, remember
from verifiers.hub.fetch import fetch
from verifiers.hub.pull import pull
from verifiers.refs import EnvRef

TOKEN = "vfh_" + "a" * 40
PACKAGE = Package("zz-sums")
REF = EnvRef("zz-sums", "ada")
JSON = "application/vnd.pypi.simple.v1+json"


@pytest.fixture
def home(tmp_path, monkeypatch):
    return Home(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with online(tmp_path_factory.mktemp("hub") / "data") as hub:
        hub.world.user("ada")
        yield hub


def page(*files, status="active"):
    return told({"meta": {"api-version": "1.4"}, "name": "zz-sums", "files": list(files),
                 "project-status": {"status": status}, "versions": []})  # fmt: skip


def offered(filename=PACKAGE.wheel_name, data=None, url="/files/one", **more):
    data = PACKAGE.wheel() if data is None else data
    return {"filename": filename, "url": url, "size": len(data),
            "hashes": {"sha256": hashlib.sha256(data).hexdigest()}, **more}  # fmt: skip


def index_of(*files, data=b"", **answers):
    """A hub that has one environment; `answers` to other paths than its index's."""

    def answer(request):
        if request.path.endswith("/simple/zz-sums/"):
            return page(*files)
        return answers.get(request.path.rpartition("/")[2]) or Answer(body=data)

    return answer


# Which hub, and who we are there


def test_the_login_is_kept_in_a_file_that_others_cannot_read(home):
    old = os.umask(0)  # the file's mode is no work of the umask
    try:
        file = remember(Login("https://hub.example", TOKEN, "ada"))
    finally:
        os.umask(old)
    assert file == home.credentials
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert current_login() == Login("https://hub.example", TOKEN, "ada")
    assert [one.name for one in file.parent.iterdir()] == ["hub.toml"]  # no copy is left beside it


def test_the_newest_login_is_the_default_and_each_hub_keeps_its_own_token(home):
    remember(Login("https://one.example", "vfh_one", "ada"))
    remember(Login("https://two.example", "vfh_two", "bob"))
    assert current_login().token == "vfh_two"
    assert current_login("https://one.example").token == "vfh_one"
    assert forget("https://two.example")
    assert not forget("https://two.example")
    with pytest.raises(SetupError, match="no hub is known"):
        current_login()
    assert current_login("https://two.example").token is None


def test_variables_win_over_the_file_and_their_token_goes_nowhere_else(home, monkeypatch):
    remember(Login("https://saved.example", "vfh_saved", "ada"))
    monkeypatch.setenv("VF_HUB_TOKEN", "vfh_variable")
    assert current_login().token == "vfh_variable"  # for the hub in use
    monkeypatch.setenv("VF_HUB_URL", "https://ci.example/")
    assert current_login() == Login("https://ci.example", "vfh_variable")
    assert current_login("https://saved.example").token == "vfh_saved"
    assert current_login("https://other.example").token is None
    monkeypatch.delenv("VF_HUB_TOKEN")
    assert current_login().token is None


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://Hub.Example/", "https://hub.example"),
        ("hub.example/at/", "https://hub.example/at"),
        ("http://127.0.0.1:8700", "http://127.0.0.1:8700"),
        ("http://localhost:1", "http://localhost:1"),
        ("http://[::1]:8700", "http://[::1]:8700"),
    ],
)
def test_an_address_is_written_in_one_way(text, url):
    assert checked_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["ftp://hub.example", "https://ada:secret@hub.example", "https://@hub.example", "https://hub.example?x=1", "https://",
     "https://hub.example:port", "http://[::1", "https://hub .example"],
)  # fmt: skip
def test_what_is_no_address_of_a_hub_is_refused(text):
    with pytest.raises(ConfigError, match="is not the address of a hub"):
        checked_url(text)


@pytest.mark.parametrize("text", ["http://hub.example", "http://127.0.0.1.hub.example", "http://10.0.0.1:8700"])
def test_a_token_is_not_sent_in_clear_over_a_network(text, monkeypatch):
    monkeypatch.delenv("VF_HUB_ALLOW_HTTP", raising=False)
    with pytest.raises(ConfigError, match="unencrypted"):
        checked_url(text)
    monkeypatch.setenv("VF_HUB_ALLOW_HTTP", "1")
    assert checked_url(text) == text


@pytest.mark.parametrize("text", ["default = ", 'hubs = "none"', '[hubs]\n"https://hub.example" = "vfh_x"'])
def test_a_broken_file_of_logins_is_named(home, text):
    home.credentials.parent.mkdir(parents=True)
    home.credentials.write_text(text)
    for command in ("whoami", "logout"):
        assert "hub.toml" in home.vf(command, code=3).err
    with pytest.raises(ConfigError, match="sign in again"):
        remember(Login("https://hub.example", TOKEN))
    assert home.credentials.read_text() == text  # what is there is not written over


def test_comments_in_the_file_of_logins_stay(home):
    home.credentials.parent.mkdir(parents=True)
    home.credentials.write_text('# of the laptop\n[hubs."https://one.example"]\ntoken = "vfh_one"\n')
    remember(Login("https://two.example", "vfh_two"))
    assert home.credentials.read_text().startswith("# of the laptop\n")


# Signing in and out


def test_login_checks_the_token_and_never_prints_it(hub, home):
    token = hub.world.token("ada")
    said = home.vf("login", hub.url, "--token", "-", stdin=f"{token}\n")
    assert f"signed in to {hub.url} as ada" in said.out
    assert token not in said.out + said.err
    assert home.vf("whoami").out == f"ada on {hub.url}, token for 'admin'\n"
    shown = home.vf("whoami", "--json").json
    assert {"hub": hub.url, "name": "ada", "scope": "admin"}.items() <= shown.items()
    assert "signed out" in home.vf("logout").out
    assert "no hub is known" in home.vf("whoami", code=3).err


def test_logout_leaves_the_token_alone_unless_it_is_to_be_revoked(hub, home):
    token = hub.world.token("ada")
    home.vf("login", hub.url, "--token", token)
    home.vf("logout")
    home.vf("login", hub.url, "--token", token)
    home.vf("logout", "--revoke")
    assert "sign in" in home.vf("login", hub.url, "--token", token, code=3).err


def test_a_wrong_token_is_not_remembered(hub, home):
    said = home.vf("login", hub.url, "--token", TOKEN, code=3)
    assert "sign in" in said.err and TOKEN not in said.out + said.err
    assert not home.credentials.exists()


@pytest.mark.parametrize("token", ["", " ", "vfh_a b", "vfh_é", "vfh_a\x00b"])
def test_a_token_that_no_header_takes_is_refused_without_being_shown(hub, home, token):
    said = home.vf("login", hub.url, "--token", "-", stdin=token + "\n", code=3)
    assert "Sign in again" in said.err
    assert not token.strip() or token not in said.err
    assert not home.credentials.exists()


def test_login_by_the_page_waits_until_the_code_is_confirmed(home):
    polls = []

    def answer(request):
        if request.path.endswith("/device"):
            return told({"device_code": "d", "user_code": "ABCD-EFGH", "verification_url": "http://x/device",
                         "expires_in_s": 300, "interval_s": 0.01})  # fmt: skip
        if request.path.endswith("/device/token"):
            polls.append(json.loads(request.body))
            return told({"token": TOKEN}) if len(polls) == 3 else problem(400, "authorization_pending", "not yet")
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        return told({"name": "ada"})

    with scripted(answer) as server:
        said = home.vf("login", server.url, "--no-browser", "--json")
    assert said.json == {"hub": server.url, "name": "ada"}
    assert "ABCD-EFGH" in said.err
    assert polls == [{"device_code": "d"}] * 3


def test_login_by_the_page_of_a_real_hub(hub, home):
    lines = []

    def confirm(line):
        lines.append(line)
        with hub.hub.database.read() as session:
            ada = owner_named(session, "ada").id
        devices.allow(hub.hub, Principal(ada, "ada"), line.rpartition(" ")[2])  # as a browser's session does

    login = sign_in(hub.url, scope="read", say=confirm)
    assert login.user == "ada" and current_login(hub.url).token == login.token
    assert home.vf("whoami").out == f"ada on {hub.url}, token for 'read'\n"
    assert lines[0].startswith(f"open {hub.url}/") and "vfh_" not in lines[0]


def test_login_by_the_page_ends_when_it_is_denied(home):
    def answer(request):
        if request.path.endswith("/device"):
            return told({"device_code": "d", "user_code": "A", "verification_url": "u", "expires_in_s": 300,
                         "interval_s": 0.01})  # fmt: skip
        return problem(400, "access_denied", "it was denied on the page")

    with scripted(answer) as server:
        assert "it was denied" in home.vf("login", server.url, "--no-browser", code=3).err


# Requests


def test_the_token_goes_to_the_hub_and_no_redirect_takes_it_along(home):
    with scripted(lambda request: told({"name": "ada"})) as other:
        away = Answer(307, headers={"Location": f"{other.url}/api/v1/whoami"})
        with scripted(lambda request: away) as server, HubClient(Login(server.url, TOKEN)) as client:
            with pytest.raises(HubError, match=f"sends us on to {other.url}"):
                client.get("whoami")
            assert server.seen[0].headers["authorization"] == f"Bearer {TOKEN}"
        assert other.seen == []


def test_a_busy_hub_is_asked_again_when_it_says(home):
    answers = [
        problem(503, "unavailable", "busy", Retry_After="0"),
        problem(429, "rate_limited", "slow", Retry_After="0"),
    ]
    with scripted(lambda request: answers.pop(0) if answers else told({"name": "ada"})) as server:
        with HubClient(Login(server.url, TOKEN)) as client:
            assert client.get("whoami") == {"name": "ada"}
        assert len(server.seen) == 3


def test_a_hub_that_wants_a_long_pause_is_not_waited_for(home):
    with scripted(lambda request: problem(429, "rate_limited", "too many; in an hour", Retry_After="3600")) as server:
        with HubClient(Login(server.url)) as client, pytest.raises(HubError, match="in an hour") as caught:
            client.get("whoami")
        assert (caught.value.status, caught.value.code, len(server.seen)) == (429, "rate_limited", 1)


def test_what_must_not_happen_twice_is_not_repeated_after_a_503(home):
    with scripted(lambda request: problem(503, "unavailable", "busy", Retry_After="0")) as server:
        with HubClient(Login(server.url)) as client, pytest.raises(HubError, match="busy"):
            client.call("POST", "tokens", json={})
        assert len(server.seen) == 1


def test_a_hub_that_does_not_run_is_named(home):
    with socket.socket() as held:  # nobody listens there, and nobody else is given it meanwhile
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        said = home.vf("whoami", url, code=3)
    assert url in said.err and "cannot be reached" in said.err and "Does it run" in said.err


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(200, b"<html>hello</html>"), "does not answer as a hub does"),
        (Answer(404, b"<html>no</html>"), "does not answer as a hub does"),
        (told({"detail": "Not Found"}, 404), "does not answer as a hub does"),
        (Answer(500, b"<html>oops</html>"), "out of order"),
    ],
)
def test_another_server_is_not_taken_for_a_hub(home, answer, words):
    with scripted(lambda request: answer) as server:
        said = home.vf("whoami", server.url, code=3)
    assert words in said.err and server.url in said.err


def test_a_refusal_is_the_hubs_own_sentence_with_what_to_do(hub, home):
    home.use(hub, None)
    said = home.vf("hub", "info", "ada/zz-nothing", code=3)
    assert "private one needs a token" in said.err
    home.use(hub, hub.world.token("ada", "read"))
    assert "private one needs a token" not in home.vf("hub", "info", "ada/zz-nothing", code=3).err


def test_no_log_line_and_no_traceback_has_the_token(hub, home, monkeypatch, caplog):
    token = hub.world.token("ada", "read")
    home.use(hub, token)
    monkeypatch.setenv("VF_LOG_LEVEL", "DEBUG")
    with caplog.at_level("DEBUG"):
        home.vf("whoami")
        said = home.vf("hub", "organisation", "create", "zz-lab", code=3)
    assert "Traceback" in said.err and "HubError" in said.err
    assert token not in said.out + said.err + caplog.text


def test_errors_of_the_hub_pickle():
    import pickle

    for error in (HubError("no", 409, "taken"), HubNotFound("none")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.status, again.code) == (
            type(error), str(error), error.status, error.code,
        )  # fmt: skip


def test_a_login_does_not_show_its_token():
    assert TOKEN not in repr(Login("https://hub.example", TOKEN)) + str(Login("https://hub.example", TOKEN))


# Downloads


def test_item_48_other_bytes_than_promised_are_never_unpacked(home):
    data = PACKAGE.sdist()
    file = offered(PACKAGE.sdist_name, data)
    changed = bytearray(data)
    changed[-1] ^= 1
    with (
        scripted(index_of(file, data=bytes(changed))) as server,
        HubClient(Login(server.url)) as client,
        pytest.raises(HubError, match="other bytes than the hub's index promises"),
    ):
        pull(REF, home.folder / "here", client=client, say=lambda line: None)
    assert not (home.folder / "here").exists()
    assert [path for path in home.cache.rglob("*") if path.is_file()] == []


def test_item_48_the_token_goes_to_the_origin_of_the_hub_only(home):
    data = PACKAGE.wheel()
    with scripted(lambda request: Answer(body=data)) as store:
        away = Answer(302, headers={"Location": f"{store.url}/signed?x=1"})
        with scripted(index_of(offered(), one=away)) as server, HubClient(Login(server.url, TOKEN)) as client:
            assert fetch(client, REF).path.read_bytes() == data
            assert all(request.headers["authorization"] == f"Bearer {TOKEN}" for request in server.seen)
        named = index_of(offered(url=f"{store.url}/elsewhere"))
        with scripted(named) as server, HubClient(Login(server.url, TOKEN)) as client:
            assert fetch(client, REF).path.read_bytes() == data
        assert len(store.seen) == 2
        assert all("authorization" not in request.headers for request in store.seen)
        assert TOKEN not in str(store.seen)


@pytest.mark.parametrize(
    "filename",
    ["../../../evil-1.0.tar.gz", "zz_sums-1.0.0-py3-none-any/../../../../x.whl", "/tmp/zz_sums-1.0.0.tar.gz",
     "zz_other-1.0.0-py3-none-any.whl", "zz_sums-1.0.0.exe", ".zz_sums-1.0.0.tar.gz"],
)  # fmt: skip
def test_item_48_a_hub_cannot_name_a_file_outside_the_cache_or_of_another_package(home, filename):
    with scripted(index_of(offered(filename), data=PACKAGE.wheel())) as server, HubClient(Login(server.url)) as client:
        for kind in ("wheel", "sdist"):
            with pytest.raises(EnvironmentNotFound, match="it has no"):
                fetch(client, REF, kind=kind)
        assert not any("files" in path for path in server.paths())


def test_item_48_a_hash_that_is_none_is_no_path_either(home):
    file = {**offered(), "hashes": {"sha256": "../../../../../../evil"}}
    with (
        scripted(index_of(file)) as server,
        HubClient(Login(server.url)) as client,
        pytest.raises(EnvironmentNotFound),
    ):
        fetch(client, REF)


def test_a_transfer_that_breaks_off_begins_anew(home):
    data, cuts = PACKAGE.wheel(), [100, 0]

    def answer(request):
        if request.path.endswith("/simple/zz-sums/"):
            return page(offered())
        return Answer(body=data, cut_after=cuts.pop() if cuts else None)

    with scripted(answer) as server, HubClient(Login(server.url)) as client:
        assert fetch(client, REF).path.read_bytes() == data
    assert cuts == []


def test_a_file_that_is_larger_than_promised_is_not_read_to_its_end(home):
    file = {**offered(), "size": 100}
    with (
        scripted(index_of(file, data=PACKAGE.wheel() + bytes(1 << 22))) as server,
        HubClient(Login(server.url)) as client,
        pytest.raises(HubError, match="other bytes") as caught,
    ):
        fetch(client, REF)
    read = int(str(caught.value).partition(", ")[2].partition(" bytes")[0].replace(",", ""))
    assert read < 1 << 20
    assert [path for path in home.cache.rglob("*") if path.is_file()] == []


def test_a_file_that_is_here_already_is_not_fetched_again_unless_it_was_changed(home):
    with scripted(index_of(offered(), data=PACKAGE.wheel())) as server, HubClient(Login(server.url)) as client:
        first = fetch(client, REF)
        assert fetch(client, EnvRef("zz_sums", "Ada")).path == first.path  # owners have no capitals
        assert server.paths().count("/files/one") == 1
        first.path.write_bytes(b"changed")
        assert fetch(client, REF).path.read_bytes() == PACKAGE.wheel()
        assert server.paths().count("/files/one") == 2


def test_item_48_an_environment_called_like_its_own_dependency_is_refused_whatever_the_hub_says(home, monkeypatch):
    """Else `numpy` of a hub would be what an environment gets that needs `numpy`."""
    package = Package("zz-sums", requires=("verifiers", "zz-sums>=2"))
    with scripted(index_of(offered(data=package.wheel()), data=package.wheel())) as server:
        monkeypatch.setenv("VF_HUB_URL", server.url)
        said = home.vf("install", "ada/zz-sums", code=3)
    assert "ada/zz-sums@1.0.0 is not installed" in said.err and "requires itself" in said.err


# Which release


def wheels(*versions, **more):
    return [offered(Package("zz-sums", version).wheel_name, url=f"/files/{version}", **more) for version in versions]


def chosen(ref, *files, status="active"):
    said = []

    def answer(request):
        return page(*files, status=status) if "/simple/" in request.path else Answer(body=PACKAGE.wheel())

    with scripted(answer) as server, HubClient(Login(server.url)) as client:
        return str(fetch(client, ref, say=said.append).ref), said


def test_the_newest_version_is_taken_and_pre_releases_are_passed_over(home):
    assert chosen(REF, *wheels("1.10.0", "1.9.0", "2.0.0rc1"))[0] == "ada/zz-sums@1.10.0"
    assert chosen(REF, *wheels("2.0.0rc1", "2.0.0a1"))[0] == "ada/zz-sums@2.0.0rc1"  # there is no other
    assert chosen(EnvRef("zz-sums", "ada", "2.0.0rc1"), *wheels("1.9.0", "2.0.0rc1"))[0] == "ada/zz-sums@2.0.0rc1"
    assert chosen(EnvRef("zz-sums", "ada", "1.9"), *wheels("1.9.0", "2.0.0rc1"))[0] == "ada/zz-sums@1.9.0"


def test_a_version_for_another_python_is_passed_over(home):
    new = wheels("2.0.0", **{"requires-python": ">=4.1"})
    assert chosen(REF, *wheels("1.0.0"), *new)[0] == "ada/zz-sums@1.0.0"
    with pytest.raises(EnvironmentNotFound, match=r"runs on Python .*asks for >=4\.1"):
        chosen(REF, *new)


def test_a_yanked_version_is_taken_only_by_its_number_and_with_a_warning(home):
    files = [*wheels("1.0.0"), *wheels("1.1.0", yanked="answers were wrong")]
    ref, (said,) = chosen(REF, *files)
    assert ref == "ada/zz-sums@1.0.0" and "yanked" not in said
    ref, said = chosen(EnvRef("zz-sums", "ada", "1.1.0"), *files)
    assert ref == "ada/zz-sums@1.1.0"
    assert said[0] == "warning: ada/zz-sums@1.1.0 was yanked by its author: answers were wrong"
    with pytest.raises(EnvironmentNotFound, match="all its releases are yanked"):
        chosen(REF, *wheels("1.1.0", yanked=True))


def test_a_version_that_is_not_there_is_told_with_those_that_are(home):
    with pytest.raises(EnvironmentNotFound, match=r"there are: 1\.1\.0, 1\.0\.0"):
        chosen(EnvRef("zz-sums", "ada", "3.0.0"), *wheels("1.0.0", "1.1.0"))


def test_a_deprecated_environment_warns_and_one_in_quarantine_is_refused(home):
    _, said = chosen(REF, *wheels("1.0.0"), status="deprecated")
    assert said[0] == "warning: 'ada/zz-sums' is deprecated by its author"
    with pytest.raises(HubError, match="quarantine"):
        chosen(REF, *wheels("1.0.0"), status="quarantined")


# Pulling


def test_pull_unpacks_the_source_into_a_new_folder(hub, home):
    hub.world.release("ada/zz-sums", package=PACKAGE)
    home.use(hub, hub.world.token("ada", "read"))
    said = home.vf("pull", "ada/zz-sums", "--json")
    assert said.json == {"id": "ada/zz-sums", "version": "1.0.0", "folder": "environments/zz_sums"}
    folder = home.folder / "environments" / "zz_sums"
    assert {path.name for path in folder.iterdir()} == {"PKG-INFO", "pyproject.toml", "README.md", "zz_sums.py"}
    assert [path.name for path in folder.parent.iterdir()] == ["zz_sums"]  # nothing is left beside it
    assert "is there already and not empty" in home.vf("pull", "ada/zz-sums", code=3).err
    (home.folder / "empty").mkdir()
    assert "Next: vf-install empty" in home.vf("pull", "ada/zz-sums@1.0.0", "-t", "empty").out


def test_pull_of_a_private_environment_without_a_token_says_what_to_do(hub, home):
    hub.world.release("ada/zz-hidden")
    home.use(hub, None)
    assert "vf login" in home.vf("pull", "ada/zz-hidden", code=3).err


def test_pull_keeps_the_rules_of_archives_whatever_the_hub_says(home):
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        link = tarfile.TarInfo("zz_sums-1.0.0/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    data = out.getvalue()
    with scripted(index_of(offered(PACKAGE.sdist_name, data), data=data)) as server:
        said = home.vf("pull", "ada/zz-sums", "--hub", server.url, code=3)
    assert "error:" in said.err and "unexpected" not in said.err
    assert not (home.folder / "environments" / "zz_sums").exists()
