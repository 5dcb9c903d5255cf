"""An evaluation's pages: its figures, its examples with their tries, one rollout, two evaluations side by side."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from hub_server.errors import BadRequest, NotFound
from hub_server.http import hub_of, principal
from hub_server.services import comparison, evaluations, samples
from hub_server.services.evaluations import EvaluationView
from hub_server.web.pages import back_to, fields, page
from verifiers.viewer import (
    ORDERS,
    ComparisonState,
    Links,
    ListState,
    Selection,
    parse_filter,
    place_of,
    render_comparison,
    render_examples,
    render_filter,
    render_pair,
    render_rollout,
    whole_text,
)

PAGE_EXAMPLES = 50
DEFAULT_ORDER = "example"


async def examples(request: Request) -> Response:
    who = await principal(request)
    hub, evaluation_id = hub_of(request), request.path_params["evaluation_id"]
    found = await run_in_threadpool(evaluations.get, hub, who, evaluation_id)
    state = _asked(request)
    number = max(1, state.page)
    error = None
    given: dict[str, Any] = {"order": state.order, "offset": (number - 1) * PAGE_EXAMPLES, "limit": PAGE_EXAMPLES}
    try:
        shown = await run_in_threadpool(samples.examples, hub, who, evaluation_id, filter_text=state.query, **given)
    except BadRequest as problem:  # a filter that cannot be read: all are shown, and why
        error = problem.message
        shown = await run_in_threadpool(samples.examples, hub, who, evaluation_id, **given)
    rows = [row for example in shown.examples for row in example.tries]
    n_pages = number + 1 if shown.next_offset is not None else number
    if shown.n_examples is not None:
        n_pages = max(1, -(-shown.n_examples // PAGE_EXAMPLES))
    state = ListState(query=state.query, order=state.order, page=number, n_pages=n_pages, error=error)
    links = _links(found.id)
    others = await run_in_threadpool(evaluations.of_project, hub, who, found.owner, found.project, limit=50)
    return page(
        request,
        "evaluation.html",
        who,
        found=found,
        others=[one for one in others.evaluations if one.id != found.id and one.state != "open"],
        filter=render_filter(links, state, n_shown=len(rows), n_all=found.n_samples, score_names=_score_names(found)),
        list=render_examples(Selection(rows, order=state.order), links=links, state=state),
    )


async def rollout(request: Request) -> Response:
    who = await principal(request)
    hub, evaluation_id = hub_of(request), request.path_params["evaluation_id"]
    found = await run_in_threadpool(evaluations.get, hub, who, evaluation_id)
    key = _key(request)
    record = await run_in_threadpool(samples.rollout, hub, who, evaluation_id, *key)
    state = _asked(request)
    beside = await run_in_threadpool(
        samples.page, hub, who, evaluation_id, filter_text=_readable(state.query), after=f"{key[0] - 26}.0", limit=400
    )
    selection = Selection(beside.rows, order=DEFAULT_ORDER)
    links = _links(found.id)
    return page(
        request,
        "rollout.html",
        who,
        found=found,
        key=key,
        list=render_examples(selection, links=links, selected=key, state=state, is_narrow=True),
        body=render_rollout(record, links=links, place=place_of(key, selection, query=state.query, is_whole=False)),
    )


async def text(request: Request) -> Response:
    """A message that the page shows the beginning of, whole."""
    who = await principal(request)
    record = await run_in_threadpool(
        samples.rollout, hub_of(request), who, request.path_params["evaluation_id"], *_key(request)
    )
    try:
        found = whole_text(record, request.path_params["part"])
    except LookupError as error:
        raise NotFound(str(error)) from None
    return PlainTextResponse(found.encode("utf-8", "backslashreplace"))


async def compared(request: Request) -> Response:
    who = await principal(request)
    asked = request.query_params
    ids = request.path_params["evaluation_id"], request.path_params["candidate_id"]
    found = await run_in_threadpool(comparison.compare, hub_of(request), who, *ids)
    links = Links(
        rollout=_links(ids[0]).rollout,
        candidate=_links(ids[1]).rollout,
        listing=f"/evaluations/{ids[0]}/compare/{ids[1]}",
        pair=lambda example: f"/evaluations/{ids[0]}/compare/{ids[1]}/{example}",
    )
    state = ComparisonState(
        names=(found.baseline.model, found.candidate.model),
        show=asked.get("show", ""),
        page=_whole(asked.get("page", "1")),
    )
    return page(
        request, "comparison.html", who, found=found, body=render_comparison(found.comparison, links=links, state=state)
    )


async def pair(request: Request) -> Response:
    """One example of two evaluations, a try of each side by side."""
    who = await principal(request)
    hub, asked = hub_of(request), request.query_params
    ids = request.path_params["evaluation_id"], request.path_params["candidate_id"]
    example = request.path_params["example_id"]
    found = await run_in_threadpool(comparison.compare, hub, who, *ids)
    both = next((one for one in found.comparison.examples if one.example_id == example), None)
    if both is None:
        raise NotFound(f"neither evaluation has an example {example}")
    sides: list[Any] = []
    for id_, side, name in zip(ids, (both.baseline, both.candidate), ("ta", "tb"), strict=True):
        tries = () if side is None else side.tries
        wanted = _whole(asked.get(name, "0"), least=0)
        at = wanted if any(row.rollout_index == wanted for row in tries) else tries[0].rollout_index if tries else 0
        record = await run_in_threadpool(samples.rollout, hub, who, id_, example, at) if tries else None
        sides.append((record, _links(id_), tries))
    (left, left_links, left_tries), (right, right_links, right_tries) = sides
    body = render_pair(
        left,
        right,
        links=(left_links, right_links),
        names=(found.baseline.model, found.candidate.model),
        roles=("baseline", "candidate"),
        tries=(left_tries, right_tries),
    )
    return page(request, "pair.html", who, found=found, example=example, body=body)


async def change(request: Request) -> Response:
    who = await principal(request)
    hub, evaluation_id = hub_of(request), request.path_params["evaluation_id"]
    form = await fields(request)
    if form.get("do") == "delete":
        found = await run_in_threadpool(evaluations.get, hub, who, evaluation_id)
        await run_in_threadpool(evaluations.remove, hub, who, evaluation_id)
        return back_to(request, f"/{found.owner}/{found.project}/results", "the evaluation is deleted")
    await run_in_threadpool(evaluations.set_visibility, hub, who, evaluation_id, form.get("visibility", ""))
    return back_to(request, f"/evaluations/{evaluation_id}", f"it is {form.get('visibility')} now")


async def chosen(request: Request) -> Response:
    """`/compare?a=…&b=…`, which a form without JavaScript can make."""
    asked = request.query_params
    if not asked.get("a") or not asked.get("b"):
        raise BadRequest("choose two evaluations to compare")
    return back_to(request, f"/evaluations/{quote(asked['a'], safe='')}/compare/{quote(asked['b'], safe='')}")


def _links(evaluation_id: str) -> Links:
    at = f"/evaluations/{evaluation_id}"
    return Links(
        rollout=lambda example, index: f"{at}/rollouts/{example}/{index}",
        listing=at,
        whole_text=lambda example, index, part: f"{at}/rollouts/{example}/{index}/text/{quote(part, safe='')}",
        record=lambda example, index: f"/api/v1/evaluations/{evaluation_id}/rollouts/{example}/{index}",
    )


def _asked(request: Request) -> ListState:
    asked = request.query_params
    order = asked.get("sort", DEFAULT_ORDER)
    return ListState(
        query=asked.get("q", "").strip()[:2_000],
        order=order if order in ORDERS else DEFAULT_ORDER,
        page=_whole(asked.get("page", "1")),
    )


def _readable(query: str) -> str:
    """The filter, or none when it cannot be read: the list has said why."""
    try:
        parse_filter(query)
    except ValueError:
        return ""
    return query


def _score_names(found: EvaluationView) -> list[str]:
    return [score["name"] for score in found.summary.get("scores", [])]


def _key(request: Request) -> tuple[int, int]:
    return request.path_params["example_id"], request.path_params["rollout_index"]


def _whole(text: str, least: int = 1) -> int:
    return max(least, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else least


_AT = "/evaluations/{evaluation_id}"
routes: list[BaseRoute] = [
    Route("/compare", chosen, methods=["GET"]),
    Route(_AT, examples, methods=["GET"]),
    Route(f"{_AT}/change", change, methods=["POST"]),
    Route(f"{_AT}/rollouts/{{example_id:number}}/{{rollout_index:number}}", rollout, methods=["GET"]),
    Route(f"{_AT}/rollouts/{{example_id:number}}/{{rollout_index:number}}/text/{{part}}", text, methods=["GET"]),
    Route(f"{_AT}/compare/{{candidate_id}}", compared, methods=["GET"]),
    Route(f"{_AT}/compare/{{candidate_id}}/{{example_id:number}}", pair, methods=["GET"]),
]
