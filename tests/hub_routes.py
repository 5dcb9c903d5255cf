"""The routes of the hub's application, read from it, so that a new one cannot be forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount, Route

from hub_server.app import API


@dataclass(frozen=True, order=True)
class Known:
    path: str  # with its parameters: /{owner}/{env}/simple/
    method: str


def all_routes(app: Starlette) -> list[Known]:
    """Every path with every method it answers to; HEAD comes with GET."""
    found = {
        Known(f"/api/v1{path}", method) for module in API for path, method in _of(import_module(module).router.routes)
    }
    for path, method in _of(route for route in app.routes if isinstance(route, Route)):
        found.add(Known(path, method))
    assert {type(route) for route in app.routes} <= {Route, Mount}
    return sorted(found)


def _of(routes: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for route in routes:
        for method in route.methods - {"HEAD"}:
            yield route.path, method


def filled(path: str, /, **values: str) -> str:
    """The path with its parameters put in; what is not given becomes `1`."""
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: values.get(found[1], "1"), path)
