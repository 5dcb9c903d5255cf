"""`vf push-results`: a saved evaluation onto a hub."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from verifiers.cli.transfer import transfer_bar


def command(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A run's folder. [default: the newest in ./outputs]")
    ] = None,
    env: Annotated[
        str | None, typer.Option("--env", metavar="OWNER/NAME", help="The environment on the hub, if the run lacks it.")
    ] = None,
    visibility: Annotated[
        Literal["private", "project", "public"],
        typer.Option(help="Who sees it: you, whoever has a role on the environment, or whoever sees that."),
    ] = "private",
    name: Annotated[str, typer.Option(help="A title for the evaluation.")] = "",
    dirty: Annotated[
        bool, typer.Option("--dirty", help="Push it as a run of an edited copy, bound to no release.")
    ] = False,
    hub: Annotated[str | None, typer.Option(help="The hub's address. [default: the one used last]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Sends a saved evaluation to a hub, which computes its figures anew. Pushing it again changes nothing."""
    from verifiers.errors import ResultsError
    from verifiers.hub.client import HubClient
    from verifiers.hub.credentials import current_login
    from verifiers.hub.push import push
    from verifiers.viewer.runs import DEFAULT_FOLDER, Runs

    run = folder
    if run is None:
        found = Runs(DEFAULT_FOLDER).scan()
        if not found:
            raise ResultsError(f"no run in {DEFAULT_FOLDER} yet: give the folder of one")
        run = found[0].path.parent
    with HubClient(current_login(hub)) as client, transfer_bar("pushing samples") as progress:
        done = push(client, run, environment=env, visibility=visibility, name=name, dirty=dirty, progress=progress)
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    bound = f"version {done.version}" if done.version else "an edited or unpublished copy, bound to no release"
    typer.echo(f"pushed {done.n_samples} samples of {done.environment} ({bound}): {done.url}")
    if done.n_withheld:
        typer.echo(f"questions and answers stayed here, as the environment asks ({done.n_withheld} samples)")
