"""`vf validate`: checks an environment with scripted replies, without a model."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from verifiers.cli.install import Debug
from verifiers.errors import ConfigError

EnvArgs = Annotated[
    list[str] | None,
    typer.Option("--env-args", "-a", help="Arguments of load_environment: JSON, or key=value (repeat)."),
]
EnvFolder = Annotated[str, typer.Option(help="Where environments are installed from.")]


def command(
    environment: Annotated[str, typer.Argument(metavar="ENVIRONMENT", help="An environment's name.")],
    env_args: EnvArgs = None,
    num_examples: Annotated[
        int, typer.Option("--num-examples", "-n", min=1, help="Rows on which replies are played.")
    ] = 10,
    env_dir_path: EnvFolder = "./environments",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Checks that an environment loads, repeats, pays right answers in full and others nothing, without a model.

    \b
    Exit code: 0 no check failed, 1 one failed, 2 usage, 3 set-up.
    """
    from verifiers.eval.config import parse_env_args
    from verifiers.eval.validate import validate

    try:
        arguments = parse_env_args(env_args or [], "-a")
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    found = validate(
        environment,
        arguments,
        num_examples=num_examples,
        env_dir_path=env_dir_path,
        say=lambda line: typer.echo(line, err=True),
    )
    if as_json:
        typer.echo(json.dumps(found.as_json, ensure_ascii=False))
    else:
        width = max(len(check.name) for check in found.checks)
        for check in found.checks:
            typer.echo(f"{check.status:<14}  {check.name:<{width}}  {check.reason}".rstrip())
        failed = sum(check.status == "failed" for check in found.checks)
        typer.echo(f"{environment}: {f'{failed} of {len(found.checks)} checks failed' if failed else 'valid'}")
    if not found.is_ok:
        raise typer.Exit(1)
