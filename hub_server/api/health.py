"""`/healthz`, `/healthz/ready` and `/metrics`: whether this process runs, whether it can serve, how much it does."""

from __future__ import annotations

import os

from sqlalchemy import select
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hub_server import metrics
from hub_server.errors import Forbidden, HubError, NotSignedIn
from hub_server.http import anyone, hub_of
from hub_server.hub import Hub
from hub_server.models import Generation


async def alive(request: Request) -> Response:
    """Asks nothing of the database: a process that is alive must not be killed because something else is down."""
    return JSONResponse({"status": "ok"}, headers={"Cache-Control": "no-store"})


async def ready(request: Request) -> Response:
    """503 while the database or the storage does not answer: send this worker no requests."""
    failing = await run_in_threadpool(_failing, hub_of(request))
    body = {"status": "unavailable" if failing else "ok", "failing": failing}
    return JSONResponse(body, status_code=503 if failing else 200, headers={"Cache-Control": "no-store"})


def _failing(hub: Hub) -> list[str]:
    found: list[str] = []
    try:
        with hub.database.read() as session:
            session.scalar(select(Generation.value))
    except HubError:
        found.append("database")
    try:
        hub.storage.size("files/" + "0" * 64)
    except (HubError, OSError):
        found.append("storage")
    if not os.access(hub.settings.temporary, os.W_OK):
        found.append("temporary folder")
    return found


async def prometheus(request: Request) -> Response:
    """For an administrator's token of any scope; for all where `public_metrics` is set."""
    hub = hub_of(request)
    if not hub.settings.public_metrics:
        who = await anyone(request)
        if who.is_anonymous:
            raise NotSignedIn("metrics are for administrators: send a token of scope read")
        if not who.is_admin or who.owner_id is not None or who.project_id is not None:
            raise Forbidden("metrics are for administrators of this hub")
    text = await run_in_threadpool(metrics.exposition, hub)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8", headers={"Cache-Control": "no-store"})


routes: list[BaseRoute] = [
    Route("/healthz", alive),
    Route("/healthz/ready", ready),
    Route("/metrics", prometheus),
]
