"""`vf eval` (also `vf-eval`): the command's flags. What they do is in `verifiers.eval`."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from verifiers.cli.model_options import (
    ApiBaseUrl,
    ApiKeyVar,
    EndpointsPath,
    MaxTokens,
    Model,
    OutputDir,
    Provider,
    SamplingArgs,
    Temperature,
)
from verifiers.cli.plain_values import plain_values


def evaluate(
    env_id_or_config: Annotated[
        str | None, typer.Argument(metavar="ENV|CONFIG.toml", help="Environment, or a TOML file of evaluations.")
    ] = None,
    env_args: Annotated[
        list[str] | None,
        typer.Option("--env-args", "-a", help="Arguments of load_environment: JSON, or key=value (repeat)."),
    ] = None,
    model: Model = None,
    api_base_url: ApiBaseUrl = None,
    api_key_var: ApiKeyVar = None,
    provider: Provider = None,
    endpoints_path: EndpointsPath = None,
    endpoint_id: Annotated[
        str | None, typer.Option(help="Name in the endpoints file, when -m says something else.")
    ] = None,
    api_client_type: Annotated[
        str | None, typer.Option(help="How to talk to the server: openai_chat_completions, openai_completions …")
    ] = None,
    header: Annotated[list[str] | None, typer.Option(help="'Name: value' sent with every request (repeat).")] = None,
    num_examples: Annotated[
        int | None,
        typer.Option("--num-examples", "-n", help="Examples; -1 for all (default: the environment's, else 5)."),
    ] = None,
    rollouts_per_example: Annotated[
        int | None,
        typer.Option("--rollouts-per-example", "-r", help="Tries of each (default: the environment's, else 3)."),
    ] = None,
    max_concurrent: Annotated[
        int | None, typer.Option("--max-concurrent", "-c", help="Rollouts at the same time (default 32; -1: no limit).")
    ] = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    sampling_args: SamplingArgs = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the rollouts (default 0).")] = None,
    timeout: Annotated[float | None, typer.Option(help="Longest time for one rollout, in seconds.")] = None,
    max_retries: Annotated[
        int | None, typer.Option(help="New starts of a rollout whose model or sandbox failed (default 0).")
    ] = None,
    max_failed: Annotated[
        float | None, typer.Option(help="Share of rollouts that may fail before the exit code is 1 (default 0).")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Start no more rollouts once so much is spent, by the endpoint's prices.")
    ] = None,
    max_total_tokens: Annotated[
        int | None, typer.Option(help="Start no more rollouts once so many tokens are used, prompts and replies.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Stop the run after so many seconds; what has finished is saved.")
    ] = None,
    ungraded_alarm: Annotated[
        float | None,
        typer.Option(help="Share of the last 200 rollouts that may be ungradable before an alarm is shown (0.05)."),
    ] = None,
    rescore: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Score a saved run again by today's rubric, into a run of its own."),
    ] = None,
    output_dir: OutputDir = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", "-R", help="Go on with the newest unfinished run of this kind, or suite of this file."
        ),
    ] = False,
    resume_path: Annotated[str | None, typer.Option(help="Go on with the run (or suite) in this folder.")] = None,
    state_columns: Annotated[
        str | None, typer.Option("--state-columns", "-C", help="Keys of the state to save too, with commas between.")
    ] = None,
    save_tokens: Annotated[
        bool, typer.Option("--save-tokens", help="Save token ids and log-probabilities too.")
    ] = False,
    independent_scoring: Annotated[
        bool, typer.Option("--independent-scoring", "-i", help="Score each rollout alone; refused for group rewards.")
    ] = False,
    no_interleave_scoring: Annotated[
        bool, typer.Option("--no-interleave-scoring", "-N", help="Accepted; has no effect.")
    ] = False,
    push: Annotated[
        bool, typer.Option("--push", help="Send the run to the environments hub when it is done (vf login first).")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Install owner/name from the hub without asking when it is missing.")
    ] = False,
    save_to_hf_hub: Annotated[
        bool, typer.Option("--save-to-hf-hub", "-H", help="Push the run to the Hugging Face hub too (needs HF_TOKEN).")
    ] = False,
    hf_hub_dataset_name: Annotated[
        str | None, typer.Option("--hf-hub-dataset-name", "-D", help="Name of that data set.")
    ] = None,
    env_dir_path: Annotated[
        str | None, typer.Option(help="Where environments are installed from (default ./environments).")
    ] = None,
    extra_env_kwargs: Annotated[
        str | None, typer.Option("--extra-env-kwargs", "-x", help="Settings of the environment object, JSON.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, the rest on stderr.")
    ] = False,
    abbreviated_summary: Annotated[
        bool, typer.Option("--abbreviated-summary", "-A", help="Only rewards and errors at the end.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="More log lines.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", "-d", help="All log lines, no live display, full tracebacks.")
    ] = False,
    tui: Annotated[bool, typer.Option("--tui", "-u", help="The live display, which a terminal gets anyway.")] = False,
    save_results: Annotated[
        bool, typer.Option("--save-results", "-s", help="Accepted; results are always saved.")
    ] = False,
    executor: Annotated[
        str | None,
        typer.Option(help="Where it runs: local (default), process (workers of their own), ray (a cluster)."),
    ] = None,
    num_workers: Annotated[
        str | None, typer.Option("--num-workers", "-w", help="Workers of --executor: a count, or auto (one a core).")
    ] = None,
    heartbeat_url: Annotated[str | None, typer.Option(help="Accepted; has no effect.")] = None,
    disable_env_server: Annotated[bool, typer.Option("--disable-env-server", help="Accepted; has no effect.")] = False,
) -> None:
    """Evaluate a model on an environment and save every rollout.

    \b
    vf-eval math-env                                     the small model on this machine
    vf-eval math-env -m gpt-4.1-mini -n 50 -r 4          OpenAI, key in OPENAI_API_KEY
    vf-eval math-env -b http://127.0.0.1:8000/v1 -a difficulty=3
    vf-eval ada/math-env@1.2.0 --yes --push              from the hub, and the results onto it
    vf-eval suite.toml --resume                          several, one table; what is finished is kept

    \b
    Exit code: 0 done, 1 more rollouts failed than --max-failed allows, 2 usage, 3 set-up, 130 interrupted.
    """
    given = {
        name: value for name, value in locals().items() if value is not None and value is not False and value != []
    }
    target = given.pop("env_id_or_config", None)
    if rescore is not None:
        raise typer.Exit(_rescore(target, given, sys.argv))
    if target is None:
        _say(_HOW_TO)
        raise typer.Exit(2)
    raise typer.Exit(_run(target, given, sys.argv))


def _command() -> Any:
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("eval", context_settings={"help_option_names": ["-h", "--help"]})(evaluate)
    return plain_values(typer.main.get_command(app))


command = _command()

_HOW_TO = """\
which environment? For example:
  vf-eval math-env                                  the small model on this machine
  vf-eval math-env -m gpt-4.1-mini -n 20 -r 4       OpenAI, key in OPENAI_API_KEY
vf list shows what is installed; vf-eval --help shows every option."""


def _run(target: str, given: dict[str, Any], argv: list[str]) -> int:
    from verifiers.errors import ConfigError
    from verifiers.eval.config import configs_of, parse_env_args, parse_headers, parse_object

    try:
        if "env_args" in given:
            given["env_args"] = parse_env_args(given["env_args"], "-a")
        for name, flag in (("sampling_args", "-S"), ("extra_env_kwargs", "-x")):
            if name in given:
                given[name] = parse_object(given[name], flag)
        if "header" in given:
            given["headers"] = parse_headers(given.pop("header"))
        if str(given.get("num_workers", "")).isdecimal():
            given["num_workers"] = int(given["num_workers"])
        if "timeout" in given:
            given["timeout_s"] = given.pop("timeout")
        if "state_columns" in given:
            given["state_columns"] = [key.strip() for key in given["state_columns"].split(",") if key.strip()]
        configs = configs_of(target, given)
    except ConfigError as error:  # what was typed is wrong: usage, not set-up
        _say(f"error: {error}")
        return 2

    if len(configs) == 1:
        _hand_over_if_isolated(configs[0].env_id, argv)
        from verifiers.eval.evaluate import run_evaluation

        return run_evaluation(configs[0], argv=argv)
    from verifiers.eval.suite_run import run_suite

    return run_suite(configs, source=Path(target).expanduser(), argv=argv)


RESCORE_TAKES = (
    "env_args", "env_dir_path", "yes", "max_concurrent", "max_failed", "output_dir", "json", "verbose", "debug"
)  # fmt: skip


def _rescore(target: str | None, given: dict[str, Any], argv: list[str]) -> int:
    from verifiers.errors import ConfigError
    from verifiers.eval.config import parse_env_args
    from verifiers.eval.rescore_run import rescore

    run = given.pop("rescore")
    others = [f"--{name.replace('_', '-')}" for name in given if name not in RESCORE_TAKES]
    if target is not None or others:
        _say(f"error: --rescore takes the environment and the settings of {run}; leave out {target or others[0]}")
        return 2
    try:
        if "env_args" in given:
            given["env_args"] = parse_env_args(given["env_args"], "-a")
    except ConfigError as error:
        _say(f"error: {error}")
        return 2
    return rescore(run, given, argv)


def _hand_over_if_isolated(env_id: str, argv: list[str]) -> None:
    """Becomes `vf eval` of the environment's own interpreter when it has one and is not installed in this one."""
    from verifiers.installed import is_satisfied
    from verifiers.other_python import isolated_for
    from verifiers.refs import EnvRef

    other = None if is_satisfied(EnvRef.parse(env_id)) else isolated_for(env_id)
    if other is not None:
        arguments = argv[2:] if Path(argv[0]).name in ("vf", "main.py") else argv[1:]
        os.execv(other.program, other.vf("eval", *arguments))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
