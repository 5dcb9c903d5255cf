"""A chat completion as a `Response`: decoded once, into structs with only the fields that we keep."""

from __future__ import annotations

from typing import Any

import msgspec

from verifiers.clients.odd_reply import check_end, ids_in, plain_json, read_plain, tool_call, trace_of
from verifiers.clients.retry import Fault
from verifiers.types import AssistantMessage, Response, Usage


class _Function(msgspec.Struct, gc=False):
    name: str
    arguments: str


class _Call(msgspec.Struct, gc=False):
    function: _Function
    id: str = ""
    type: str = "function"


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    reasoning_details: list[Any] | None = None  # opaque; OpenRouter wants them back
    thinking_blocks: list[Any] | None = None  # the same, Anthropic by way of LiteLLM
    function_call: _Function | None = None  # before there were tools


class _Logprob(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct, gc=False):
    content: list[_Logprob] | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None


class _Details(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class UsageReply(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    completion_tokens_details: _Details | None = None

    def usage(self) -> Usage:
        details = self.completion_tokens_details
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            total_tokens=self.total_tokens,
            reasoning_tokens=None if details is None else details.reasoning_tokens,
        )


class _Reply(msgspec.Struct, gc=False):
    choices: list[_Choice]
    id: str | None = ""
    model: str | None = ""
    created: int | float | None = 0
    usage: UsageReply | None = None
    prompt_token_ids: list[int] | None = None


class _TokenName(msgspec.Struct, gc=False):
    token: str = ""
    id: int | None = None
    token_id: int | None = None


class _TokenNames(msgspec.Struct, gc=False):
    content: list[_TokenName] | None = None


class _NamedChoice(msgspec.Struct, gc=False):
    logprobs: _TokenNames | None = None


class _NamedReply(msgspec.Struct, gc=False):
    choices: list[_NamedChoice]


_decoder = msgspec.json.Decoder(_Reply)
_name_decoder = msgspec.json.Decoder(_NamedReply)


def read_reply(data: bytes) -> Response:
    """The first choice of a reply. Raises Fault for what is not one."""
    try:
        reply = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return read_plain(plain_json(data), data)
    if not reply.choices:
        raise Fault("empty", "the server returned no choices")
    choice = reply.choices[0]
    check_end(choice.finish_reason)
    scored = choice.logprobs.content if choice.logprobs is not None else None
    tokens = None
    if choice.token_ids is not None or scored:
        logprobs = [t.logprob for t in scored] if scored else []
        ids = choice.token_ids if choice.token_ids is not None else _named_ids(data)
        tokens = trace_of(reply.prompt_token_ids or (), ids, logprobs)
    return Response(
        _message(choice.message),
        finish_reason=choice.finish_reason,
        usage=reply.usage.usage() if reply.usage is not None else None,
        tokens=tokens,
        id=reply.id or "",
        model=reply.model or "",
        created=int(reply.created or 0),
    )


def _named_ids(data: bytes) -> list[int]:
    """Ids that came inside the log-probabilities: `token_id:374` as text (vLLM), or a field (llama.cpp)."""
    if b'"token_id:' not in data and b'"id":' not in data and b'"token_id":' not in data:
        return []
    try:
        names = _name_decoder.decode(data).choices[0].logprobs
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
    found = names.content if names and names.content else []
    return ids_in((n.token, n.id if n.id is not None else n.token_id) for n in found)


def _message(reply: _Message) -> AssistantMessage:
    calls = reply.tool_calls
    if not calls and reply.function_call is not None:
        calls = [_Call(reply.function_call)]
    message = AssistantMessage(reply.content if calls else reply.content or "")
    if calls:
        message["tool_calls"] = [tool_call(c.id, c.function.name, c.function.arguments) for c in calls]
    if reasoning := reply.reasoning_content or reply.reasoning:
        message["reasoning_content"] = reasoning
    if reply.refusal:
        message["refusal"] = reply.refusal
    if reply.reasoning_details:
        message["reasoning_details"] = reply.reasoning_details
    if reply.thinking_blocks:
        message["thinking_blocks"] = reply.thinking_blocks
    return message
