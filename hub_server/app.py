"""`create_app`: the only place where the hub's parts meet.

The package index and the files are plain Starlette routes, which cost half of what FastAPI's do; the JSON API is
FastAPI under `/api/v1`, so that it documents itself; pages come last, because `/{owner}/{env}` takes what is left.
"""

from __future__ import annotations

import contextlib
import http
import secrets
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount

from hub_server.errors import HubError
from hub_server.hub import Hub
from hub_server.settings import Settings

# Each module has `routes: list[BaseRoute]`. Order decides: the first route that fits answers.
ROUTES: tuple[str, ...] = ()
# Each module has a FastAPI `router`; all of them live under /api/v1.
API: tuple[str, ...] = ()


def create_app(settings: Settings | None = None, *, hub: Hub | None = None) -> Starlette:
    """An ASGI application. `hub` hands in one that is open already, which then stays open when the application ends."""
    settings = settings or (hub.settings if hub else Settings())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.hub = hub or Hub.open(settings)
        api.state.hub = app.state.hub
        try:
            yield
        finally:
            if hub is None:
                app.state.hub.close()

    api = FastAPI(title=settings.title, version="1", docs_url=None, redoc_url=None)
    for name in API:
        api.include_router(import_module(name).router)
    routes: list[BaseRoute] = [Mount("/api/v1", app=api)]
    for name in ROUTES:
        routes += import_module(name).routes
    handlers: dict[Any, Any] = {HubError: answer, HTTPException: answer, RequestValidationError: answer}
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.state.settings = settings
    return app


async def answer(request: Request, error: Exception) -> Response:
    """Every failure in one shape: problem details (RFC 9457) with our `code`; pages come with `web/`."""
    status, code, message, headers = described(error)
    body = {
        "type": "about:blank",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": message,
        "request_id": getattr(request.state, "request_id", None) or secrets.token_hex(8),
    }
    return JSONResponse(body, status_code=status, headers=headers, media_type="application/problem+json")


def described(error: Exception) -> tuple[int, str, str, dict[str, str]]:
    """Status, code, message and headers of an error."""
    if isinstance(error, HubError):
        headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
        if error.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="environments hub"'
        return error.status, error.code, error.message, headers
    if isinstance(error, RequestValidationError):
        found = "; ".join(f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in error.errors()[:5])
        return 422, "invalid", found, {}
    if isinstance(error, HTTPException):
        return error.status_code, "http", str(error.detail), dict(error.headers or {})
    return 500, "internal", "the hub made a mistake; its log has the details", {}
