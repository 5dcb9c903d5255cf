"""`ScriptedClient`: a `Client` that says what it is told to. For tests, documentation and templates."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from verifiers.clients.client import ModelRequest
from verifiers.clients.openai_shape import OpenAIShape
from verifiers.errors import ConfigError
from verifiers.records import TokenTrace
from verifiers.types import AssistantMessage, Response, TextMessage, Usage, as_message

Reply = str | Mapping[str, Any] | Response | BaseException | Callable[[ModelRequest], Any]


class ScriptedClient(OpenAIShape):
    """Gives `replies` in order, one for each request, or calls the one function given in their place.

    A reply is a text, a message dict, a `Response`, an exception to raise, or a function of the request that returns
    one of these or awaits one. When the list is used up it starts again; with `cycle=False` that is a ConfigError
    instead. `requests` keeps what was asked.

    `with_tokens` adds token ids and log-probabilities: one token a word, the same word always the same id.

    >>> client = ScriptedClient(["4", lambda request: request.messages[-1].content.upper()])
    """

    def __init__(
        self,
        replies: Reply | Iterable[Reply],
        *,
        cycle: bool = True,
        delay_s: float = 0.0,
        with_tokens: bool = False,
        message_type: str = "chat",
    ) -> None:
        single = callable(replies) or isinstance(replies, (str, Mapping, Response, BaseException))
        self.replies: list[Reply] = [replies] if single else list(replies)  # type: ignore[list-item,arg-type]
        if not self.replies:
            raise ConfigError("ScriptedClient needs at least one reply")
        self.cycle = cycle or callable(replies)
        self.delay_s = delay_s
        self.with_tokens = with_tokens
        self.message_type = message_type
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> Response:
        number = len(self.requests)
        # as it was: the caller goes on adding to its messages
        self.requests.append(replace(request, messages=list(request.messages), sampling=dict(request.sampling)))
        if number >= len(self.replies) and not self.cycle:
            raise ConfigError(
                f"the script has {len(self.replies)} replies and was asked for one more; give more, or cycle=True"
            )
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        reply: Any = self.replies[number % len(self.replies)]
        if callable(reply) and not isinstance(reply, type):
            reply = reply(request)
            if hasattr(reply, "__await__"):
                reply = await reply
        return self._response(reply, request)

    async def close(self) -> None:
        pass

    def status(self) -> str | None:
        return None

    def _response(self, reply: Any, request: ModelRequest) -> Response:
        if isinstance(reply, BaseException) or (isinstance(reply, type) and issubclass(reply, BaseException)):
            raise reply
        if isinstance(reply, Response):
            return reply
        if isinstance(reply, str):
            message = TextMessage(reply) if self.message_type == "completion" else AssistantMessage(reply)
        elif isinstance(reply, Mapping):
            message = {"role": "assistant", **reply}
        else:
            raise ConfigError(
                f"a scripted reply is a text, message, Response, exception or function, got {type(reply).__name__}"
            )
        message = as_message(message)
        prompt, said = _words(request.messages), _words([message])
        return Response(
            message,
            finish_reason="tool_calls" if message.get("tool_calls") else "stop",
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(said), total_tokens=len(prompt) + len(said)),
            tokens=_trace(prompt, said) if self.with_tokens else None,
            id=f"scripted-{len(self.requests)}",
            model=request.model,
            model_s=self.delay_s,
        )


def _words(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Tokens of a sort. What a message adds stays the same when more follow, as with a real chat template."""
    words: list[str] = []
    for message in messages:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else json.dumps(content)
        words += [f"<{message.get('role')}>", *text.split()]
        words += [json.dumps(call) for call in message.get("tool_calls") or ()]
        words += ["<end>"] if message.get("role") == "assistant" else []
    return words


def _trace(prompt: list[str], said: list[str]) -> TokenTrace:
    """The role's mark is the prompt's last token, as a chat template ends in the opening of the answer."""
    prompt, said = prompt + said[:1], said[1:]
    ids = [_token_id(word) for word in said]
    return TokenTrace.of([_token_id(word) for word in prompt], ids, [-1.0 / (2 + i % 7) for i in ids])


def _token_id(word: str) -> int:
    return zlib.crc32(word.encode()) % 50_000
