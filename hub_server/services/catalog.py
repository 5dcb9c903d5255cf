"""The catalogue: lists of environments, filtered, sorted, searched and paged; and what can be filtered by.

A page is reached by the sort keys of the row before it, never by counting rows over: the last page costs what the first
one does, and nothing is shown twice because something was published in between. Every sort key is something that the
list shows of the row (`cursor.py` says why).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, cast, get_args

from sqlalchemy import ColumnElement, Row, Select, case, exists, func, literal, or_, select, tuple_
from sqlalchemy.orm import Session

from hub_server.errors import BadRequest
from hub_server.hub import Hub
from hub_server.models import Account, Collaborator, Facet, Membership, Project, Release, Star
from hub_server.principal import NOBODY, Principal
from hub_server.services.access import readable
from hub_server.services.cursor import Key, read_cursor, write_cursor
from hub_server.services.search import MAX_FACET_LETTERS, Matching, matching, words

Sort = Literal["relevance", "updated", "created", "name", "stars", "downloads"]
SORTS: Final[tuple[Sort, ...]] = get_args(Sort)
MAX_LIMIT = 100
MAX_FACETS = 50  # values of a kind that are counted
MAX_TAGS = 10  # in one question
_EXACT = 1_000.0  # that the score of an environment of exactly the asked name is better by


@dataclass(frozen=True, slots=True)
class Query:
    """What a list is asked for. Empty: everything that one may see, the newest first."""

    search: str = ""
    owner: str | None = None
    tags: tuple[str, ...] = ()  # all of them
    license: str | None = None
    task_type: str | None = None
    starred: bool = False  # by whoever asks
    mine: bool = False  # that whoever asks has a role on
    sort: Sort | None = None  # None: relevance with a search, else updated
    after: str | None = None  # `next` of the page before
    limit: int = 20


@dataclass(frozen=True, slots=True)
class Card:
    """What a list says of one environment."""

    owner: str
    name: str  # as its author writes it
    normalized: str
    summary: str
    tags: tuple[str, ...]
    task_type: str
    license: str
    version: str | None  # the newest; None: nothing is published yet
    visibility: str
    status: str
    n_stars: int
    n_downloads: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Listing:
    environments: tuple[Card, ...]
    next: str | None  # for `after`; None: this is the last page


@dataclass(frozen=True, slots=True)
class FacetCount:
    value: str
    n: int


@dataclass(frozen=True, slots=True)
class Facets:
    """How many public environments there are of each kind, the most frequent first."""

    n_environments: int
    tags: tuple[FacetCount, ...]
    licenses: tuple[FacetCount, ...]
    task_types: tuple[FacetCount, ...]
    owners: tuple[FacetCount, ...]


# Lists


def environments(hub: Hub, who: Principal, query: Query) -> Listing:
    """Raises BadRequest for a sort, cursor or limit that there is not."""
    if query.sort is not None and query.sort not in SORTS:
        raise BadRequest(f"there is no sort '{query.sort}': {', '.join(SORTS)}")
    if not 1 <= query.limit <= MAX_LIMIT:
        raise BadRequest(f"limit is {query.limit}: from 1 to {MAX_LIMIT} is possible")
    if len(query.tags) > MAX_TAGS:
        raise BadRequest(f"{len(query.tags)} tags were given: up to {MAX_TAGS} are possible")
    with hub.database.read() as session:
        found = None
        if query.search.strip():
            found = matching(session, query.search, is_ranked=query.sort in (None, "relevance"))
            if found is None:
                return Listing((), None)  # punctuation only
        keys = session.execute(_page(who, query, found)).all()
        is_more = len(keys) > query.limit
        keys = keys[: query.limit]
        # The texts of a page's rows only: sorting ten thousand rows with their texts takes ten times as long.
        rows = session.execute(cards().where(Project.id.in_([key.id for key in keys])))
        by_id = {row.id: as_card(row) for row in rows}
    sort = _sort_of(query, found)
    return Listing(tuple(by_id[key.id] for key in keys), write_cursor(sort, keys[-1][1:]) if is_more else None)


def cards() -> Select[*tuple[Any, ...]]:
    """Selects what `as_card` reads; to be narrowed to a few projects."""
    return (
        select(
            Project.id, Account.name.label("owner"), Project.name, Project.normalized, Project.summary, Project.tags,
            Project.task_type, Release.license, Release.version, Project.visibility, Project.status, Project.n_stars,
            Project.n_downloads, Project.created_at, Project.updated_at,
        )
        .join(Account, Account.id == Project.owner_id)
        .outerjoin(Release, Release.id == Project.latest_release_id)
    )  # fmt: skip


def as_card(row: Row[Any]) -> Card:
    return Card(
        owner=row.owner,
        name=row.name,
        normalized=row.normalized,
        summary=row.summary,
        tags=tuple(row.tags),
        task_type=row.task_type,
        license=(row.license or "").strip().partition("\n")[0][:MAX_FACET_LETTERS],
        version=row.version,
        visibility=row.visibility,
        status=row.status,
        n_stars=row.n_stars,
        n_downloads=row.n_downloads,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _page(who: Principal, query: Query, found: Matching | None) -> Select[*tuple[Any, ...]]:
    """Selects the id and the sort keys of one row more than a page has."""
    sort = _sort_of(query, found)
    order = _relevance(query, found) if sort == "relevance" and found is not None else _ORDERS[sort]
    keys = [key.label(f"key_{number}") for number, key in enumerate(order.keys)]
    rows = select(Project.id, *keys).where(readable(who), *_filters(who, query))
    if found is not None:
        rows = rows.join(found.table, found.table.c.project_id == Project.id)
    if query.after is not None:
        values = read_cursor(query.after, sort, order.kinds)
        here = tuple_(*order.keys)
        last = tuple_(*[literal(value, key.type) for value, key in zip(values, order.keys, strict=True)])
        rows = rows.where(here > last if order.is_rising else here < last)
    return rows.order_by(*[key.asc() if order.is_rising else key.desc() for key in keys]).limit(query.limit + 1)


@dataclass(frozen=True, slots=True)
class _Order:
    """By the first key, then by the second …; together they tell any two environments apart."""

    keys: tuple[ColumnElement[Any], ...]
    kinds: tuple[type[Key], ...]
    is_rising: bool = False


# Two that were made in one microsecond have different names; the models have an index for each.
_MADE: Final[tuple[Any, Any]] = (Project.created_at, Project.normalized)
_ORDERS: Final[dict[str, _Order]] = {
    "updated": _Order((cast("Any", Project.updated_at), *_MADE), (datetime, datetime, str)),
    "created": _Order(_MADE, (datetime, str)),
    "name": _Order(_MADE[::-1], (str, datetime), is_rising=True),
    "stars": _Order((cast("Any", Project.n_stars), *_MADE), (int, datetime, str)),
    "downloads": _Order((cast("Any", Project.n_downloads), *_MADE), (int, datetime, str)),
}


def _relevance(query: Query, found: Matching) -> _Order:
    """By score; of equal ones, of which SQLite has many, that which more people starred."""
    score = cast("ColumnElement[float]", found.table.c.score)
    # An environment is looked for by its name more often than by anything else.
    named = Project.normalized == "-".join(words(query.search)[:12])
    best = score - case((named, _EXACT), else_=0.0)
    return _Order((best, -Project.n_stars, *_MADE), (float, int, datetime, str), is_rising=True)


def _sort_of(query: Query, found: Matching | None) -> Sort:
    if query.sort is None or (query.sort == "relevance" and found is None):
        return "updated" if found is None else "relevance"
    return query.sort


def _filters(who: Principal, query: Query) -> list[ColumnElement[bool]]:
    filters: list[ColumnElement[bool]] = []
    if query.owner is not None:
        owner_id = select(Account.id).where(Account.name == query.owner.lower()).scalar_subquery()
        filters.append(Project.owner_id == owner_id)
    facets = [("tag", tag) for tag in query.tags]
    facets += [("license", query.license)] if query.license else []
    facets += [("task_type", query.task_type)] if query.task_type else []
    for kind, value in facets:
        of_kind = select(Facet.project_id).where(Facet.kind == kind, Facet.value == value[:MAX_FACET_LETTERS])
        filters.append(Project.id.in_(of_kind))
    if query.starred:
        filters.append(exists().where(Star.project_id == Project.id, Star.user_id == who.user_id))
    if query.mine:
        filters.append(
            or_(
                Project.owner_id == who.user_id,
                Project.owner_id.in_(select(Membership.organisation_id).where(Membership.user_id == who.user_id)),
                Project.id.in_(select(Collaborator.project_id).where(Collaborator.user_id == who.user_id)),
            )
        )
    return filters


# Facets


def facets(hub: Hub) -> Facets:
    """Counted over all public environments, and held until something is published or changed."""
    return cast("Facets", hub.catalog.get("facets", lambda: _count_facets(hub)))


def _count_facets(hub: Hub) -> Facets:
    public = readable(NOBODY)
    with hub.database.read() as session:
        n_environments = session.scalar(select(func.count()).select_from(Project).where(public)) or 0
        kinds = {kind: _counted(session, kind, public) for kind in ("tag", "license", "task_type")}
        n = func.count()
        owners = session.execute(
            select(Account.name, n)
            .join(Project, Project.owner_id == Account.id)
            .where(public)
            .group_by(Account.name)
            .order_by(n.desc(), Account.name)
            .limit(MAX_FACETS)
        )
        by_owner = tuple(FacetCount(name, count) for name, count in owners)
    return Facets(n_environments, kinds["tag"], kinds["license"], kinds["task_type"], by_owner)


def _counted(session: Session, kind: str, public: ColumnElement[bool]) -> tuple[FacetCount, ...]:
    n = func.count()
    rows = session.execute(
        select(Facet.value, n)
        .join(Project, Project.id == Facet.project_id)
        .where(Facet.kind == kind, public)
        .group_by(Facet.value)
        .order_by(n.desc(), Facet.value)
        .limit(MAX_FACETS)
    )
    return tuple(FacetCount(value, count) for value, count in rows)
