"""`resolve_client`: the client of a description, by its classic class and with `client`, an `AsyncOpenAI`."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from verifiers.clients import Endpoint
from verifiers.clients.adopt import (
    OpenAIChatCompletionsClient,
    OpenAIChatCompletionsTokenClient,
    OpenAICompletionsClient,
    as_client,
)
from verifiers.clients.http import HTTPClient
from verifiers.compat.functions import setup_openai_client


class _Opened(HTTPClient):
    @cached_property
    def client(self) -> Any:
        """For code that calls the server itself."""
        return setup_openai_client(self.endpoint)


class _Chat(_Opened, OpenAIChatCompletionsClient):
    pass


class _Completions(_Opened, OpenAICompletionsClient):
    pass


class _Tokens(_Opened, OpenAIChatCompletionsTokenClient):
    pass


_KINDS = {"chat": _Chat, "completions": _Completions, "tokens": _Tokens}


def resolve_client(source: Any) -> Any:
    """A client as it is; of a description, a new one. Raises ConfigError for what describes none."""
    if hasattr(source, "complete") or hasattr(source, "chat"):
        return as_client(source)
    endpoint = Endpoint.of(source)
    return _KINDS[endpoint.dialect](endpoint)
