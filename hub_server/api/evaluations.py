"""Evaluations by the JSON API: push (create, samples, complete), read, compare, show, delete."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Body, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from hub_server.api.description import encoded
from hub_server.errors import BadRequest
from hub_server.http import hub_of, principal
from hub_server.principal import Principal
from hub_server.services import comparison, evaluations, samples
from hub_server.services.comparison import ComparisonPage
from hub_server.services.evaluations import EvaluationView
from hub_server.services.new_evaluation import NewEvaluation
from hub_server.services.sample_intake import Intake, Received
from hub_server.services.samples import ExamplePage, SamplePage
from verifiers.records import RolloutRecord, encode_record

router = APIRouter(tags=["evaluations"])

Who = Annotated[Principal, Depends(principal)]
Text = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Filter = Annotated[str, Query(max_length=2_000, description="As in the viewer: `reward<0.5 and turns>3`.")]

FEED_BYTES = 1 << 18
_PRIVATE = {"Cache-Control": "private, no-cache"}


class EvaluationIn(BaseModel):
    """A run, before its samples follow. What is not told here is told by the samples."""

    model_config = ConfigDict(extra="forbid")

    idempotency_key: str = Field(description="Chosen by the client, the same whenever this run is pushed.")
    model: str
    version: str | None = Field(None, description="Of the environment. Not needed for a dirty run.")
    wheel_sha256: str | None = Field(None, description="`env.wheel_sha256` of the run's records.")
    dirty: bool = Field(False, description="An edited or unpublished copy was run: bound to no release.")
    name: str = ""
    library_version: str = ""
    visibility: Literal["private", "project", "public"] = "private"
    pass_threshold: float | None = Field(None, description="By default what `run` says, else 0.5.")
    run: dict[str, Any] = Field(default_factory=dict[str, Any], description="The run's metadata.json.")


class EvaluationsOut(BaseModel):
    evaluations: list[EvaluationView]
    next_after: str | None


class CompleteIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    metrics: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="What the client computed, by the names of metadata.json; refused where the samples say otherwise.",
    )


class VisibilityIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    visibility: Literal["private", "project", "public"]


@router.post("/projects/{owner}/{name}/evaluations", status_code=201)
def create_evaluation(
    request: Request, response: Response, owner: str, name: str, body: EvaluationIn, who: Who
) -> EvaluationView:
    """Begin an evaluation; 200 with the first one's id when its key was used before."""
    begun = evaluations.create(hub_of(request), who, owner, name, NewEvaluation(**body.model_dump()))
    if not begun.is_new:
        response.status_code = 200
    return begun.evaluation


@router.get("/projects/{owner}/{name}/evaluations")
def list_evaluations(
    request: Request,
    owner: str,
    name: str,
    who: Who,
    model: Text = None,
    version: Text = None,
    after: Text = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> EvaluationsOut:
    """The evaluations of an environment that you may see, the newest first."""
    hub = hub_of(request)
    found = evaluations.of_project(hub, who, owner, name, model=model, version=version, after=after, limit=limit)
    return EvaluationsOut(evaluations=list(found.evaluations), next_after=found.next_after)


@router.get("/evaluations/{evaluation_id}")
def get_evaluation(request: Request, evaluation_id: str, who: Who) -> EvaluationView:
    return evaluations.get(hub_of(request), who, evaluation_id)


@router.delete("/evaluations/{evaluation_id}", status_code=204)
def delete_evaluation(request: Request, evaluation_id: str, who: Who) -> None:
    """Its samples are gone for good, and its key is not used again."""
    evaluations.remove(hub_of(request), who, evaluation_id)


@router.put("/evaluations/{evaluation_id}/visibility")
def set_visibility(request: Request, evaluation_id: str, body: VisibilityIn, who: Who) -> EvaluationView:
    """`private`: you alone; `project`: whoever has a role on the environment; `public`: whoever sees it."""
    return evaluations.set_visibility(hub_of(request), who, evaluation_id, body.visibility)


_NDJSON: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "One rollout record a line, as in results.jsonl; `Content-Encoding: gzip` is welcome.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}


@router.post("/evaluations/{evaluation_id}/samples", openapi_extra=_NDJSON)
async def push_samples(request: Request, evaluation_id: str, who: Who) -> Received:
    """Add samples. Whatever is there already is passed over, so send again what may not have arrived."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise BadRequest(f"Content-Encoding '{encoding[:40]}': send the lines plain, or by gzip", code="bad_encoding")
    hub = hub_of(request)
    intake = await run_in_threadpool(Intake, hub, who, evaluation_id, is_gzipped=encoding == "gzip")
    held = bytearray()
    try:
        async for piece in request.stream():
            held += piece
            if len(held) >= FEED_BYTES:
                await run_in_threadpool(intake.feed, bytes(held))
                held.clear()
    except ClientDisconnect:
        raise BadRequest("the body ended early; send it again", code="truncated") from None
    await run_in_threadpool(intake.feed, bytes(held))
    return await run_in_threadpool(intake.finish)


@router.get("/evaluations/{evaluation_id}/samples", responses=encoded(SamplePage))
def list_samples(
    request: Request, evaluation_id: str, who: Who, filter: Filter = "", after: str | None = None, limit: Limit = 100
) -> Response:
    """Rows of samples by example and try."""
    return _json(samples.page(hub_of(request), who, evaluation_id, filter_text=filter, after=after, limit=limit))


@router.get("/evaluations/{evaluation_id}/examples", responses=encoded(ExamplePage))
def list_examples(
    request: Request,
    evaluation_id: str,
    who: Who,
    filter: Filter = "",
    order: str = "example",
    offset: Annotated[int, Query(ge=0, le=100_000)] = 0,
    limit: Limit = 100,
) -> Response:
    """Examples with their tries."""
    hub = hub_of(request)
    found = samples.examples(hub, who, evaluation_id, filter_text=filter, order=order, offset=offset, limit=limit)
    return _json(found)


@router.get(
    "/evaluations/{evaluation_id}/rollouts/{example_id}/{rollout_index}",
    responses=encoded(RolloutRecord),
)
def get_rollout(request: Request, evaluation_id: str, example_id: int, rollout_index: int, who: Who) -> Response:
    """One rollout record, whole."""
    if max(abs(example_id), abs(rollout_index)) >= 1 << 63:
        raise BadRequest("example and try are numbers of 64 bits")
    record = samples.rollout(hub_of(request), who, evaluation_id, example_id, rollout_index)
    return Response(encode_record(record), media_type="application/json", headers=_PRIVATE)


@router.post("/evaluations/{evaluation_id}/complete")
def complete_evaluation(
    request: Request, evaluation_id: str, who: Who, body: Annotated[CompleteIn | None, Body()] = None
) -> EvaluationView:
    """Close it: the figures are computed from the samples. 422 names each claimed metric that is not borne out."""
    return evaluations.complete(hub_of(request), who, evaluation_id, {} if body is None else body.metrics)


@router.get("/evaluations/{evaluation_id}/compare/{candidate_id}", responses=encoded(ComparisonPage))
def compare_evaluations(
    request: Request,
    evaluation_id: str,
    candidate_id: str,
    who: Who,
    bucket: str | None = None,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Limit = 100,
) -> Response:
    """The candidate against this baseline, example by example, the largest differences first."""
    comparison.check_bucket(bucket)
    found = comparison.compare(hub_of(request), who, evaluation_id, candidate_id)
    return _json(comparison.page_of(found, bucket, offset, limit))


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json", headers=_PRIVATE)
