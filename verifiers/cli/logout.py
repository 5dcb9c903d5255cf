"""`vf logout`: forgets the login of a hub."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    url: Annotated[str | None, typer.Argument(metavar="URL", help="The hub. [default: the one used last]")] = None,
) -> None:
    """Forgets the login of a hub on this machine. The token itself stays valid until it is revoked on the hub."""
    from verifiers.hub.account import sign_out
    from verifiers.hub.credentials import checked_url, current_login

    hub = checked_url(url) if url else current_login().url
    typer.echo(f"signed out of {hub}" if sign_out(hub) else f"there was no login for {hub}")
