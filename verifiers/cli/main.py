"""The command line: `vf COMMAND`, and the programs `vf-eval`, `vf-install` … that are the same commands.

A command's module is imported when that command runs, so that help stays fast. Exit codes: 0 done, 1 failed,
2 usage, 3 set-up, 130 interrupted.
"""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from verifiers.errors import Error, SetupError, one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "verifiers.commands"

# name → what `vf --help` says. The module `verifiers.cli.<name>` (`-` as `_`) has a function `command` or
# `evaluate`, or an `app`.
COMMANDS = {
    "eval": "Evaluate a model on an environment and save every rollout.",
    "validate": "Check that an environment scores what it should.",
    "play": "Answer an environment yourself, scored like a model.",
    "debug": "Run or replay one rollout, message by message.",
    "view": "Look at saved rollouts in the browser, and compare two runs.",
    "compare": "Compare two saved runs: the difference, its interval, what changed sides.",
    "profile": "Show where the time of a run's rollouts went.",
    "export": "Write runs as a table, a data set, conversations to train on, or a report.",
    "train": "Train a model on environments.",
    "audit": "Look at what a judge decided in a run, and say whether it was right.",
    "sandbox": "Run a program in a sandbox; see which sandboxes are to be had here.",
    "setup": "Start a workspace: folders, endpoints, AGENTS.md.",
    "init": "Start a new environment from a template.",
    "build": "Build an environment's wheel and sdist.",
    "install": "Install environments: by name, folder or git repository.",
    "uninstall": "Remove installed environments.",
    "login": "Sign in to a hub and remember it.",
    "logout": "Forget the login of a hub.",
    "whoami": "Show the hub in use and the account there.",
    "publish": "Build an environment and publish it on a hub.",
    "pull": "Fetch an environment's source from a hub.",
    "push-results": "Send a finished evaluation to a hub.",
    "hub": "Search a hub, and look after what you published there.",
    "list": "Show the environments installed here and in ./environments.",
}

# Typer carries its own copy of click since 0.26, so click's classes are reached through what Typer exports.
UsageError: Any = typer.BadParameter.__mro__[1]


class LazyCommands(TyperGroup):
    """Imports a command when it is called; commands of other packages come from the entry-point group."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *_foreign()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            return load_command(cmd_name)
        entry = _foreign().get(cmd_name)
        return None if entry is None else _as_command(entry.load(), cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        foreign = {
            name: f"(from the package {entry.dist.name if entry.dist else '?'})" for name, entry in _foreign().items()
        }
        with formatter.section("Commands"):
            formatter.write_dl(list((COMMANDS | foreign).items()))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.list_commands(ctx) and not args[0].startswith("-"):
            similar = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"; did you mean {similar[0]}?" if similar else f". There are: {', '.join(self.list_commands(ctx))}"
            ctx.fail(f"no command '{args[0]}'{hint}")
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=LazyCommands, rich_markup_mode=None, invoke_without_command=True)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"verifiers {library_version()}")
        raise typer.Exit


@app.callback(context_settings={"help_option_names": ["-h", "--help"]})
def _vf(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Environments for reinforcement learning and evaluation of language models."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def library_version() -> str:
    from importlib import metadata  # 15 ms that `vf-eval --help` need not pay

    try:
        return metadata.version("verifiers")
    except metadata.PackageNotFoundError:
        return "(not installed: running from its source folder)"


def load_command(name: str) -> Any:
    """The command, its module imported now."""
    module = import_module(f"verifiers.cli.{name.replace('-', '_')}")
    found = next((getattr(module, n) for n in ("command", "evaluate", "app") if hasattr(module, n)), None)
    return _as_command(found, name)


def _as_command(found: Any, name: str) -> Any:
    """A Typer app, a function or a ready command as a command."""
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    if hasattr(found, "main") and hasattr(found, "params"):
        return found
    own = typer.Typer(rich_markup_mode=None, add_completion=False)
    own.command(name, context_settings={"help_option_names": ["-h", "--help"]})(found)
    return typer.main.get_command(own)


def _foreign() -> dict[str, EntryPoint]:
    from importlib import metadata

    entries = metadata.entry_points(group=ENTRY_POINTS)
    return {entry.name: entry for entry in entries if entry.name not in COMMANDS}


def main() -> NoReturn:
    run(typer.main.get_command(app), "vf")


def eval_main() -> NoReturn:
    run(load_command("eval"), "vf-eval")


def init_main() -> NoReturn:
    run(load_command("init"), "vf-init")


def install_main() -> NoReturn:
    run(load_command("install"), "vf-install")


def validate_main() -> NoReturn:
    run(load_command("validate"), "vf-validate")


def build_main() -> NoReturn:
    run(load_command("build"), "vf-build")


def setup_main() -> NoReturn:
    run(load_command("setup"), "vf-setup")


def view_main() -> NoReturn:
    run(load_command("view"), "vf-view")


def publish_main() -> NoReturn:
    run(load_command("publish"), "vf-publish")


def train_main() -> NoReturn:
    run(load_command("train"), "vf-train")


def sandbox_main() -> NoReturn:
    run(load_command("sandbox"), "vf-sandbox")


def run(command: Any, program: str) -> NoReturn:
    """Runs a command with the arguments of this process and exits; every failure is told on one line of stderr."""
    try:
        code = command.main(args=sys.argv[1:], prog_name=program, standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        code = _report(error, program)
    sys.exit(code if isinstance(code, int) else 0)


def _report(error: BaseException, program: str) -> int:
    """Says what went wrong; the exit code."""
    if isinstance(error, BrokenPipeError):  # `vf list | head`: the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if _wants_traceback():
        import traceback

        traceback.print_exception(error)
    if isinstance(error, (typer.Abort, KeyboardInterrupt)):
        typer.echo("interrupted", err=True)
        return 130
    if isinstance(error, UsageError):
        text = _usage(error)
        end = "" if text.endswith("?") else "."
        typer.echo(f"error: {text}{end} See {_path(error, program)} --help", err=True)
        return 2
    if isinstance(error, SetupError):
        typer.echo(f"error: {error}", err=True)
        return 3
    if isinstance(error, Error):
        typer.echo(f"error: {one_line(error)}", err=True)
        return 1
    typer.echo(f"error: {one_line(error)} (unexpected; --debug shows where)", err=True)
    return 1


def _wants_traceback() -> bool:
    return "--debug" in sys.argv[1:] or os.environ.get("VF_LOG_LEVEL", "").upper() == "DEBUG"


def _path(error: Any, program: str) -> str:
    return error.ctx.command_path if getattr(error, "ctx", None) is not None else program


def _usage(error: Any) -> str:
    """The complaint on one line; for an unknown flag the nearest known one."""
    flag = getattr(error, "option_name", None)
    if flag is None or not type(error).__name__.startswith("NoSuchOption"):
        return error.format_message().replace("Value error, ", "").rstrip(".")  # pydantic's words, by way of Typer
    known = [name for parameter in error.ctx.command.params for name in (*parameter.opts, *parameter.secondary_opts)]
    similar = difflib.get_close_matches(flag, [name for name in known if name.startswith("--")], n=1)
    return f"no option {flag}" + (f"; did you mean {similar[0]}?" if similar else "")


if __name__ == "__main__":
    main()
