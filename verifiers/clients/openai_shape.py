"""`OpenAIShape`: our clients by the names of the OpenAI package, for authors who ask the client themselves."""

from __future__ import annotations

from typing import Any

from verifiers.clients.client import ModelRequest
from verifiers.errors import ConfigError
from verifiers.tools import as_tool
from verifiers.types import Response, TextMessage, as_messages


class OpenAIShape:
    """Adds `client.chat.completions.create(...)` and `client.completions.create(...)` to a `Client`."""

    @property
    def chat(self) -> _Chat:
        return _Chat(self)

    @property
    def completions(self) -> _Create:
        return _Create(self, "completions")


class _Chat:
    def __init__(self, client: Any) -> None:
        self.completions = _Create(client, "chat")


class _Create:
    def __init__(self, client: Any, dialect: str) -> None:
        self._client, self._dialect = client, dialect

    async def create(
        self, *, model: str, messages: Any = None, prompt: Any = None, tools: Any = None, **sampling: Any
    ) -> Response:
        """One reply; reads as one of the OpenAI package (`choices[0].message.content`, `usage`, `model`).

        Raises ConfigError for what has no place in a `ModelRequest`: streaming, several choices.
        """
        if sampling.get("stream"):
            raise ConfigError("this client answers in one piece; leave out stream=True, or use an openai.AsyncOpenAI")
        if (sampling.get("n") or 1) != 1:
            raise ConfigError(f"this client gives one choice; ask {sampling['n']} times instead of n={sampling['n']}")
        said = messages if messages is not None else prompt
        if said is None:
            raise ConfigError("create() needs messages, or prompt for a base model")
        is_text = self._dialect == "completions" and isinstance(said, str)
        request = ModelRequest(
            model=model,
            messages=[TextMessage(said)] if is_text else as_messages(said),
            sampling={name: value for name, value in sampling.items() if _is_given(value)},
            tools=[as_tool(tool) for tool in tools] if tools and _is_given(tools) else None,
        )
        speaking = getattr(self._client, "speaking", None)
        client = self._client if speaking is None or self._client.dialect.name == "tokens" else speaking(self._dialect)
        return await client.complete(request)


def _is_given(value: Any) -> bool:
    """The OpenAI package has objects that say "not given"."""
    return value is not None and type(value).__name__ not in ("NotGiven", "Omit")
