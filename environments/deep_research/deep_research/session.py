"""`Research`: what one rollout has searched and read, and what failed on the way."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from deep_research.provider import Document, Hit, PageError, ProviderFault, Refused, SearchProvider

T = TypeVar("T")

MOST_FAULTS = 3  # in a row; then the service is held to be down
QUERY_CHARS = 400
PASSAGE_CHARS = 200  # on either side of what was found
MOST_PASSAGES = 8
MOST_DOCUMENTS = 20  # that are kept to be read on in; the oldest goes


class SearchDown(ProviderFault):
    """The service failed until there was no use in going on; the rollout is unscored."""


@dataclass(slots=True)
class Research:
    """Made by `setup_state`, changed by the tools, read by the metrics."""

    provider: SearchProvider
    page_chars: int
    hits: list[Hit] = field(default_factory=list[Hit])  # of the last search
    documents: dict[str, Document] = field(default_factory=dict[str, Document])  # by address, the last one opened last
    faults: int = 0
    faults_in_a_row: int = 0
    last_fault: str = ""
    page_errors: int = 0

    async def ask(self, work: Awaitable[T]) -> T:
        """What the provider gives, with its failures counted. Raises SearchDown when it is held to be down."""
        try:
            result = await work
        except PageError:
            self.page_errors += 1
            raise
        except ProviderFault as fault:
            self.faults += 1
            self.faults_in_a_row += 1
            self.last_fault = f"{type(fault).__name__}: {fault}"
            if isinstance(fault, Refused) or self.faults_in_a_row >= MOST_FAULTS:
                raise SearchDown(self.why_stopped) from fault
            raise
        self.faults_in_a_row = 0
        return result

    @property
    def why_stopped(self) -> str:
        """Why a rollout that ends now says nothing about the model; empty when it does."""
        if not self.faults_in_a_row:
            return ""
        times = "once" if self.faults_in_a_row == 1 else f"{self.faults_in_a_row} times in a row"
        return f"the search service failed {times} and did not come back before the end; last: {self.last_fault}"

    async def document(self, target: str) -> Document:
        """The document at an address, behind the number of a result of the last search, or behind a link such as L3."""
        url = self._address(target)
        document = self.documents.pop(url, None)
        if document is None:
            document = await self.ask(self.provider.open(url))
        self.documents[url] = document  # the last one is the one that is read
        while len(self.documents) > MOST_DOCUMENTS:
            del self.documents[next(iter(self.documents))]
        return document

    def _address(self, target: str) -> str:
        target = target.strip()
        if link := re.fullmatch(r"\[?[Ll]([0-9]{1,5})\]?", target):
            links = self.being_read.links
            if not 1 <= int(link[1]) <= len(links):
                raise PageError(f"there is no link L{link[1]}: {self.being_read.title} has {len(links)} links")
            return links[int(link[1]) - 1]
        number = re.fullmatch(r"[\[(#]?([0-9]{1,3})[\])]?", target)
        if number is None:
            return target
        index = int(number[1])
        if not 1 <= index <= len(self.hits):
            has = f"results 1 to {len(self.hits)}" if self.hits else "no results; search first"
            raise PageError(f"there is no result {index}: the last search gave {has}")
        return self.hits[index - 1].url

    @property
    def being_read(self) -> Document:
        if not self.documents:
            raise PageError("no page is open: open one first")
        return next(reversed(self.documents.values()))


def query_of(text: str) -> str:
    """What is asked of the service: one line, not too long. Raises PageError when nothing is left."""
    query = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:QUERY_CHARS]
    if not query:
        raise PageError("the query is empty")
    return query


def shown_page(document: Document, page: int, page_chars: int) -> str:
    """One part of a document with what is to be known to read on. Raises PageError naming the parts there are."""
    pages = max(1, -(-len(document.text) // page_chars))
    if not 1 <= page <= pages:
        raise PageError(f"{document.url} has pages 1 to {pages}, not {page}")
    start = (page - 1) * page_chars
    head = f"{document.title}\n{document.url}\nPage {page} of {pages}, {len(document.text):,} characters in all"
    return f"{head}\n\n{document.text[start : start + page_chars] or '(the page has no text)'}"


def passages(document: Document, text: str, page_chars: int) -> str:
    """Where a document has the words of `text`: the phrase itself, else every place with all its words together.

    Case and the length of spaces make no difference.
    """
    words = text.split()
    if not words:
        raise PageError("the text to look for is empty")
    phrase = re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE)
    spans = [match.span() for match in phrase.finditer(document.text)]
    how = "found" if spans else "the phrase is not there, but its words are"
    spans = spans or _places_with_all(document.text, words)
    if not spans:
        return f"{text[:80]!r} is not in {document.title} ({document.url}). Try fewer or other words."
    shown = [_passage(document.text, span, page_chars) for span in _apart(spans)[:MOST_PASSAGES]]
    more = f"\n({len(spans)} places in all)" if len(spans) > len(shown) else ""
    return f"{text[:80]!r} in {document.title}, {how}:\n" + "\n".join(shown) + more


def _places_with_all(text: str, words: list[str]) -> list[tuple[int, int]]:
    """Paragraphs that hold every one of the words."""
    wanted = [word.casefold() for word in words]
    paragraphs = [match.span() for match in re.finditer(r"[^\n]+", text)]
    return [(a, min(b, a + 1)) for a, b in paragraphs if all(word in text[a:b].casefold() for word in wanted)]


def _apart(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without those that the passage of the one before shows too."""
    kept: list[tuple[int, int]] = []
    for span in spans:
        if not kept or span[0] > kept[-1][1] + PASSAGE_CHARS:
            kept.append(span)
    return kept


def _passage(text: str, span: tuple[int, int], page_chars: int) -> str:
    start, end = max(0, span[0] - PASSAGE_CHARS), min(len(text), span[1] + 2 * PASSAGE_CHARS)
    page = span[0] // page_chars + 1
    return f"- page {page}, character {span[0]:,}: …{' '.join(text[start:end].split())}…"
