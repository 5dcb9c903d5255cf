"""What `vf-hub worker` found: validations of releases, re-scorings of evaluations; and asking for one more."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel

from hub_server.http import hub_of, principal
from hub_server.principal import Principal
from hub_server.services import rescoring, validations
from hub_server.services.rescoring import RescoringView
from hub_server.services.validations import ValidationView

router = APIRouter(tags=["checks"])

Who = Annotated[Principal, Depends(principal)]
Text = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]


class CheckOut(BaseModel):
    name: str
    status: str
    reason: str


class ValidationOut(BaseModel):
    """One run of `vf-validate` over a version."""

    id: int
    version: str
    state: str
    verdict: str | None
    reason: str
    checks: list[CheckOut]
    usage: dict[str, float | None]
    created_at: str
    finished_at: str | None


class ValidationsOut(BaseModel):
    validations: list[ValidationOut]


class RescoringsOut(BaseModel):
    rescorings: list[RescoringView]


@router.get("/projects/{owner}/{name}/validations")
def list_validations(
    request: Request,
    owner: str,
    name: str,
    who: Who,
    version: Text = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ValidationsOut:
    """The newest first."""
    found = validations.of_project(hub_of(request), who, owner, name, version=version, limit=limit)
    return ValidationsOut(validations=[_out(view) for view in found])


@router.post("/projects/{owner}/{name}/versions/{version}/validations", status_code=202)
def request_validation(request: Request, owner: str, name: str, version: str, who: Who) -> ValidationOut:
    """Have a version validated once more."""
    return _out(validations.request(hub_of(request), who, owner, name, version))


@router.get("/evaluations/{evaluation_id}/verification")
def list_rescorings(request: Request, evaluation_id: str, who: Who) -> RescoringsOut:
    """What re-scoring the evaluation on the hub found, the newest first."""
    return RescoringsOut(rescorings=rescoring.of_evaluation(hub_of(request), who, evaluation_id))


@router.post("/evaluations/{evaluation_id}/verification", status_code=202)
def request_rescoring(request: Request, evaluation_id: str, who: Who) -> RescoringView:
    """Have the saved completions scored again by the environment's own rubric; only that makes it verified."""
    return rescoring.request(hub_of(request), who, evaluation_id)


def _out(view: ValidationView) -> ValidationOut:
    return ValidationOut(
        id=view.id,
        version=view.version,
        state=view.state,
        verdict=view.verdict,
        reason=view.reason,
        checks=[CheckOut(name=check.name, status=check.status, reason=check.reason) for check in view.checks],
        usage=view.usage,
        created_at=view.created_at.isoformat(),
        finished_at=None if view.finished_at is None else view.finished_at.isoformat(),
    )
