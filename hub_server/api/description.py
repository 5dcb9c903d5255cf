"""`DescribedApi`: FastAPI's description of the JSON API, with what it cannot know: what every failure looks like
(`answers.problem`), and the answers that msgspec encodes, which may be too large for a model of FastAPI's."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI

from hub_server.services.comparison import ComparisonPage
from hub_server.services.samples import ExamplePage, SamplePage
from verifiers.records import RolloutRecord

_PROBLEM: dict[str, Any] = {
    "title": "Problem",
    "description": "Problem details (RFC 9457).",
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "A word for programs."},
        "detail": {"type": "string", "description": "A sentence for people."},
        "request_id": {"type": "string", "description": "As in the hub's log."},
    },
    "required": ["type", "title", "status", "code", "detail", "request_id"],
}
_CONTENT = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_FAILURES: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "Refused", "content": _CONTENT},
    "5XX": {"description": "The hub's own trouble", "content": _CONTENT},
}


_ENCODED: tuple[type, ...] = (SamplePage, ExamplePage, ComparisonPage, RolloutRecord)
_REFERENCE = "#/components/schemas/{name}"


def encoded(kind: type) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route that answers with one of `_ENCODED`."""
    assert kind in _ENCODED
    schema = {"$ref": _REFERENCE.format(name=kind.__name__)}
    return {200: {"content": {"application/json": {"schema": schema}}}}


class DescribedApi(FastAPI):
    def __init__(self, title: str) -> None:
        super().__init__(title=title, version="1", docs_url=None, redoc_url=None, responses=_FAILURES)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            schemas: dict[str, Any] = super().openapi()["components"]["schemas"]
            _, encoded_ones = msgspec.json.schema_components(_ENCODED, ref_template=_REFERENCE)
            assert not schemas.keys() & encoded_ones.keys(), "two kinds of answers with one name"
            schemas |= {"Problem": _PROBLEM, **encoded_ones}
        return super().openapi()
