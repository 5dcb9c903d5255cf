"""`Links`: the addresses that a page of the viewer leads to, filled in by whoever serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

Key = tuple[int, int]  # example_id, rollout_index


@dataclass(frozen=True, kw_only=True)
class Links:
    """Addresses of one run, or of two that are compared.

    >>> links = Links(rollout=lambda example_id, try_: f"/run/{example_id}/{try_}", listing="/run")
    >>> links.list_url(q="reward<1", page="2")
    '/run?q=reward%3C1&page=2'
    """

    rollout: Callable[[int, int], str]  # (example_id, rollout_index) → page of one rollout; of the baseline if compared
    listing: str  # the page itself: where the filter form goes by GET with `q`, `sort`, `show`, `page`
    whole_text: Callable[[int, int, str], str] | None = None  # … and the name of a part → that part as plain text
    record: Callable[[int, int], str] | None = None  # → the record as JSON
    candidate: Callable[[int, int], str] | None = None  # as `rollout`, of the other run
    pair: Callable[[int], str] | None = None  # example_id → its tries of both runs side by side
    beside: Callable[[int, int, int], str] | None = None  # (example_id, try, other try) → both side by side
    kept: Mapping[str, str] = field(default_factory=dict[str, str])  # query fields that every link to `listing` keeps

    def list_url(self, **query: str | None) -> str:
        """The list with these query fields; empty ones are left out."""
        return with_query(self.listing, {**self.kept, **query})

    def rollout_url(self, key: Key, **query: str | None) -> str:
        """A rollout's page that remembers the list it was reached from."""
        return with_query(self.rollout(*key), query)


def with_query(url: str, query: Mapping[str, str | None]) -> str:
    given = {name: value for name, value in query.items() if value}
    if not given:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(given, errors='replace')}"
