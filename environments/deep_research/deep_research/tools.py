"""The tools that the model calls. `research` is hidden from it and filled in by the environment."""

from __future__ import annotations

from deep_research.provider import PageError
from deep_research.session import Research, passages, query_of, shown_page


async def search(query: str, research: Research) -> str:
    """Search for pages. Gives numbered results with title, address and a snippet.

    Args:
        query: a few words, as for a search engine
    """
    research.hits = await research.ask(research.provider.search(query_of(str(query))))
    if not research.hits:
        return "No results. Try fewer or other words."
    return "\n".join(f"{n}. {hit.title}\n   {hit.url}\n   {hit.snippet}" for n, hit in enumerate(research.hits, 1))


async def open(target: str, research: Research, page: int = 1) -> str:
    """Open a page and read it. Long pages come in parts.

    Args:
        target: the number of a result of the last search, a link of the page read last such as L3, or an address
        page: which part of a long page, from 1
    """
    try:
        part = int(page)  # models also write it as text
    except (TypeError, ValueError):
        raise PageError(f"page takes a whole number, not {page!r:.40}") from None
    return shown_page(await research.document(str(target)), part, research.page_chars)


async def find(text: str, research: Research, target: str = "") -> str:
    """Find words in a page, with the passages around them and where they stand.

    Args:
        text: the words to look for
        target: the number of a result or an address; left out, the page opened last
    """
    document = await research.document(str(target)) if str(target).strip() else research.being_read
    return passages(document, str(text), research.page_chars)


async def finish(answer: str) -> str:
    """Give the final answer. Ends the research.

    Args:
        answer: the answer alone, without explanation
    """
    raise PageError("the answer is empty")  # one that is not empty ends the rollout before this is called
