"""`vf-hub user` and `vf-hub token`, on the data folder."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hub_server.cli_accounts import token_app, user_app
from hub_server.errors import NotSignedIn
from hub_server.hub import Hub
from hub_server.services import accounts, credentials
from hub_server.settings import Settings

PASSWORD = "a horse that reads"


@pytest.fixture
def data(hub):
    """The folder of a hub that runs beside the command."""
    return hub.settings.data


@pytest.fixture
def settings(tmp_path):
    return Settings(data=tmp_path / "hub", allowed_hosts=("hub.test",))  # SQLite: the commands open the folder


def run(app, *words, data, stdin=None, status=0):
    result = CliRunner().invoke(app, [*words, "--data", str(data)], input=stdin)
    assert result.exit_code == status, result.output
    return result.output


def test_a_user_with_a_password_from_standard_input_signs_in(data, hub):
    run(user_app, "add", "ada", "--admin", "--password-stdin", data=data, stdin=f"{PASSWORD}\n")
    assert credentials.principal_of(hub, None, accounts.sign_in(hub, "ada", PASSWORD)).is_admin
    run(user_app, "password", "ada", "--password-stdin", data=data, stdin="another password\n")
    with pytest.raises(NotSignedIn):
        accounts.sign_in(hub, "ada", PASSWORD)
    assert accounts.sign_in(hub, "ada", "another password")
    run(user_app, "password", "ada", "--remove", data=data)
    with pytest.raises(NotSignedIn):
        accounts.sign_in(hub, "ada", "another password")


def test_users_are_listed(data):
    run(user_app, "add", "root", "--admin", data=data)
    run(user_app, "add", "ada", data=data)
    run(user_app, "disable", "ada", data=data)
    table = run(user_app, "list", data=data)
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [["ada", "disabled"], ["root", "admin"]]
    listed = json.loads(run(user_app, "list", "--json", data=data))
    assert [(user["name"], user["is_active"]) for user in listed] == [("ada", False), ("root", True)]
    assert json.loads(run(user_app, "disable", "ada", "--undo", "--json", data=data))["is_active"]


def test_a_token_works_in_the_running_hub_until_it_is_revoked(data, hub):
    run(user_app, "add", "ada", data=data)
    token = run(token_app, "create", "ada", "--scope", "read", "--name", "CI", data=data).strip()
    assert credentials.principal_of(hub, f"Bearer {token}", None).scope == "read"
    (listed,) = json.loads(run(token_app, "list", "ada", "--json", data=data))
    assert listed["name"] == "CI" and listed["state"] == "active" and token not in json.dumps(listed)
    run(token_app, "revoke", str(listed["id"]), data=data)
    with pytest.raises(NotSignedIn):
        credentials.principal_of(hub, f"Bearer {token}", None)
    assert "revoked" in run(token_app, "list", data=data)


def test_days_0_is_for_ever(data):
    run(user_app, "add", "ada", data=data)
    made = json.loads(run(token_app, "create", "ada", "--days", "0", "--json", data=data))
    assert made["view"]["expires_at"] is None


@pytest.mark.parametrize(
    ("app", "words"),
    [
        (user_app, ["add", "no such name"]),
        (user_app, ["add", "simple"]),
        (user_app, ["password", "nobody", "--remove"]),
        (user_app, ["disable", "nobody"]),
        (token_app, ["create", "nobody"]),
        (token_app, ["revoke", "77"]),
    ],
)
def test_what_cannot_be_done_is_said_on_one_line_with_status_3(data, app, words):
    output = run(app, *words, data=data, status=3)
    assert output.startswith("error: ") and output.count("\n") == 1


def test_the_hub_is_closed_after_each_command(data):
    run(user_app, "add", "ada", data=data)
    Hub.open(Settings(data=data)).close()


def test_every_flag_and_command_is_in_the_page_of_accounts():
    page = (Path(__file__).parents[2] / "docs" / "hub-accounts.md").read_text("utf-8")
    for name, app in (("user", user_app), ("token", token_app)):
        for command, found in typer.main.get_command(app).commands.items():
            assert f"`vf-hub {name} {command}" in page
            flags = {flag for parameter in found.params for flag in parameter.opts if flag.startswith("--")}
            assert {flag for flag in flags if f"`{flag}`" not in page} == set(), command


@pytest.mark.parametrize("module", ["accounts", "organisations", "tokens", "projects"])
def test_every_address_is_in_the_page_of_accounts(module):
    page = (Path(__file__).parents[2] / "docs" / "hub-accounts.md").read_text("utf-8")
    for route in import_module(f"hub_server.api.{module}").router.routes:
        last = [part for part in route.path.split("/") if not part.startswith("{")][-1]
        assert f"/{last}" in page, route.path
