"""`vf hub`, people: tokens, organisations and their members, profiles, the audit log."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

import typer

from verifiers.cli.hub_session import AsJson, HubUrl, Yes, confirm, session, tell, tell_rows

Organisation = Annotated[str, typer.Argument(help="An organisation of the hub.")]
User = Annotated[str, typer.Argument(help="A user of the hub.")]


def add_to(app: typer.Typer) -> None:
    app.command("audit")(audit)
    app.command("profile")(profile)
    for name, what, commands in (
        ("token", "Your tokens.", (token_list, token_create, token_revoke)),
        ("organisation", "Organisations and their members.", (org_list, org_create, org_members, org_set, org_remove)),
        ("user", "The hub's users, for its administrators.", (user_list, user_create, user_disable, user_enable)),
    ):
        group = typer.Typer(help=what, no_args_is_help=True)
        for command in commands:
            group.command(command.__name__.rpartition("_")[2])(command)
        app.add_typer(group, name=name)


def token_list(hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Lists your tokens; never their secrets."""
    with session(hub) as client:
        found = client.get("tokens")
    tell_rows(
        found,
        as_json,
        _token_row,
        "none",
    )


def _token_row(token: dict[str, Any]) -> list[str]:
    reach = token["project"] or token["owner"] or "everything"
    until = f"until {token['expires_at'][:10]}" if token["expires_at"] else ""
    return [str(token["id"]), f"{token['prefix']}…", token["name"], token["scope"], reach, token["state"], until]


def token_create(
    name: Annotated[str, typer.Argument(help="For you, to recognise it: laptop, CI of math-env.")],
    scope: Annotated[Literal["read", "publish", "admin"], typer.Option(help="The most it may do.")] = "publish",
    owner: Annotated[str | None, typer.Option(help="Only for what this owner has.")] = None,
    project: Annotated[str | None, typer.Option(metavar="OWNER/NAME", help="Only for this environment.")] = None,
    days: Annotated[float, typer.Option(help="When it ends; 0: never.")] = 90,
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Makes a token and prints it, this once."""
    body = {"name": name, "scope": scope, "owner": owner, "project": project, "days": days or None}
    with session(hub) as client:
        made = client.call("POST", "tokens", json=body)
    tell(made, as_json, made["token"])


def token_revoke(token: Annotated[int, typer.Argument(help="Its number, from the list.")], hub: HubUrl = None) -> None:
    """Makes a token worthless, at once."""
    with session(hub) as client:
        client.call("DELETE", "tokens", str(token))
    typer.echo(f"token {token} is revoked")


def org_list(hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Lists the organisations you belong to."""
    with session(hub) as client:
        found = client.get("organisations")
    tell_rows(found, as_json, lambda one: [one["name"], one["role"] or "", one["display_name"]], "none")


def org_create(name: Organisation, display_name: str = "", hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Makes an organisation, which you own."""
    with session(hub) as client:
        made = client.call("POST", "organisations", json={"name": name, "display_name": display_name})
    tell(made, as_json, f"made {made['name']}")


def org_members(name: Organisation, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Lists an organisation's members."""
    with session(hub) as client:
        found = client.get("organisations", name, "members")
    tell_rows(found, as_json, lambda one: [one["name"], one["role"]], "none")


def org_set(
    name: Organisation,
    user: User,
    role: Annotated[Literal["reader", "maintainer", "owner"], typer.Argument(help="What they may do.")],
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Gives a user a role in an organisation."""
    with session(hub) as client:
        done = client.call("PUT", "organisations", name, "members", user, json={"role": role})
    tell(done, as_json, f"{user} is {role} of {name}")


def org_remove(name: Organisation, user: User, yes: Yes = False, hub: HubUrl = None) -> None:
    """Takes a member out of an organisation."""
    confirm(f"Remove {user} from {name}?", yes)
    with session(hub) as client:
        client.call("DELETE", "organisations", name, "members", user)
    typer.echo(f"{user} is no member of {name}")


def user_list(hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Lists the hub's users."""
    with session(hub) as client:
        found = client.get("users")
    tell_rows(found, as_json, lambda one: [one["name"], "" if one["is_active"] else "disabled"], "none")


def user_create(name: User, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Makes a user; asks for a password, or reads it from standard input that is no terminal."""
    if sys.stdin.isatty():
        password = typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    with session(hub) as client:
        made = client.call("POST", "users", json={"name": name, "password": password})
    tell(made, as_json, f"made {made['name']}")


def user_disable(name: User, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Shuts a user out; what they published stays."""
    with session(hub) as client:
        done = client.call("PATCH", "users", name, json={"is_active": False}, again=True)
    tell(done, as_json, f"{name} is shut out")


def user_enable(name: User, hub: HubUrl = None, as_json: AsJson = False) -> None:
    """Lets a user in again."""
    with session(hub) as client:
        done = client.call("PATCH", "users", name, json={"is_active": True}, again=True)
    tell(done, as_json, f"{name} may sign in")


def profile(
    owner: Annotated[str, typer.Argument(help="A user or an organisation.")],
    display_name: Annotated[str | None, typer.Option(help="Set the name that pages show.")] = None,
    about: Annotated[str | None, typer.Option(help="Set the text of its page.")] = None,
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Shows an owner, or changes what its page says."""
    change = {key: value for key, value in (("display_name", display_name), ("about", about)) if value is not None}
    with session(hub) as client:
        if change:
            client.call("PATCH", "accounts", owner, json=change, again=True)
        found = client.get("accounts", owner)
    tell(found, as_json, f"{found['name']} ({found['kind']})  {found['display_name']}\n{found['about']}".rstrip())


def audit(
    owner: Annotated[str | None, typer.Option(help="What concerns this owner. [default: the whole hub]")] = None,
    project: Annotated[str | None, typer.Option(help="A name of the owner's.")] = None,
    action: Annotated[str | None, typer.Option(help="Such as token.create, or token for all of its kind.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1)] = 50,
    hub: HubUrl = None,
    as_json: AsJson = False,
) -> None:
    """Shows who did what, the newest first."""
    with session(hub) as client:
        found = client.get("audit", owner=owner, project=project, action=action, limit=limit)
    events = found["events"] if isinstance(found, dict) else found
    tell_rows(
        events, as_json, lambda one: [one["at"][:19], one["actor"], one["action"], one["target"]], "nothing happened"
    )
