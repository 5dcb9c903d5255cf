"""`/docs`: every address of the JSON API, read from its OpenAPI description."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from hub_server.http import principal
from hub_server.web.pages import page


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    about: str
    parameters: tuple[tuple[str, str, str], ...]  # name, where, about
    body: str  # the name of its shape
    answer: str


async def reference(request: Request) -> Response:
    who = await principal(request)
    api = next(route.app for route in request.app.routes if isinstance(route, Mount) and route.path == "/api/v1")
    return page(request, "reference.html", who, groups=_groups(api))


@cache
def _groups(api: FastAPI) -> dict[str, list[Operation]]:
    groups: dict[str, list[Operation]] = {}
    for path, methods in api.openapi()["paths"].items():
        for method, told in methods.items():
            group = (told.get("tags") or ["other"])[0]
            groups.setdefault(group, []).append(_operation(method.upper(), path, told))
    return dict(sorted(groups.items()))


def _operation(method: str, path: str, told: dict[str, Any]) -> Operation:
    answers = [answer for status, answer in told.get("responses", {}).items() if status.startswith("2")]
    return Operation(
        method=method,
        path=f"/api/v1{path}",
        about=told.get("description") or told.get("summary", ""),
        parameters=tuple(
            (one["name"], one["in"], one.get("description") or one.get("schema", {}).get("description") or "")
            for one in told.get("parameters", [])
        ),
        body=_shape(told.get("requestBody", {})),
        answer=_shape(answers[0]) if answers else "",
    )


def _shape(told: dict[str, Any]) -> str:
    for kind, content in told.get("content", {}).items():
        schema = content.get("schema", {})
        of = schema.get("items", {}) if schema.get("type") == "array" else schema
        name = of.get("$ref", "").rpartition("/")[2]
        return f"{'list of ' if of is not schema else ''}{name}" if name else kind
    return ""


routes: list[BaseRoute] = [Route("/docs", reference, methods=["GET"])]
