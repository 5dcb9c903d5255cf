"""`WebPages`: fetches a page of the web and gives its text. Bounded in time and size; see `addresses` for what it may
ask."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Sequence

import aiohttp
from yarl import URL

from deep_research.addresses import AddressGuard
from deep_research.html_text import read_html
from deep_research.provider import Document, PageError

MOST_BYTES = 2_000_000  # of a page, decompressed
MOST_CHARS = 200_000  # of its text
MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE)
_AGENT = "Mozilla/5.0 (compatible; verifiers deep-research)"


class WebPages:
    """Opens no connection before the first page; belongs to one event loop. `blocked` are hosts, with all below them.

    Whatever is wrong with a page is a PageError. An environment's proxy is not used: it would look names up itself.
    """

    def __init__(self, guard: AddressGuard, blocked: Sequence[str] = (), timeout_s: float = 30.0) -> None:
        self.guard = guard
        self.blocked = tuple(blocked)
        self.timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def open(self, address: str) -> Document:
        url = self.guard.check(address)
        try:
            async with asyncio.timeout(self.timeout_s):
                for _ in range(MOST_REDIRECTS + 1):
                    self.refuse_blocked(url)
                    found = await self._fetched(url)
                    if isinstance(found, Document):
                        return found
                    url = found
        except TimeoutError:
            raise PageError(f"{url.host} did not answer within {self.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise PageError(f"{url.host} cannot be reached: {type(error).__name__}") from error
        raise PageError(f"{url.host} redirects more than {MOST_REDIRECTS} times")

    def refuse_blocked(self, url: URL) -> None:
        if self.is_blocked(url):
            raise PageError(f"{url.host} is left out of this research")

    def is_blocked(self, url: URL) -> bool:
        host = (url.host or "").lower().rstrip(".")
        return any(host == name or host.endswith(f".{name}") for name in self.blocked)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _fetched(self, url: URL) -> Document | URL:
        """The page, or where it has gone."""
        async with self._connected().get(url, allow_redirects=False) as response:
            if response.status in _REDIRECTS and "Location" in response.headers:
                return self.guard.check(str(url.join(URL(response.headers["Location"]))))
            if response.status != 200:
                raise PageError(f"{url.host} answers {response.status} {response.reason or ''}".strip())
            kind = response.content_type
            if not kind.startswith("text/") and not kind.endswith(("json", "xml")):
                raise PageError(f"{url} is {kind}, which cannot be read here")
            raw = await read_bounded(response, MOST_BYTES)
            charset = response.charset
        return await asyncio.to_thread(_document, url, kind, raw, charset)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            # each connection is made to the addresses that were looked at: no cache, no other resolver
            connector = aiohttp.TCPConnector(
                resolver=self.guard, use_dns_cache=False, socket_factory=self.guard.socket_for, limit=8
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": _AGENT, "Accept": "text/html,text/plain;q=0.9,*/*;q=0.1"},
                timeout=aiohttp.ClientTimeout(total=None, connect=10.0),
                trust_env=False,
            )
        return self._session


async def read_bounded(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """The first bytes of a body; what follows is not waited for."""
    read = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        read += chunk
        if len(read) >= most_bytes:
            break
    return bytes(read[:most_bytes])


def _document(url: URL, kind: str, raw: bytes, charset: str | None) -> Document:
    if charset is None and (declared := _CHARSET.search(raw[:2_000])):
        charset = declared[1].decode("ascii", "replace")
    text = raw.decode(_known(charset), "replace")
    if "html" in kind:
        return read_html(text, str(url), MOST_CHARS)
    return Document(str(url), str(url), text[:MOST_CHARS])


def _known(charset: str | None) -> str:
    """A charset that Python has; UTF-8 in place of any other."""
    try:
        return codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
