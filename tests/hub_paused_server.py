"""A hub that stops for ever in the middle of an upload, so that a test can kill it exactly there.

usage: python hub_paused_server.py DATA POINT

POINT: written (the file is whole beside its place), linked (it is in its place), inserting (its row is not written),
committing (its row is written and not committed), committed (nobody was told yet). When the point is reached,
DATA/paused appears. Everything else is the real application over the real folder and database.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import uvicorn
from sqlalchemy import event
from sqlalchemy.orm import Session

from hub_server.app import create_app
from hub_server.hub import Hub
from hub_server.settings import Settings

POINTS = ("written", "linked", "inserting", "committing", "committed")


def main(data: Path, point: str) -> None:
    assert point in POINTS
    hub = Hub.open(Settings(data=data))

    def pause() -> NoReturn:
        (data / "paused").touch()
        while True:
            time.sleep(60)

    if point in ("written", "linked"):
        link = os.link

        def pausing(source: Any, target: Any) -> None:
            if point == "written":
                pause()
            link(source, target)
            pause()

        os.link = pausing  # type: ignore[assignment]
    else:
        pause_in_database(hub, point, pause)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(create_app(hub=hub), log_level="error")).run(sockets=[listener])


def pause_in_database(hub: Hub, point: str, pause: Any) -> None:
    """Only the transaction that writes the row of a file counts, not those of limits and tokens."""
    has_file = False

    @event.listens_for(hub.database.engine, "before_cursor_execute")
    def _statement(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        nonlocal has_file
        if statement.startswith("INSERT INTO file "):
            has_file = True
            if point == "inserting":
                pause()

    @event.listens_for(hub.database.engine, "commit")
    def _committing(_c: Any) -> None:
        if has_file and point == "committing":
            pause()

    @event.listens_for(Session, "after_commit")
    def _committed(_session: Any) -> None:
        if has_file and point == "committed":
            pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
