"""`vf view`: saved rollouts in the browser, from this machine; or their rows as JSON."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verifiers.cli.install import Debug

if TYPE_CHECKING:
    from verifiers.viewer.runs import Run, Runs
    from verifiers.viewer.server import ViewServer

PORT = 8710  # asked for first, so that an address can be kept; another is taken when it is not free


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN] [RUN_TO_COMPARE]", help="A run's folder, a results.jsonl, or a folder of runs."),
    ] = None,
    chosen: Annotated[str, typer.Option("--filter", "-f", help="Show only these, such as 'reward<0.5'.")] = "",
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help=f"0: any that is free. [default: {PORT}, or any]")
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON and serve nothing.")] = False,
    debug: Debug = False,
) -> None:
    """Shows saved rollouts in the browser: conversations, rewards by function, tries side by side.

    Without RUN it opens the newest run below ./outputs; with two runs it compares the second with the first. The page
    is served on 127.0.0.1 until Ctrl-C; nothing is written and nothing leaves this machine.

    \b
    vf view
    vf view outputs/evals/math-env--m/0a1b2c3d --filter 'reward<0.5 and turns>3'
    vf view outputs/evals/math-env--m/0a1b2c3d outputs/evals/math-env--m/4e5f6a7b

    \b
    Exit code: 0 shown, 2 usage, 3 set-up (no such run, or the port is taken).
    """
    from verifiers.errors import ConfigError
    from verifiers.viewer import parse_filter
    from verifiers.viewer.runs import DEFAULT_FOLDER, Runs

    given = paths or []
    if len(given) > 2:
        raise typer.BadParameter(f"up to two runs can be shown, not {len(given)}")
    try:
        parse_filter(chosen)
    except ConfigError as error:
        raise typer.BadParameter(f"{error} (--filter)") from None
    if len(given) == 2 and chosen:
        raise typer.BadParameter("--filter is for one run; two are compared whole")
    if not given and not DEFAULT_FOLDER.is_dir():
        raise ConfigError(f"no runs in ./{DEFAULT_FOLDER}: make one with vf-eval, or say where one is (vf view RUN)")
    runs = Runs(*(given or [DEFAULT_FOLDER]))
    shown = _runs_to_show(runs, given)
    if as_json:
        typer.echo(_json(shown, chosen))
        return
    _serve(runs, shown, chosen, port, opens=not no_open)


def _runs_to_show(runs: Runs, given: list[Path]) -> list[Run]:
    """One run, two to compare, or none: then there is a list to choose from."""
    from verifiers.errors import ConfigError
    from verifiers.viewer.runs import run_at

    if len(given) == 2:
        for path in given:
            run_at(path)  # raises for what is not one run
        return [run for path in given if (run := runs.at(path)) is not None]
    found = runs.scan()
    if not found:
        raise ConfigError(f"no results.jsonl in {given[0] if given else './outputs'} or in a folder below it")
    return found[:1] if not given or len(found) == 1 else []


def _json(shown: list[Run], chosen: str) -> str:
    import msgspec

    from verifiers.errors import ConfigError
    from verifiers.viewer import compare_rows, verdict
    from verifiers.viewer.runs import matching_rows

    if not shown:
        raise ConfigError("--json shows one run, or compares two: give the folder of a run")
    for run in shown:
        run.file.refresh()
    document: dict[str, Any]
    if len(shown) == 2:
        comparison = compare_rows(shown[0].file.rows, shown[1].file.rows)
        document = {
            "baseline": str(shown[0].path),
            "candidate": str(shown[1].path),
            "verdict": verdict(comparison.difference),
            "difference": comparison.difference,
            "counts": comparison.counts,
            "pass_threshold": comparison.pass_threshold,
            "examples": [
                {"example_id": pair.example_id, "difference": pair.difference, "bucket": pair.bucket}
                for pair in comparison.examples
            ],
        }
    else:
        (run,) = shown
        try:
            kept = matching_rows(run.file, chosen)
        except ConfigError as error:
            raise typer.BadParameter(f"{error} (--filter)") from None
        document = {"run": str(run.path), "n_all": len(run.file.rows), "n_damaged": run.file.n_damaged, "rows": kept}
    return msgspec.json.encode(document).decode()


def _serve(runs: Runs, shown: list[Run], chosen: str, port: int | None, *, opens: bool) -> None:
    from verifiers.viewer.links import with_query
    from verifiers.viewer.pages import Site
    from verifiers.viewer.server import serve

    home = ""
    if len(shown) == 1:
        home = with_query(f"/run/{shown[0].id}", {"q": chosen})
    elif shown:
        home = with_query("/compare", {"a": shown[0].id, "b": shown[1].id})
    server = _server(Site(runs, home), port)
    url = server.url + (home or "/")
    typer.echo(f"{' and '.join(str(run.path.parent) for run in shown) or 'runs'}: {url}", err=True)
    if "SSH_CONNECTION" in os.environ:
        typer.echo(
            f"from your machine: ssh -L {server.port}:127.0.0.1:{server.port} … and open the same address", err=True
        )
    typer.echo("Ctrl-C ends it", err=True)
    if opens and _has_screen():
        import webbrowser

        webbrowser.open(url)
    serve(server)


def _server(site: Any, port: int | None) -> ViewServer:
    from verifiers.errors import SetupError
    from verifiers.viewer.server import ViewServer

    if port is not None:
        return ViewServer(site, port)
    try:
        return ViewServer(site, PORT)
    except SetupError:
        return ViewServer(site)


def _has_screen() -> bool:
    """Without one `webbrowser` would start a browser of text in this terminal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
