"""Every failure in one shape: problem details (RFC 9457) with our `code` for programs."""

from __future__ import annotations

import http
import secrets
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hub_server.errors import HubError
from hub_server.redaction import without_tokens

_CODES = {kind.status: kind.code for kind in HubError.__subclasses__()}  # for what Starlette raises itself


async def answer(request: Request, error: Exception) -> Response:
    """Problem details for programs, a page for people."""
    if is_page_wanted(request.url.path, request.headers.get("accept", "")):
        from hub_server.web.pages import error_page  # which describes errors by this file

        return await error_page(request, error)
    return problem(error, getattr(request.state, "request_id", None))


def is_page_wanted(path: str, accept: str) -> bool:
    """Whether a person asks: browsers name HTML first, installers last or not at all."""
    if path.startswith("/api/") or path.endswith("/legacy/") or "/simple/" in f"{path}/":
        return False
    return accept.startswith("text/html")


def problem(error: Exception, request_id: str | None = None) -> Response:
    status, code, message, headers = described(error)
    body = {
        "type": "about:blank",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": shown(message),
        "request_id": request_id or secrets.token_hex(8),
    }
    return JSONResponse(body, status_code=status, headers=headers, media_type="application/problem+json")


def shown(message: str) -> str:
    """Messages quote what was asked for: there may be a token in it, or half a letter, which JSON cannot carry."""
    return without_tokens(message).encode("utf-8", "replace").decode()


def described(error: Exception) -> tuple[int, str, str, dict[str, str]]:
    """Status, code, message and headers of an error."""
    if isinstance(error, HTTPException) and isinstance(error.__cause__, HubError):
        error = error.__cause__  # raised while FastAPI read the body, which calls everything a bad request
    if isinstance(error, HubError):
        headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
        if error.status == 408:
            headers["Connection"] = "close"  # or the rest of the body would go on trickling in
        if error.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="environments hub"'
        return error.status, error.code, error.message, headers
    if isinstance(error, RequestValidationError):
        return 422, "invalid", "; ".join(_found(e) for e in error.errors()[:5]), {}
    if isinstance(error, HTTPException):
        return error.status_code, _CODES.get(error.status_code, "http"), str(error.detail), dict(error.headers or {})
    return 500, "internal", "the hub made a mistake; its log has the details", {}


def _found(error: Any) -> str:
    return f"{'.'.join(map(str, error['loc'][1:])) or 'body'}: {error['msg']}"
