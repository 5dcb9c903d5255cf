"""The front page and the search: cards of environments, and what they can be narrowed down by."""

from __future__ import annotations

from dataclasses import replace
from typing import cast, get_args

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hub_server.http import hub_of, principal
from hub_server.services import catalog
from hub_server.services.catalog import Query, Sort
from hub_server.web.pages import fragment, is_htmx, page

SHOWN_FACETS = 12
SORT_NAMES = {
    "updated": "newest",
    "stars": "stars",
    "downloads": "downloads",
    "name": "name",
    "created": "first published",
}


async def home(request: Request) -> Response:
    """`/` and `/search`. htmx asks for the list alone while somebody types."""
    who = await principal(request)
    hub = hub_of(request)
    query = _query(request)
    listing = await run_in_threadpool(catalog.environments, hub, who, query)
    if is_htmx(request):
        return fragment(
            request, "home.html", "results", who, listing=listing, query=query, next_url=_next(request, listing)
        )
    facets = await run_in_threadpool(catalog.facets, hub)
    return page(
        request,
        "home.html",
        who,
        listing=listing,
        query=query,
        facets=facets,
        sorts=SORT_NAMES,
        next_url=_next(request, listing),
        n_shown_facets=SHOWN_FACETS,
        is_filtered=query != replace(Query(), sort=query.sort, after=query.after),
    )


def _query(request: Request) -> Query:
    asked = request.query_params
    sort = asked.get("sort", "")
    return Query(
        search=asked.get("q", "")[:2_000],
        owner=asked.get("owner") or None,
        tags=tuple(tag for tag in asked.getlist("tag") if tag)[:10],
        license=asked.get("license") or None,
        task_type=asked.get("task_type") or None,
        starred=bool(asked.get("starred")),
        mine=bool(asked.get("mine")),
        sort=cast("Sort", sort) if sort in get_args(Sort) else None,
        after=asked.get("after") or None,
        limit=20,
    )


def _next(request: Request, listing: catalog.Listing) -> str | None:
    if listing.next is None:
        return None
    return "/search?" + str(request.url.include_query_params(after=listing.next).query)


routes: list[BaseRoute] = [Route("/", home, methods=["GET"]), Route("/search", home, methods=["GET"])]
