"""`vf play`: a person answers an environment in the terminal."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from verifiers.cli.install import Debug
from verifiers.cli.model_options import OutputDir
from verifiers.cli.validate import EnvArgs, EnvFolder
from verifiers.errors import ConfigError


def command(
    environment: Annotated[str, typer.Argument(metavar="ENVIRONMENT", help="An environment's name.")],
    env_args: EnvArgs = None,
    num_examples: Annotated[int, typer.Option("--num-examples", "-n", min=1, help="Examples to play.")] = 1,
    example: Annotated[int | None, typer.Option("--example", min=0, help="Play this one alone.")] = None,
    output_dir: OutputDir = None,
    env_dir_path: EnvFolder = "./environments",
    debug: Debug = False,
) -> None:
    """Lets you answer, scores you like a model, and saves it as an evaluation of the model "human".

    \b
    An empty line or . sends what you wrote. Tools are called by name(argument=1) or as JSON. Ctrl-D leaves.
    Exit code: 0 done, 1 something was not scored, 2 usage, 3 set-up, 130 left before the end.
    """
    from verifiers.eval.config import configs_of, parse_env_args
    from verifiers.eval.single import play

    given = {"num_examples": num_examples, "output_dir": output_dir, "env_dir_path": env_dir_path, "debug": debug}
    try:
        given["env_args"] = parse_env_args(env_args or [], "-a")
        (config,) = configs_of(environment, given)
    except (ConfigError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit(play(config, sys.argv, example=example))
