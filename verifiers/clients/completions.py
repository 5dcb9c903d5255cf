"""The completions dialect, for base models: text in, text out (`message_type="completion"`)."""

from __future__ import annotations

from typing import Any

import msgspec

from verifiers.clients.chat import Send, add_sampling
from verifiers.clients.client import ModelRequest
from verifiers.clients.odd_reply import (
    check_end,
    end_of,
    first_choice,
    ids_in,
    plain_json,
    plain_usage,
    text_and_thinking,
    trace_of,
)
from verifiers.clients.reply import UsageReply
from verifiers.clients.retry import Fault
from verifiers.records import TokenTrace
from verifiers.types import Message, Response, TextMessage

PATH = "/completions"


class CompletionsDialect:
    name = "completions"

    async def complete(self, send: Send, request: ModelRequest) -> Response:
        response, response.queue_s, response.model_s = await send(PATH, body_of(request), read_text, request)
        return response


def body_of(request: ModelRequest) -> dict[str, Any]:
    """The prompt is `prompt_ids` when they are given, else the text of the messages, one after the other."""
    prompt = prompt_text(request.messages) if request.prompt_ids is None else list(request.prompt_ids)
    body = add_sampling({"model": request.model, "prompt": prompt}, request)
    if body.get("logprobs") is True:  # the chat spelling; here it is a number
        body["logprobs"] = body.pop("top_logprobs", None) or 1
    elif body.get("logprobs") is False:
        del body["logprobs"]
    return body


def prompt_text(messages: list[Message]) -> str:
    return "".join(text_and_thinking(m.get("content"))[0] for m in messages)


class _Token(msgspec.Struct, gc=False):
    logprob: float
    id: int | None = None


class _Logprobs(msgspec.Struct, gc=False):
    token_logprobs: list[float | None] | None = None
    tokens: list[str] | None = None
    content: list[_Token] | None = None  # llama.cpp answers in the shape of chat completions


class _Choice(msgspec.Struct, gc=False):
    text: str
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Reply(msgspec.Struct, gc=False):
    choices: list[_Choice]
    id: str | None = ""
    model: str | None = ""
    created: int | float | None = 0
    usage: UsageReply | None = None


_decoder = msgspec.json.Decoder(_Reply)


def read_text(data: bytes) -> Response:
    """The first choice of a reply. Raises Fault for what is not one."""
    try:
        reply = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _read_odd(data)
    if not reply.choices:
        raise Fault("empty", "the server returned no choices")
    choice = reply.choices[0]
    check_end(choice.finish_reason)
    return Response(
        TextMessage(choice.text),
        finish_reason=choice.finish_reason,
        usage=reply.usage.usage() if reply.usage is not None else None,
        tokens=_trace(choice),
        id=reply.id or "",
        model=reply.model or "",
        created=int(reply.created or 0),
    )


def _trace(choice: _Choice) -> TokenTrace | None:
    found = choice.logprobs
    if found is not None and found.content:
        ids = choice.token_ids if choice.token_ids is not None else ids_in((None, t.id) for t in found.content)
        return trace_of(choice.prompt_token_ids or (), ids, [t.logprob for t in found.content])
    given = (found.token_logprobs if found is not None else None) or []
    logprobs = [value for value in given if value is not None]
    if len(logprobs) != len(given):  # an echoed prompt: its first token has none, and the rest is not the model's
        logprobs = []
    ids = choice.token_ids
    if ids is None:
        names = (found.tokens if found is not None else None) or []
        ids = ids_in((name, None) for name in names)
    return trace_of(choice.prompt_token_ids or (), ids, logprobs) if ids or logprobs else None


def _read_odd(data: bytes) -> Response:
    reply = plain_json(data)
    choice = first_choice(reply, data)
    message = choice.get("message")
    text = choice.get("text", message.get("content") if isinstance(message, dict) else None)
    if not isinstance(text, str):
        raise Fault("malformed", "a choice without text")
    return Response(
        TextMessage(text),
        finish_reason=end_of(choice),
        usage=plain_usage(reply.get("usage")),
        id=str(reply.get("id") or ""),
        model=str(reply.get("model") or ""),
    )
