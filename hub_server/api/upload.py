"""Uploads by the form of the package index, as twine and uv send it: `POST /legacy/` and `POST /{owner}/legacy/`.

Who asks is known before a byte of the body is read. Answers to failures are the hub's problem details: uv shows their
`code` and `detail`, twine shows the status, and with --verbose the text.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from hub_server.answers import answer
from hub_server.checking import in_checking_thread
from hub_server.errors import BadRequest, HubError, NotAllowed
from hub_server.http import base_url, hub_of, principal
from hub_server.multipart import received_form
from hub_server.services import publish, publish_target
from hub_server.services.sweep import sweep

SWEEP_EVERY_S = 900.0

log = logging.getLogger(__name__)


async def upload(request: Request) -> Response:
    """One file becomes part of a release; 200 for a new one, and for the same one again."""
    who = await principal(request)
    hub = hub_of(request)
    owner = request.path_params.get("owner") or await run_in_threadpool(publish_target.owner_of_token, hub, who)
    await run_in_threadpool(publish_target.refuse_strangers, hub, who, owner)
    async with received_form(request, hub.settings) as form:
        if form.file is None:
            raise BadRequest("the form has no file: it belongs into the field 'content'", code="form_invalid")
        done = await in_checking_thread(publish.publish_form, hub, who, owner, form.fields, form.file)
    return JSONResponse(
        {
            "owner": done.owner,
            "name": done.name,
            "version": done.version,
            "filename": done.filename,
            "sha256": done.sha256,
            "is_new": done.is_new,
            "url": f"{base_url(request)}/{done.owner}/{done.name}",
        }
    )


async def to_slash(_: Request) -> Response:
    """308 keeps the method and the body, which other redirects drop."""
    return RedirectResponse("legacy/", 308)  # relative: right under every mount path


async def not_here(request: Request) -> Response:
    """Tools that are given the wrong address say little more than the status: the hint is what helps."""
    owner = request.path_params.get("owner")
    place = f"{base_url(request)}/{f'{owner}/' if owner else ''}legacy/"
    if request.scope["path"].endswith("/legacy/"):
        error, allowed = NotAllowed(f"files are uploaded here by POST: twine upload --repository-url {place}"), "POST"
    else:
        error, allowed = NotAllowed(f"this is an index to install from; files are uploaded to {place}"), "GET, HEAD"
    response = await answer(request, error)
    response.headers["Allow"] = allowed
    return response


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Sweeps now and then. Several workers do no harm to each other, and rarely meet."""
    task = asyncio.create_task(_sweep_now_and_then(app))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _sweep_now_and_then(app: Starlette) -> None:
    while True:
        await asyncio.sleep(SWEEP_EVERY_S * random.uniform(0.5, 1.5))
        try:
            await run_in_threadpool(sweep, app.state.hub)
        except HubError as error:  # a full disk or a store that is down: the next time
            log.warning("nothing was swept: %s", error.message)


_OTHERS = ["GET", "HEAD", "PUT", "PATCH", "DELETE"]
_CHANGES = ["POST", "PUT", "PATCH", "DELETE"]
routes: list[BaseRoute] = [
    Route("/legacy/", upload, methods=["POST"]),
    Route("/legacy/", not_here, methods=_OTHERS),
    Route("/legacy", to_slash, methods=["POST"]),
    Route("/simple/{rest:path}", not_here, methods=_CHANGES),
    Route("/{owner}/legacy/", upload, methods=["POST"]),
    Route("/{owner}/legacy/", not_here, methods=_OTHERS),
    Route("/{owner}/legacy", to_slash, methods=["POST"]),
    Route("/{owner}/simple/{rest:path}", not_here, methods=_CHANGES),
    Route("/{owner}/{env}/simple/{rest:path}", not_here, methods=_CHANGES),
]
