"""`TokenClient`: a `Client` over an engine that takes and gives token ids, as trainers that own their engine have one.

Messages become ids by the model's chat template. A later turn adds to the ids that were sampled wherever the template
is shown to tell the past in that way (`Renderer.next_turn`); elsewhere the conversation is rendered anew, which makes
the turn a fork.
"""

from __future__ import annotations

import json
import re
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from verifiers.clients.client import ModelRequest
from verifiers.errors import ModelUnavailableError, OverlongPromptError
from verifiers.records import TokenTrace, VersionSpan
from verifiers.rl.render import ChatTokenizer, Renderer, TemplateRenderer
from verifiers.types import AssistantMessage, Response, Tool, Usage


@dataclass(frozen=True, slots=True)
class Sampled:
    """What an engine made of a prompt: T ids, and the log-probability of each."""

    ids: Sequence[int]  # [T], the token that ended it among them
    logprobs: Sequence[float]  # [T]
    finish_reason: Literal["stop", "length", "abort"] = "stop"
    versions: Sequence[VersionSpan] = ()  # where the engine says which weights made which token


class Sampler(Protocol):
    async def __call__(self, prompt_ids: list[int], sampling: dict[str, Any], affinity: str) -> Sampled:
        """`sampling` holds the engine's names; requests of equal `affinity` are of one rollout."""
        ...


Read = Callable[[str, Sequence[Tool]], AssistantMessage]


def read_reply(text: str, tools: Sequence[Tool]) -> AssistantMessage:
    """The text as it is; where there are tools, what stands in `<tool_call>` tags are calls of them.

    A call that is not JSON, or has no name, stays text: the environment answers it as any other reply.
    """
    if not tools:
        return AssistantMessage(text)
    calls: list[dict[str, Any]] = []
    for number, found in enumerate(_CALL.finditer(text)):
        try:
            call = json.loads(found[1])
            name, arguments = call["name"], call.get("arguments", {})
        except (ValueError, TypeError, KeyError, AttributeError):
            return AssistantMessage(text)
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": name, "arguments": arguments}
        calls.append({"id": f"call_{number}", "type": "function", "function": function})
    return AssistantMessage(_CALL.sub("", text).strip() if calls else text, calls)


_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.S)  # as Hermes and Qwen write them


class TokenClient:
    """Renders with `chat`, continues by `sample`, and reads the reply back with `read`.

    `context`: most tokens of prompt and reply together. A prompt that fills it is an OverlongPromptError, and
    `max_tokens` never asks for more than what is left.
    """

    def __init__(
        self,
        sample: Sampler,
        chat: ChatTokenizer,
        *,
        renderer: Renderer | None = None,
        read: Read = read_reply,
        context: int | None = None,
    ) -> None:
        self._sample, self._chat, self._read, self._context = sample, chat, read, context
        self._renderer = renderer or TemplateRenderer(chat)
        self._special = frozenset(chat.special_tokens.values())

    async def complete(self, request: ModelRequest) -> Response:
        prompt_ids = self.prompt_ids(request)
        sampling = self._room(engine_sampling(request), len(prompt_ids))
        started = time.monotonic()
        made = await self._sample(prompt_ids, sampling, request.affinity or "")
        if made.finish_reason == "abort":
            raise ModelUnavailableError(f"the engine broke off a reply after {len(made.ids)} tokens")
        message = self._read(self._chat.decode(self._shown(made.ids)), request.tools or ())
        return Response(
            message,
            finish_reason="tool_calls" if message.get("tool_calls") else made.finish_reason,
            usage=Usage(
                prompt_tokens=len(prompt_ids),
                completion_tokens=len(made.ids),
                total_tokens=len(prompt_ids) + len(made.ids),
            ),
            tokens=TokenTrace.of(prompt_ids, made.ids, made.logprobs),
            versions=made.versions,
            model=request.model,
            model_s=time.monotonic() - started,
        )

    def prompt_ids(self, request: ModelRequest) -> list[int]:
        """The ids that a request is asked with. Raises RenderError."""
        if request.prompt_ids is not None:
            return list(request.prompt_ids)
        tools = [tool.wire() for tool in request.tools] if request.tools else None
        seen = request.seen
        if seen is not None and seen.is_whole:
            before = array("i", seen.ids)
            past, new = request.messages[: seen.messages], request.messages[seen.messages :]
            if (ids := self._renderer.next_turn(before, past, new, tools)) is not None:
                return ids
        return self._renderer.prompt(request.messages, tools)

    async def close(self) -> None:
        """Nothing: the engine is its owner's."""

    def status(self) -> str | None:
        return None

    def _room(self, sampling: dict[str, Any], length: int) -> dict[str, Any]:
        if self._context is None:
            return sampling
        left = self._context - length
        if left < 1:
            raise OverlongPromptError(f"a prompt of {length} tokens fills the context of {self._context}")
        return {**sampling, "max_tokens": min(left, sampling.get("max_tokens") or left)}

    def _shown(self, ids: Sequence[int]) -> Sequence[int]:
        """Without the control tokens at its end: read back, they would be part of the message."""
        end = len(ids)
        while end and ids[end - 1] in self._special:
            end -= 1
        return ids[:end]


def engine_sampling(request: ModelRequest) -> dict[str, Any]:
    """A request's sampling by the names of engines: one flat mapping, without what only servers understand."""
    given: dict[str, Any] = {k: v for k, v in request.sampling.items() if v is not None}
    extra: Mapping[str, Any] = given.pop("extra_body", None) or {}
    given |= extra
    if (limit := given.pop("max_completion_tokens", None)) is not None:
        given["max_tokens"] = limit
    return {name: value for name, value in given.items() if name not in _OF_SERVERS}


_OF_SERVERS = frozenset({"logprobs", "top_logprobs", "return_token_ids", "cache_salt", "n", "tool_choice"})
