"""`Serper`: Google's results by the API of Serper, or of a server of one's own that speaks it; pages from the web."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
from yarl import URL

from deep_research.provider import Document, Hit, PageError, ProviderFault, RateLimited, Refused, Unavailable
from deep_research.web_pages import WebPages, read_bounded
from verifiers.clients.retry import retry_after_s

SERPER_URL = "https://google.serper.dev/search"
MOST_BYTES = 2_000_000  # of an answer


@dataclass(frozen=True, slots=True)
class SearchService:
    """Where to search and how long to try. `key` is shown nowhere."""

    key: str = field(repr=False)
    url: str = SERPER_URL
    results: int = 10
    timeout_s: float = 30.0  # of one try
    tries: int = 4
    pause_s: float = 1.0  # before the second try; doubled for each further one
    longest_pause_s: float = 60.0  # a service that asks for more is given up at once


class Serper:
    """One for each rollout. Tries again after 429, 5xx, time-outs, broken connections and answers that are none."""

    def __init__(self, service: SearchService, pages: WebPages) -> None:
        self.service = service
        self.pages = pages
        self._session: aiohttp.ClientSession | None = None

    async def search(self, query: str) -> list[Hit]:
        tries = self.service.tries
        for tried in range(1, tries + 1):
            try:
                return self._hits(await self._asked(query))
            except _TryAgain as failed:
                pause_s = self._pause_s(failed, tried)
                if tried == tries or pause_s > self.service.longest_pause_s:
                    waits = f", asks to wait {failed.after_s:.0f} s" if failed.after_s else ""
                    raise failed.kind(f"{failed}{waits}, {tried} of {tries} tries") from None
                await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    async def open(self, url: str) -> Document:
        return await self.pages.open(url)

    async def close(self) -> None:
        await self.pages.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _pause_s(self, failed: _TryAgain, tried: int) -> float:
        backed_off = self.service.pause_s * 2 ** (tried - 1) * random.uniform(0.5, 1.0)
        return max(backed_off, failed.after_s or 0.0)

    async def _asked(self, query: str) -> dict[str, Any]:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self.service.timeout_s)
            self._session = aiohttp.ClientSession(timeout=timeout, headers={"X-API-KEY": self.service.key})
        body = {"q": query, "num": self.service.results}
        try:
            async with self._session.post(self.service.url, json=body, allow_redirects=False) as response:
                return _answer(response.status, response.headers, await read_bounded(response, MOST_BYTES))
        except TimeoutError:
            raise _TryAgain(Unavailable, f"no answer within {self.service.timeout_s:g} s") from None
        except aiohttp.ClientError as error:
            raise _TryAgain(Unavailable, f"no connection: {type(error).__name__}") from error

    def _hits(self, answer: dict[str, Any]) -> list[Hit]:
        organic = answer.get("organic", [])
        if not isinstance(organic, list):
            raise _TryAgain(Unavailable, "the answer has no list of results")
        hits: list[Hit] = []
        for one in cast("list[Any]", organic):
            if isinstance(one, Mapping):
                found = cast("Mapping[str, Any]", one)
                link = str(found.get("link") or "")
                if link and not self._is_blocked(link):
                    hits.append(Hit(_line(found.get("title")) or link, link, _line(found.get("snippet"))))
        return hits[: self.service.results]

    def _is_blocked(self, link: str) -> bool:
        try:
            return self.pages.is_blocked(URL(link))
        except ValueError:
            return True


class _TryAgain(Exception):
    """One try failed; `kind` is what it becomes when it was the last."""

    def __init__(self, kind: type[ProviderFault], text: str, after_s: float | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.after_s = after_s


def _answer(status: int, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
    """The answer of the service, read. Raises what its status means."""
    message = _message(raw)
    told = f"HTTP {status}{f' ({message})' if message else ''}"
    if status == 429:
        raise _TryAgain(RateLimited, told, retry_after_s(headers))
    if status >= 500 or status == 408:
        raise _TryAgain(Unavailable, told, retry_after_s(headers))
    if status in (401, 402, 403) or (status == 400 and "credit" in message.lower()):
        raise Refused(f"{told}: is the key right, and has it credits left?")
    if status in (400, 413, 414, 422):
        raise PageError(f"the search service does not take this query: {told}")
    if status != 200:
        raise Refused(f"{told}: is the address of the service right?")
    try:
        answer = json.loads(raw)
    except ValueError:
        raise _TryAgain(Unavailable, "the answer is no JSON") from None
    if not isinstance(answer, dict):
        raise _TryAgain(Unavailable, "the answer is no JSON object")
    return cast("dict[str, Any]", answer)


def _message(raw: bytes) -> str:
    try:
        found = json.loads(raw)
    except ValueError:
        return ""
    return _line(cast("dict[str, Any]", found).get("message"))[:200] if isinstance(found, dict) else ""


def _line(value: Any) -> str:
    return " ".join(str(value or "").split())[:500]
