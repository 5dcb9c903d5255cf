"""`create_app`: the only place where the hub's parts meet.

The package index and the files are plain Starlette routes, which cost half of what FastAPI's do; the JSON API is
FastAPI under `/api/v1`, so that it documents itself; pages come last, because `/{owner}/{env}` takes what is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any, BinaryIO

from fastapi.exceptions import RequestValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount

from hub_server import logs, memory
from hub_server.answers import answer
from hub_server.api.description import DescribedApi
from hub_server.api.index import HeldPages
from hub_server.door import Door
from hub_server.errors import HubError
from hub_server.hub import Hub
from hub_server.settings import Settings

# Each module has `routes: list[BaseRoute]`, and may have `lifespan(app)`. Order decides: the first route that fits
# answers.
ROUTES: tuple[str, ...] = (
    "hub_server.api.index",
    "hub_server.api.health",
    "hub_server.api.files",
    "hub_server.api.upload",
    "hub_server.web.static_files",
    "hub_server.web.home",
    "hub_server.web.reference",
    "hub_server.web.evaluation",
    "hub_server.web.people",
    "hub_server.web.environment",
)
# Each module has a FastAPI `router`; all of them live under /api/v1.
API: tuple[str, ...] = (
    "hub_server.api.accounts",
    "hub_server.api.organisations",
    "hub_server.api.tokens",
    "hub_server.api.projects",
    "hub_server.api.evaluations",
    "hub_server.api.leaderboard",
    "hub_server.api.catalog",
    "hub_server.api.releases",
    "hub_server.api.validations",
)


def create_app(
    settings: Settings | None = None, *, hub: Hub | None = None, log_file: BinaryIO | None = None
) -> Starlette:
    """An ASGI application. `hub` hands in one that is open already, which then stays open when the application ends;
    without it the process is the hub's own, and what libraries log is written as the hub's log is."""
    settings = settings or (hub.settings if hub else Settings())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if hub is None:
            logs.take_over(settings.log_level)
            memory.keep_few_arenas()
            app.state.hub = api.state.hub = Hub.open(settings)
        try:
            async with contextlib.AsyncExitStack() as running:
                for module in map(import_module, ROUTES):
                    if hasattr(module, "lifespan"):  # something that runs beside the requests
                        await running.enter_async_context(module.lifespan(app))
                yield
        finally:
            if hub is None:
                app.state.hub.close()

    api = DescribedApi(settings.title)
    for name in API:
        api.include_router(import_module(name).router)
    # Index pages are asked for most, and every route that is tried before theirs costs microseconds.
    routes: list[BaseRoute] = [*import_module(ROUTES[0]).routes, Mount("/api/v1", app=api)]
    for name in ROUTES[1:]:
        routes += import_module(name).routes
    handlers: dict[Any, Any] = {
        HubError: answer,
        HTTPException: answer,
        RequestValidationError: answer,
        Exception: answer,
    }
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)
    door = Middleware(Door, settings=settings, log=logs.logger(settings.log_level, log_file))
    app = Starlette(
        routes=routes, middleware=[door, Middleware(HeldPages)], lifespan=lifespan, exception_handlers=handlers
    )
    app.state.settings = settings
    if hub is not None:
        app.state.hub = api.state.hub = hub
    return app
