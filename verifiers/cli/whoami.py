"""`vf whoami`: who a hub takes us for."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def command(
    url: Annotated[str | None, typer.Argument(metavar="URL", help="The hub. [default: the one used last]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Shows the hub in use, the account, and what the token may do."""
    from verifiers.hub.account import who_am_i
    from verifiers.hub.credentials import current_login

    found = who_am_i(current_login(url))
    if as_json:
        typer.echo(json.dumps(found))
        return
    limits = f", token for '{found['scope']}'" if found.get("scope") else ""
    typer.echo(f"{found['name']} on {found['hub']}{limits}")
