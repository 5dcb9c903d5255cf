"""`vf debug`: one rollout, message by message; or a saved one again."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from verifiers.cli.install import Debug
from verifiers.cli.model_options import (
    ApiBaseUrl,
    ApiKeyVar,
    EndpointsPath,
    MaxTokens,
    Model,
    Provider,
    SamplingArgs,
    Temperature,
)
from verifiers.cli.validate import EnvArgs, EnvFolder
from verifiers.errors import ConfigError


def command(
    environment: Annotated[str | None, typer.Argument(metavar="[ENVIRONMENT]", help="An environment's name.")] = None,
    example: Annotated[int | None, typer.Option("--example", min=0, help="The example's id. [default: 0]")] = None,
    attempt: Annotated[int | None, typer.Option("--try", min=0, help="Which try of it. [default: 0]")] = None,
    replay: Annotated[
        str | None, typer.Option("--replay", metavar="RUN_FOLDER", help="Show a saved rollout; asks no model.")
    ] = None,
    env_args: EnvArgs = None,
    model: Model = None,
    api_base_url: ApiBaseUrl = None,
    api_key_var: ApiKeyVar = None,
    provider: Provider = None,
    endpoints_path: EndpointsPath = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    sampling_args: SamplingArgs = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run that the rollout would be part of.")] = None,
    env_dir_path: EnvFolder = "./environments",
    debug: Debug = False,
) -> None:
    """Runs one rollout and prints every message as it comes, then each score with its reason. Saves nothing.

    \b
    vf debug math-env --example 12 -m gpt-4.1-mini
    vf debug --replay outputs/evals/math-env--m/0a1b2c3d --example 12 --try 1

    \b
    Exit code: 0 scored or shown, 1 not scored, 2 usage, 3 set-up, 130 interrupted.
    """
    from verifiers.eval import single
    from verifiers.eval.config import configs_of, parse_env_args, parse_object

    if replay is not None:
        raise typer.Exit(single.replay(replay, example=example, attempt=attempt, out=sys.stdout))
    if environment is None:
        raise typer.BadParameter("which environment? Or show a saved rollout by --replay RUN_FOLDER")
    given: dict[str, Any] = {
        "model": model, "api_base_url": api_base_url, "api_key_var": api_key_var, "provider": provider,
        "endpoints_path": endpoints_path, "max_tokens": max_tokens, "temperature": temperature, "seed": seed,
        "env_dir_path": env_dir_path, "debug": debug, "num_examples": 1, "rollouts_per_example": 1,
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    try:
        given["env_args"] = parse_env_args(env_args or [], "-a")
        if sampling_args is not None:
            given["sampling_args"] = parse_object(sampling_args, "-S")
        (config,) = configs_of(environment, given)
    except (ConfigError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit(single.debug(config, example=example or 0, attempt=attempt or 0))
