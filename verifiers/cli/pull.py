"""`vf pull`: the source of an environment on a hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from verifiers.cli.install import progress


def command(
    environment: Annotated[str, typer.Argument(metavar="OWNER/NAME[@VERSION]", help="An environment on the hub.")],
    target: Annotated[
        Path | None, typer.Option("-t", "--target", help="The folder to make. [default: ./environments/<module>]")
    ] = None,
    hub: Annotated[str | None, typer.Option(help="The hub's address. [default: the one used last]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fetches the source of a release and unpacks it. `vf-install` of that folder then installs it editable."""
    from verifiers.hub.client import HubClient
    from verifiers.hub.credentials import current_login
    from verifiers.hub.pull import pull
    from verifiers.refs import EnvRef

    ref = EnvRef.parse(environment)
    folder = target or Path("environments") / ref.module
    with HubClient(current_login(hub)) as client, progress(f"fetching {ref}") as say:
        fetched = pull(ref, folder, client=client, say=say)
    if as_json:
        typer.echo(json.dumps({"id": fetched.ref.id, "version": fetched.ref.version, "folder": str(folder)}))
        return
    typer.echo(f"{fetched.ref} is in {folder}. Next: vf-install {folder}")
