"""`as_client`: a `Client` from whatever an author or trainer passed as one.

Clients for the same server are shared within an event loop, so that evaluating twice does not connect twice.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from typing import Any

from verifiers.clients.client import Client
from verifiers.clients.endpoint import ClientConfig, DialectName, Endpoint
from verifiers.clients.http import HTTPClient
from verifiers.types import MessageType


def as_client(source: Any = None, *, message_type: MessageType = "chat", model: str | None = None) -> Client:
    """A client of ours as it is; a description as a shared `HTTPClient`; somebody else's client, called as it is.

    A description is a `ClientConfig`, an `Endpoint`, a URL, or an `AsyncOpenAI` or `OpenAI` of the stock kind; one
    that was patched, subclassed or given a transport of its own is called instead. `None` is what `OPENAI_BASE_URL` and
    `OPENAI_API_KEY` say. `model` is only named in error messages. Raises ConfigError for anything else.
    """
    if isinstance(source, HTTPClient):
        return source.speaking("completions") if message_type == "completion" else source
    if isinstance(source, Client) and not _is_mock(source):
        return source
    memo = _memo()
    if memo is not None and (known := memo.recall(source, message_type)) is not None:
        return known
    if _must_be_called(source):
        from verifiers.clients.foreign import ForeignClient

        client: Client = ForeignClient(source, message_type=message_type)
    else:
        client = _shared(Endpoint.of(source), message_type, memo)
    if memo is not None:
        memo.remember(source, message_type, client)
    return client


class OpenAIChatCompletionsClient(HTTPClient):
    """The classic name for an `HTTPClient` that speaks chat completions."""

    speaks: DialectName = "chat"

    def __init__(self, source: Any = None) -> None:
        super().__init__(Endpoint.of(source), dialect=self.speaks)


class OpenAICompletionsClient(OpenAIChatCompletionsClient):
    """The classic name for one that speaks completions."""

    speaks = "completions"


class OpenAIChatCompletionsTokenClient(OpenAIChatCompletionsClient):
    """The classic name for one that speaks token-in/token-out."""

    speaks = "tokens"


class _Memo:
    """What was adopted in one event loop. Forgotten when the loop ends."""

    def __init__(self) -> None:
        self.by_endpoint: dict[Endpoint, HTTPClient] = {}
        self._by_object: weakref.WeakKeyDictionary[Any, dict[str, tuple[Any, Client]]] = weakref.WeakKeyDictionary()

    def recall(self, source: Any, message_type: str) -> Client | None:
        try:
            found = self._by_object.get(source, {}).get(message_type)
        except TypeError:  # unhashable, or cannot be referred to weakly
            return None
        return found[1] if found is not None and found[0] == _mark(source) else None

    def remember(self, source: Any, message_type: str, client: Client) -> None:
        try:
            self._by_object.setdefault(source, {})[message_type] = (_mark(source), client)
        except TypeError:
            pass


_memos: dict[asyncio.AbstractEventLoop, tuple[_Memo, AsyncGenerator[None, None]]] = {}


def _memo() -> _Memo | None:
    """That of the running loop; `None` outside of one."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    if loop not in _memos:
        for old in [old for old in _memos if old.is_closed()]:
            del _memos[old]
        keeper = _forget_with_loop(loop)
        _memos[loop] = (_Memo(), keeper)
        try:
            keeper.__anext__().__await__().send(None)  # runs to its `yield`
        except StopIteration:
            pass
    return _memos[loop][0]


async def _forget_with_loop(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
    """The loop finishes its generators before it closes."""
    try:
        yield
    finally:
        _memos.pop(loop, None)


def _shared(endpoint: Endpoint, message_type: MessageType, memo: _Memo | None) -> HTTPClient:
    client = memo.by_endpoint.get(endpoint) if memo is not None else None
    if client is None:
        client = HTTPClient(endpoint)
        if memo is not None:
            memo.by_endpoint[endpoint] = client
    return client.speaking("completions") if message_type == "completion" else client


def _mark(source: Any) -> tuple[str, Any] | None:
    """What may have been changed on a client since it was adopted."""
    if hasattr(source, "base_url"):
        return str(source.base_url), getattr(source, "api_key", None)
    return None


def _is_mock(source: Any) -> bool:
    """A mock object has every method, ours too; what its author set up is `chat.completions.create`."""
    return type(source).__module__ == "unittest.mock"


def _must_be_called(source: Any) -> bool:
    """A client that somebody wrote, or an OpenAI one that does more than its description says."""
    if source is None or isinstance(source, (Endpoint, ClientConfig, dict, str)):
        return False
    kind = type(source)
    if not kind.__module__.startswith("openai") or kind.__name__ not in ("AsyncOpenAI", "OpenAI"):
        return hasattr(getattr(getattr(source, "chat", None), "completions", None), "create")
    if not isinstance(source.api_key, str) or getattr(source, "_api_key_provider", None) is not None:
        return True  # a key that is fetched anew for each request
    chat = vars(source).get("chat")  # made when it is first touched, so a patched one is here
    if chat is not None and (type(chat).__module__.split(".")[0] != "openai" or "create" in vars(chat.completions)):
        return True
    transport = getattr(getattr(source, "_client", None), "_transport", None)
    return transport is not None and type(transport).__name__ not in ("AsyncHTTPTransport", "HTTPTransport")
