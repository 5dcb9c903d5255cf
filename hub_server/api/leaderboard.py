"""A project's leaderboard and the pass rates of its examples, by the JSON API."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from hub_server.http import hub_of, principal
from hub_server.principal import Principal
from hub_server.services import leaderboard as boards
from hub_server.services import pass_rates as rates
from hub_server.services.leaderboard import Leaderboard
from hub_server.services.pass_rates import PassRates

router = APIRouter(tags=["evaluations"])

Who = Annotated[Principal, Depends(principal)]
Text = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]
Setup = Annotated[
    str | None, Query(max_length=16, pattern="^[0-9a-f]*$", description="Which arguments; empty for the defaults.")
]


@router.get("/projects/{owner}/{name}/leaderboard")
def leaderboard(
    request: Request, owner: str, name: str, who: Who, version: Text = None, setup: Setup = None
) -> Leaderboard:
    """Models by the lower bound of their mean reward; one row for each model and version."""
    return boards.leaderboard(hub_of(request), who, owner, name, version=version, setup=setup)


@router.get("/projects/{owner}/{name}/pass-rates")
def pass_rates(
    request: Request,
    owner: str,
    name: str,
    who: Who,
    version: Text = None,
    setup: Setup = None,
    model: Text = None,
    after: Annotated[int, Query(ge=-(1 << 63), lt=1 << 63)] = -(1 << 63),
    limit: Annotated[int, Query(ge=1, le=rates.MOST_ON_A_PAGE)] = 1_000,
) -> PassRates:
    """How often each example is passed: where a trainer may begin, and which examples look broken."""
    return rates.pass_rates(
        hub_of(request), who, owner, name, version=version, setup=setup or "", model=model, after=after, limit=limit
    )
