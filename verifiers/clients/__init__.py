"""Ways to a model: the `Client` interface, the HTTP client, and one that follows a script.

Names are loaded when they are first touched; aiohttp when a request is first sent.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Client": "client",
    "ModelRequest": "client",
    "ClientConfig": "endpoint",
    "Endpoint": "endpoint",
    "EndpointClientConfig": "endpoint",
    "HTTPClient": "http",
    "RetryPolicy": "retry",
    "ScriptedClient": "scripted",
    "LocalModel": "local",
    "OpenAIChatCompletionsClient": "adopt",
    "OpenAIChatCompletionsTokenClient": "adopt",
    "OpenAICompletionsClient": "adopt",
    "as_client": "adopt",
    "list_models": "models",
}

__all__ = [
    "Client",
    "ClientConfig",
    "Endpoint",
    "EndpointClientConfig",
    "HTTPClient",
    "LocalModel",
    "ModelRequest",
    "OpenAIChatCompletionsClient",
    "OpenAIChatCompletionsTokenClient",
    "OpenAICompletionsClient",
    "RetryPolicy",
    "ScriptedClient",
    "as_client",
    "list_models",
]

if TYPE_CHECKING:
    from verifiers.clients.adopt import (
        OpenAIChatCompletionsClient,
        OpenAIChatCompletionsTokenClient,
        OpenAICompletionsClient,
        as_client,
    )
    from verifiers.clients.client import Client, ModelRequest
    from verifiers.clients.endpoint import ClientConfig, Endpoint, EndpointClientConfig
    from verifiers.clients.http import HTTPClient
    from verifiers.clients.local import LocalModel
    from verifiers.clients.models import list_models
    from verifiers.clients.retry import RetryPolicy
    from verifiers.clients.scripted import ScriptedClient


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
