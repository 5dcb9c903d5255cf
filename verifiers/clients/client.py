"""`Client`: the only way to a model. One method, `complete(request) -> Response`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from verifiers.types import Message, Response, Tool


@dataclass(frozen=True, slots=True)
class Seen:
    """The first `messages` messages of a request in tokens: the last turn's prompt and the reply as it was made."""

    messages: int
    ids: bytes  # int32 buffer
    is_whole: bool = True  # the model ended the reply by itself; else it was cut off


@dataclass(slots=True)
class ModelRequest:
    """Everything one model call depends on.

    `messages` are sent as they are; `sampling` holds OpenAI names (`max_tokens`, `temperature`, `extra_body` …).
    `timeout_s` is for the server's work alone: time spent waiting for a place is not counted. `None`: the client's own.
    """

    model: str
    messages: list[Message]
    sampling: dict[str, Any] = field(default_factory=dict)
    tools: list[Tool] | None = None
    seed: int | None = None
    timeout_s: float | None = None
    budget_s: float | None = None  # seconds of server work over all attempts; used up: ModelTimeoutError, no retry
    affinity: str | None = None  # requests of one rollout share it, so that a replica's prefix cache is met again
    prompt_ids: Any = None  # token-in/token-out: ids to send instead of the messages
    seen: Seen | None = None  # token-in/token-out: what the messages begin with, so that it is not tokenised anew


@runtime_checkable
class Client(Protocol):
    """Turns a request into a reply.

    Raises `OverlongPromptError` when the context is full, `AuthenticationError` and `ModelNotFoundError` when no
    other request can succeed either, another `ModelError` for this request alone. Retries are the client's matter.
    `vf.ScriptedClient` is the smallest implementation.
    """

    async def complete(self, request: ModelRequest) -> Response: ...

    async def close(self) -> None: ...

    def status(self) -> str | None:
        """Why requests are waiting, in a few words for the display; `None` when they are not."""
        ...
