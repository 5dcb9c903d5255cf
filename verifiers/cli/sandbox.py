"""`vf sandbox`: run one program in a sandbox, and see what kinds of sandbox this machine offers."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from verifiers.cli.install import Debug
from verifiers.cli.plain_values import plain_values
from verifiers.cli.sandbox_serve import serve
from verifiers.errors import ConfigError, SetupError

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run programs that nobody vouches for, in a sandbox.",
)
app.command("serve")(serve)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("run")
def run_program(
    program: Annotated[str, typer.Argument(metavar="PROGRAM.py", help="A Python program; - reads it from stdin.")],
    stdin: Annotated[str | None, typer.Option(help="File for its stdin; by default it has none.")] = None,
    limits: Annotated[
        str, typer.Option(help='JSON, such as {"wall_s": 5, "memory_mb": 256}; docs/sandboxes.md names all.')
    ] = "{}",
    backend: Annotated[str, typer.Option(help="Where to run it.")] = "local",
    image: Annotated[str | None, typer.Option(help="Of the container or pod; local has none.")] = None,
    min_level: Annotated[int, typer.Option(help="local: refuse to run below this level, 0 to 3.")] = 1,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="local: run it even where nothing confines it.")] = False,
    packages: Annotated[bool, typer.Option("--packages", help="local: let it import what is installed here.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Runs one program and tells how it ended: its class, exit, output, times, and which limit fired.

    \b
    Exit code: 0 it was run, however it ended; 1 the sandbox failed; 2 usage; 3 no such sandbox here.
    """
    from verifiers.sandbox.backends import image_options, open_backend
    from verifiers.sandbox.limits import SandboxLimits

    if min_level not in range(4):
        raise typer.BadParameter(f"--min-level is {min_level}; the levels are 0 to 3")
    try:
        read_limits = SandboxLimits.read(json.loads(limits))
    except (ConfigError, ValueError) as error:
        raise typer.BadParameter(f"--limits: {error}") from None
    options = image_options(backend, image)
    if backend == "local":
        options = {"warm": False, "min_level": 0 if unsafe else min_level, "unsafe": unsafe, "packages": packages}
    made = open_backend(backend, **options)
    text, given = _read(program), b"" if stdin is None else _read(stdin)

    async def run() -> Any:
        async with made:
            return await made.run_once(text.decode("utf-8", "surrogateescape"), stdin=given, limits=read_limits)

    result = asyncio.run(run())
    if as_json:
        typer.echo(json.dumps({**result.as_json, "backend": backend}, ensure_ascii=False))
        return
    sys.stdout.write(result.text)
    sys.stdout.flush()
    sys.stderr.write(result.error_text)
    how = f"exit {result.exit_code}" if result.exit_code is not None else result.as_json["signal"]
    limit = f", limit {result.limit}" if result.limit else ""
    typer.echo(f"{result.outcome} ({how}{limit}, {result.wall_s:.3f} s)", err=True)


@app.command("doctor")
def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Says which backends and levels this machine offers, and why it does not offer the others.

    \b
    Exit code: 0 there is one, 1 there is none.
    """
    from verifiers.sandbox.backends import survey

    found = asyncio.run(survey())
    if as_json:
        typer.echo(json.dumps([finding.as_json for finding in found], ensure_ascii=False))
    else:
        for finding in found:
            typer.echo(f"{'yes' if finding.is_offered else 'no ':<3}  {finding.name:<14}  {finding.what}")
            for line in finding.details:
                typer.echo(f"{'':<21}{line}")
    if not any(finding.is_offered for finding in found):
        raise typer.Exit(1)


def _read(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from None


command: Any = typer.main.get_command(app)
for _name in ("run", "doctor"):
    plain_values(command.commands[_name])
