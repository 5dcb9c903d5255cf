"""`vf-hub worker`: validates releases and re-scores evaluations, in sandboxes."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hub_server.worker import Done


def worker(
    data: Annotated[
        Path | None, typer.Option("--data", help="The hub's folder (VF_HUB_DATA; default: hub-data).")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Do what waits now, then end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a job.")] = False,
) -> None:
    """Do what waits: validate releases (VF_HUB_VALIDATION=1), re-score evaluations (VF_HUB_RESCORING=1).

    \b
    Runs published packages in a sandbox without network; see vf-sandbox doctor for those of this machine.
    Exit code: 0 ended as asked, 3 set-up.
    """
    from hub_server.cli import opened
    from hub_server.worker import Worker

    def tell(done: Done) -> None:
        if as_json:
            typer.echo(json.dumps({"what": done.what, "id": done.job_id, "error": done.error}))
        else:
            typer.echo(f"{done.what} {done.job_id}: {done.error or 'done'}")

    with opened(data) as hub:
        if not hub.settings.validation and not hub.settings.rescoring:
            typer.echo("error: nothing to do: set VF_HUB_VALIDATION=1, VF_HUB_RESCORING=1, or both", err=True)
            raise typer.Exit(3)
        found = Worker(hub)
        if once:
            while (done := found.work_once()) is not None:
                tell(done)
            return
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        found.run(stop, tell)
