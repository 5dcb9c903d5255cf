"""`vf-hub user` and `vf-hub token`: accounts and tokens, straight on the hub's data, for whoever runs the hub.

They work whether the server runs or not; a running one sees the change with its next request.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

user_app = typer.Typer(help="The hub's users.", rich_markup_mode=None, no_args_is_help=True)
token_app = typer.Typer(help="The users' tokens.", rich_markup_mode=None, no_args_is_help=True)

Data = Annotated[Path | None, typer.Option("--data", help="The hub's folder (VF_HUB_DATA; default: hub-data).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="The user's name.")]
FromStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, without asking.")
]


@user_app.command("add")
def add_user(
    name: Name,
    data: Data = None,
    admin: Annotated[bool, typer.Option("--admin", help="Make it an administrator of the hub.")] = False,
    password: Annotated[bool, typer.Option("--password", help="Ask for a password, for signing in on pages.")] = False,
    password_stdin: FromStdin = False,
    as_json: AsJson = False,
) -> None:
    """Make a user. Without a password it can only use tokens: vf-hub token create NAME."""
    secret = _password(password_stdin) if password or password_stdin else None
    with _opened(data) as hub:
        from hub_server.services.accounts import create_user

        user = create_user(hub, name, secret, is_admin=admin)
    _say(user, as_json, f"made the user {user.name}{', an administrator' if admin else ''}")


@user_app.command("list")
def list_users(data: Data = None, as_json: AsJson = False) -> None:
    """Show all users."""
    with _opened(data) as hub:
        from hub_server.services.accounts import list_users as users_of

        users = users_of(hub)
    rows = [
        [u.name, "admin" if u.is_admin else "", "" if u.is_active else "disabled", f"{u.created_at:%Y-%m-%d}"]
        for u in users
    ]
    _table(users, as_json, ["name", "", "", "since"], rows)


@user_app.command("password")
def set_password(
    name: Name,
    data: Data = None,
    password_stdin: FromStdin = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the password away: tokens only.")] = False,
) -> None:
    """Set a user's password and end its sessions."""
    secret = None if remove else _password(password_stdin)
    with _opened(data) as hub:
        from hub_server.services.accounts import set_password as set_password_of

        set_password_of(hub, name, secret)
    typer.echo(f"{name} has {'no password' if remove else 'a new password'}; all its sessions have ended")


@user_app.command("disable")
def disable(
    name: Name,
    data: Data = None,
    undo: Annotated[bool, typer.Option("--undo", help="Enable it again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop a user's sessions and tokens at once. What it published stays."""
    with _opened(data) as hub:
        from hub_server.services.accounts import set_active

        user = set_active(hub, name, undo)
    _say(user, as_json, f"{user.name} is {'enabled' if user.is_active else 'disabled'}")


@token_app.command("create")
def create_token(
    user: Annotated[str, typer.Argument(help="Whose token.")],
    data: Data = None,
    name: Annotated[str, typer.Option("--name", help="To recognise it later.")] = "made by the operator",
    scope: Annotated[str, typer.Option("--scope", help="read, publish or admin.")] = "publish",
    owner: Annotated[str | None, typer.Option("--owner", help="Only for what this owner has.")] = None,
    project: Annotated[str | None, typer.Option("--project", help="Only for one environment: OWNER/NAME.")] = None,
    days: Annotated[float, typer.Option("--days", help="How long it lasts; 0: until it is revoked.", min=0)] = 90,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it, this once."""
    with _opened(data) as hub:
        from hub_server.services.access_tokens import TokenWish, create_token_for

        made = create_token_for(hub, user, TokenWish(name, scope, owner, project, days or None))
    _say(made, as_json, made.token)


@token_app.command("list")
def list_tokens(
    user: Annotated[str | None, typer.Argument(help="Whose tokens (default: everybody's).")] = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show tokens: their beginnings, never more."""
    with _opened(data) as hub:
        from hub_server.services.access_tokens import list_tokens_of

        tokens = list_tokens_of(hub, user)
    rows = [
        [
            str(t.id), t.user, f"{t.prefix}…", t.scope, t.project or t.owner or "", t.state,
            f"{t.last_used_at:%Y-%m-%d}" if t.last_used_at else "never", t.name,
        ]
        for t in tokens
    ]  # fmt: skip
    _table(tokens, as_json, ["id", "user", "token", "scope", "only for", "state", "used", "name"], rows)


@token_app.command("revoke")
def revoke_token(
    token_id: Annotated[int, typer.Argument(help="The id that `vf-hub token list` shows.", min=1)], data: Data = None
) -> None:
    """End a token. Every running worker refuses it from now on."""
    with _opened(data) as hub:
        from hub_server.principal import SYSTEM
        from hub_server.services.access_tokens import revoke_token as revoke

        revoke(hub, SYSTEM, token_id)
    typer.echo(f"revoked token {token_id}")


def _opened(data: Path | None) -> Any:
    from hub_server.cli import opened  # which mounts these commands, so that it cannot be imported above

    return opened(data)


def _password(from_stdin: bool) -> str:
    """Never an argument: those are seen in the list of processes and kept in the shell's history."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return typer.prompt("password", hide_input=True, confirmation_prompt=True)


def _say(result: Any, as_json: bool, line: str) -> None:
    typer.echo(json.dumps(dataclasses.asdict(result), default=str) if as_json else line)


def _table(values: list[Any], as_json: bool, head: list[str], rows: list[list[str]]) -> None:
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(value) for value in values], default=str))
        return
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    for row in [head, *rows]:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
