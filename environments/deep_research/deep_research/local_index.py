"""`LocalIndex`: a search provider over pages held in memory, ranked by BM25. It needs no network and never fails."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from deep_research.provider import Document, Hit, PageError

SNIPPET_CHARS = 240
_WORD = re.compile(r"\w+")


class LocalIndex:
    """Shared by all rollouts that ask it: nothing in it changes.

    >>> import asyncio
    >>> index = LocalIndex([Document("a", "River Lora", "It is long."), Document("b", "Oak", "A tree by the river.")])
    >>> [hit.title for hit in asyncio.run(index.search("tree"))]
    ['Oak']
    """

    def __init__(self, pages: Sequence[Document], results: int = 10) -> None:
        # loads NumPy and, where it is installed, SciPy
        from bm25s import BM25  # pyright: ignore[reportMissingTypeStubs]

        self.pages = list(pages)
        self.results = results
        self._by_url = {page.url: page for page in self.pages}
        terms = [_terms(f"{page.title} {page.title} {page.text}") for page in self.pages]
        self._known = {term for of_page in terms for term in of_page}
        self._ranking: Any = BM25()
        self._ranking.index(terms, show_progress=False)

    async def search(self, query: str) -> list[Hit]:
        """Pages that hold a word of the query, best first; of equals the one that was given first."""
        terms = [term for term in _terms(query) if term in self._known]
        if not terms:
            return []
        scores = self._ranking.get_scores(terms)
        order = sorted(range(len(self.pages)), key=lambda number: (-float(scores[number]), number))
        found = [self.pages[number] for number in order[: self.results] if scores[number] > 0]
        return [Hit(page.title, page.url, _snippet(page.text, set(terms))) for page in found]

    async def open(self, url: str) -> Document:
        page = self._by_url.get(url)
        if page is None:
            raise PageError(f"there is no page {url[:200]!r}. Open one of the addresses that search gives")
        return page

    async def close(self) -> None:
        pass


def _terms(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.casefold()) if word not in _STOP_WORDS]


def _snippet(text: str, terms: set[str]) -> str:
    """The part of the text that starts at the sentence with the most of the terms behind it."""
    places = [(word.start(), word[0].casefold()) for word in _WORD.finditer(text)]
    places = [(place, word) for place, word in places if word in terms]
    starts = [0, *(match.end() for match in re.finditer(r"[.!?]\s+|\n+", text))]

    def held(start: int) -> int:
        return len({word for place, word in places if start <= place < start + SNIPPET_CHARS})

    start = max(starts, key=held)  # the first of equals
    shown = " ".join(text[start : start + SNIPPET_CHARS].split())
    return f"{'… ' if start else ''}{shown}{' …' if start + SNIPPET_CHARS < len(text) else ''}"


_STOP_WORDS = frozenset({
    "a", "an", "and", "are", "as", "at", "by", "for", "from", "has", "in", "is", "it", "its", "not", "of", "on", "or",
    "that", "the", "this", "to", "was", "were", "what", "which", "who", "with",
})  # fmt: skip
