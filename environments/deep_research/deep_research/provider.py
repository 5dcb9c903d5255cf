"""`SearchProvider`: where search results and pages come from, and the ways in which it can fail.

ProviderFault (vf.ToolError)    the service failed; nothing that the model asked is wrong
├── RateLimited                 too many requests, also after every retry
├── Unavailable                 no answer, an answer of the 5xx, or one that is none
└── Refused                     the key is not taken or its quota is used up: hopeless for the whole rollout
PageError                       this page cannot be had, this query cannot be asked; the model may try another
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import verifiers as vf


class ProviderFault(vf.ToolError):
    """Told to the model as what it is; a rollout that it stopped is unscored."""


class RateLimited(ProviderFault):
    pass


class Unavailable(ProviderFault):
    pass


class Refused(ProviderFault):
    pass


class PageError(Exception):
    """Part of research, not a fault: pages are gone, forbidden, too large, or no pages."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Document:
    """A page as text, whole: it is shown and searched in parts."""

    url: str
    title: str
    text: str
    links: tuple[str, ...] = ()  # addresses of what the text marks as [L1], [L2] …


class SearchProvider(Protocol):
    """What the tools ask. One is made for each rollout and closed with it; several may share an index."""

    async def search(self, query: str) -> list[Hit]:
        """Results, best first; an empty list is an answer. Raises ProviderFault or PageError."""
        ...

    async def open(self, url: str) -> Document:
        """The page at an address. Raises ProviderFault or PageError."""
        ...

    async def close(self) -> None: ...
