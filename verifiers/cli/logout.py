"""`vf logout`: forgets the login of a hub."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    url: Annotated[str | None, typer.Argument(metavar="URL", help="The hub. [default: the one used last]")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="Make the token worthless on the hub, too.")] = False,
) -> None:
    """Forgets the login of a hub on this machine. The token stays valid elsewhere, unless you revoke it."""
    from verifiers.hub.account import sign_out
    from verifiers.hub.credentials import current_login

    login = current_login(url)
    was_there = sign_out(login, revoke=revoke)
    typer.echo(f"signed out of {login.url}" if was_there else f"there was no login for {login.url}")
