"""`vf uninstall`: removes installed environments."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from verifiers.cli.install import Debug


def command(
    environments: Annotated[
        list[str], typer.Argument(metavar="ENVIRONMENT...", help="Names of installed environments.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Removes environments from this interpreter. Their source folders and dependencies stay."""
    from verifiers.install import uninstall

    removed = []
    for name in environments:
        env = uninstall(name)
        removed.append({"name": env.name, "version": env.version})
        if not as_json:
            typer.echo(f"removed {env.name} {env.version}" + (f"; its source stays in {env.root}" if env.root else ""))
    if as_json:
        typer.echo(json.dumps(removed))
