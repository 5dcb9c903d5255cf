"""`vf login`: signs in to a hub and remembers it."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal

import typer


def command(
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="The hub. [default: VF_HUB_URL, or the one used last]")
    ] = None,
    token: Annotated[str | None, typer.Option(help="A token of that hub; '-' reads it from standard input.")] = None,
    scope: Annotated[
        Literal["read", "publish", "admin"], typer.Option(help="The most that a token from the page may do.")
    ] = "admin",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the page's address.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Signs in to a hub, by a token or by a page in the browser, and remembers it for the other commands.

    The login is kept in hub.toml in your configuration folder, readable by you only.
    """
    from verifiers.hub.account import sign_in
    from verifiers.hub.credentials import checked_url, credentials_file, current_login

    hub = checked_url(url) if url else current_login().url
    if token == "-":
        token = sys.stdin.readline()
    login = sign_in(
        hub, token, scope=scope, say=lambda line: typer.echo(line, err=True), open_page=None if no_browser else _open
    )
    if as_json:
        typer.echo(json.dumps({"hub": login.url, "name": login.user}))
        return
    typer.echo(f"signed in to {login.url} as {login.user} (kept in {credentials_file()})")


def _open(address: str) -> None:
    import webbrowser

    if sys.stderr.isatty():
        webbrowser.open(address)
