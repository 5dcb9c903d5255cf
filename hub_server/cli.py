"""`vf-hub`, also `vf hub`: starts a hub and looks after its data. Everything here works on the data itself, without a
running server; what a user does to a hub from elsewhere are `vf login`, `vf publish` and their like."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hub_server.hub import Hub

app = typer.Typer(
    help="Host an environments hub.", rich_markup_mode=None, no_args_is_help=True, add_completion=False
)

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
        _fail(f"the hub needs '{error.name}', which is not installed: uv pip install 'verifiers[hub]'")
    except OSError as error:
        _fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
    except Exception as error:
        from hub_server.errors import HubError

        if not isinstance(error, HubError):
            raise
        _fail(error.message)


def _fail(message: str) -> None:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(3)


def _settings(data: Path | None) -> Any:
    from hub_server.settings import Settings

    return Settings() if data is None else Settings(data=data)


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
