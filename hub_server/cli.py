"""`vf-hub`, also `vf hub`: starts a hub and looks after its data. Everything here works on the data itself, without a
running server; what a user does to a hub from elsewhere are `vf login`, `vf publish` and their like."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hub_server.cli_accounts import token_app, user_app
from hub_server.cli_worker import worker

if TYPE_CHECKING:
    from pydantic import ValidationError

    from hub_server.hub import Hub
    from hub_server.settings import Settings

app = typer.Typer(help="Host an environments hub.", rich_markup_mode=None, no_args_is_help=True, add_completion=False)
app.add_typer(user_app, name="user")
app.add_typer(token_app, name="token")
app.command()(worker)

CLIENT_VARIABLES = frozenset({"VF_HUB_URL", "VF_HUB_TOKEN", "VF_HUB_ALLOW_HTTP"})

Data = Annotated[Path | None, typer.Option("--data", help="The hub's folder (VF_HUB_DATA; default: hub-data).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def serve(
    data: Data = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.")] = 8700,
    workers: Annotated[int, typer.Option(help="Processes that answer side by side.", min=1)] = 1,
    owner: Annotated[str | None, typer.Option(help="The first account's name (default: your login name).")] = None,
) -> None:
    """Start a hub. On an empty folder it makes the first account and prints its token, once."""
    with told():
        from hub_server.serving import run_server

        run_server(_settings(data), host=host, port=port, workers=workers, owner=owner)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="The tar file to write.")], data: Data = None, as_json: AsJson = False
) -> None:
    """Write the whole hub into one file. The hub may go on running."""
    with opened(data) as hub, _bar("files") as progress:
        from hub_server.services.backup import backup as run

        manifest = run(hub, target, progress)
    _say(manifest, as_json, f"{target}: {sum(manifest['rows'].values())} rows, {manifest['files']} files")


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="A file that `vf-hub backup` wrote.")],
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Fill an empty hub from a backup, whatever its database and storage."""
    with opened(data) as hub, _bar("files") as progress:
        from hub_server.services.backup import restore as run

        manifest = run(hub, source, progress)
    _say(manifest, as_json, f"restored {sum(manifest['rows'].values())} rows and {manifest['files']} files")


@app.command()
def fsck(
    data: Data = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove old orphans, set right what the rows themselves tell.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read every stored file and compare it with its row. The hub may go on running.

    \b
    Exit code: 0 nothing is wrong, 1 problems are left, 3 set-up.
    """
    with opened(data) as hub, _bar("files") as progress:
        from hub_server.services.fsck import check_hub

        found = check_hub(hub, repair=repair, progress=progress)
    lines = [f"{problem.kind}: {problem.subject}: {problem.detail}" for problem in found.problems]
    lines.append(
        f"{found.files} files read, {len(found.problems)} problems; {found.orphans} files that no row names "
        f"({found.orphan_bytes} bytes)" + (f"; {found.repaired} things set right" if repair else "")
    )
    _say(dataclasses.asdict(found), as_json, "\n".join(lines))
    if not found.is_sound:
        raise typer.Exit(1)


@app.command()
def gc(data: Data = None, as_json: AsJson = False) -> None:
    """Remove what nobody needs and is older than an hour: orphans, cut-off uploads, unfinished releases; and
    evaluations into which nothing came for days. A running hub does the same by itself, every hour."""
    with opened(data) as hub:
        from hub_server.services.sweep import sweep

        swept = sweep(hub)
    files = f"removed {swept.files} files ({swept.bytes} bytes)"
    unfinished = f"{swept.staged} unfinished releases, {swept.evaluations} evaluations left open"
    line = f"{files}, {swept.parts} cut-off uploads, {unfinished}"
    _say(dataclasses.asdict(swept), as_json, line)


@contextlib.contextmanager
def opened(data: Path | None) -> Iterator[Hub]:
    """The hub of a folder or of the environment's settings, for a command; errors end on one line, with status 3."""
    with told():
        from hub_server.hub import Hub

        hub = Hub.open(_settings(data))
        try:
            yield hub
        finally:
            hub.close()


@contextlib.contextmanager
def told() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in ("verifiers", "hub_server"):
            raise
        _fail(f"the hub needs '{error.name}', which is not installed: uv pip install '{_extra(error.name)}'")
    except OSError as error:
        _fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
    except typer.Exit:
        raise
    except Exception as error:
        from sqlalchemy.exc import SQLAlchemyError

        from hub_server.errors import HubError

        if isinstance(error, HubError):
            _fail(error.message)
        if isinstance(error, SQLAlchemyError):
            _fail(f"the hub's database cannot be used: {str(getattr(error, 'orig', None) or error).splitlines()[0]}")
        raise


def _extra(module: str | None) -> str:
    extras = {"psycopg": "hub-postgres", "obstore": "hub-s3"}
    return f"verifiers[{extras.get((module or '').partition('.')[0], 'hub')}]"


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(3)


def _settings(data: Path | None) -> Settings:
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from hub_server.settings import Settings

    unknown = sorted(
        name
        for name in os.environ
        if name.startswith("VF_HUB_") and name not in CLIENT_VARIABLES and name[7:].lower() not in Settings.model_fields
    )
    if unknown:
        typer.echo(f"warning: the hub has no setting {', '.join(unknown)}: docs/hub-hosting.md lists them", err=True)
    try:
        return Settings() if data is None else Settings(data=data)
    except ValidationError as error:
        _fail("; ".join(_wrong_settings(error)))
    except SettingsError as error:  # a list that is no JSON; the message names the field in quotes
        name = str(error).split('"')[1].upper()
        _fail(f'VF_HUB_{name}: a list is written as JSON, such as ["one", "two"]')


def _wrong_settings(error: ValidationError) -> Iterator[str]:
    for wrong in error.errors(include_url=False, include_context=False):
        place = ".".join(str(part) for part in wrong["loc"])
        name = f"VF_HUB_{place.upper()}: " if place else ""
        yield f"{name}{wrong['msg']}" + (f", found {wrong['input']!r}" if place else "")


def _say(result: dict[str, Any], as_json: bool, line: str) -> None:
    typer.echo(json.dumps(result) if as_json else line)


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Any]:
    """A progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as progress:
        task = progress.add_task(what)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def main() -> None:
    """The program `vf-hub`."""
    app(prog_name="vf-hub")


if __name__ == "__main__":
    main()
