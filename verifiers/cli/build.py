"""`vf build`: an environment's wheel and sdist."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from verifiers.cli.install import Debug, progress


def command(
    environment: Annotated[str, typer.Argument(metavar="ENVIRONMENT", help="A name in --path, or a folder.")],
    path: Annotated[str, typer.Option("-p", "--path", help="Folder in which names are looked up.")] = "./environments",
    output: Annotated[
        str | None, typer.Option("-o", "--output-dir", help="Folder for the files. [default: its own dist]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Builds an environment's wheel and sdist, and checks that its module and pyproject.toml are inside."""
    from verifiers.build import build

    with progress(f"building {environment}"):
        built = build(environment, path=path, output=output)
    if as_json:
        files = {"wheel": str(built.wheel), "sdist": str(built.sdist)}
        typer.echo(json.dumps({"name": built.name, "version": built.version, **files}))
        return
    typer.echo(f"built {built.name} {built.version}:\n  {built.wheel}\n  {built.sdist}")
