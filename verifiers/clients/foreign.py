"""`ForeignClient`: somebody else's client object, called by its `chat.completions.create`.

Fakes in tests, patched or subclassed OpenAI clients (Azure's among them), whatever a trainer wraps its engine in.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from verifiers import errors
from verifiers.clients import chat, completions
from verifiers.clients.client import ModelRequest
from verifiers.clients.odd_reply import read_plain
from verifiers.clients.refusal import Refusal
from verifiers.clients.retry import Fault, last_word
from verifiers.types import MessageType, Response, TextMessage

_PAGE = re.compile(r"\s*<(!doctype|html)\b", re.IGNORECASE)  # which the OpenAI package hands on as text
_threads = ThreadPoolExecutor(128, "vf-openai")  # of synchronous clients; the loop's own pool has 6 on two cores
_NAMED = ("model", "messages", "prompt", "tools")
_KEPT = ("extra_body", "extra_headers", "extra_query", "timeout")  # keywords of `create` that are no part of the body


class ForeignClient:
    """Retries and connections are the wrapped client's own matter; its errors and replies are turned into ours."""

    def __init__(self, client: Any, *, message_type: MessageType = "chat") -> None:
        self.client = client
        self.message_type: MessageType = message_type

    async def complete(self, request: ModelRequest) -> Response:
        create, arguments = self._call(request)
        began = time.monotonic()
        try:
            if type(self.client).__module__.startswith("openai") and not inspect.iscoroutinefunction(create):
                work = functools.partial(copy_context().run, create, **arguments)  # it waits for a server
                reply = await asyncio.get_running_loop().run_in_executor(_threads, work)
            else:
                reply = create(**arguments)
            if inspect.isawaitable(reply):
                reply = await reply
        except errors.Error:
            raise
        except Exception as error:
            raise _translated(error, request) from error
        try:
            if isinstance(reply, str) and type(self.client).__module__.startswith("openai") and _PAGE.match(reply):
                raise Fault("malformed", f"a web page in place of a reply: {' '.join(reply.split())[:100]}")
            response = response_of(reply, self.message_type)
        except Fault as fault:
            raise last_word(fault, repr(self), 1) from None
        response.model_s = time.monotonic() - began
        return response

    async def close(self) -> None:
        """Nothing: it belongs to whoever made it."""

    def status(self) -> str | None:
        return None

    def __repr__(self) -> str:
        return f"ForeignClient({type(self.client).__name__})"

    def _call(self, request: ModelRequest) -> tuple[Any, dict[str, Any]]:
        given = dict(request.sampling)
        kept = {name: value for name in _KEPT if (value := given.pop(name, None))}
        bare = ModelRequest(request.model, request.messages, given, request.tools, request.seed)
        if request.timeout_s is not None:
            kept.setdefault("timeout", request.timeout_s)
        if self.message_type == "completion":
            return self.client.completions.create, {**completions.body_of(bare), **kept}
        return self.client.chat.completions.create, {**chat.body_of(bare), **kept}


def response_of(reply: Any, message_type: MessageType = "chat") -> Response:
    """What `create` returned, or an author's stand-in for it, as ours. Raises Fault when it is no reply."""
    if isinstance(reply, Response):
        return reply
    if isinstance(reply, str):
        reply = {"choices": [{"message": {"content": reply}, "finish_reason": "stop"}]}
    plain = _plain_reply(reply)
    if message_type != "completion":
        return read_plain(plain)
    for choice in plain.get("choices") or ():
        choice.setdefault("message", {"content": choice.get("text") or ""})
    response = read_plain(plain)
    response.message = TextMessage(response.text)
    return response


def _plain_reply(reply: Any) -> dict[str, Any]:
    """Plain JSON values of a reply, by attribute or key. Fakes are often mock objects, in which any name exists."""
    choices = [_plain_choice(c) for c in _get(reply, "choices", (list, tuple)) or ()]
    return {
        "choices": choices,
        "id": _get(reply, "id", str),
        "model": _get(reply, "model", str),
        "created": _get(reply, "created", (int, float)),
        "usage": _plain_value(_get(reply, "usage", object), ("prompt_tokens", "completion_tokens", "total_tokens")),
        "prompt_token_ids": _get(reply, "prompt_token_ids", list),
    }


def _plain_choice(choice: Any) -> dict[str, Any]:
    plain = {
        "finish_reason": _get(choice, "finish_reason", str),
        "token_ids": _get(choice, "token_ids", list),
        "prompt_token_ids": _get(choice, "prompt_token_ids", list),
        "text": _get(choice, "text", str),
    }
    scored = _get(_get(choice, "logprobs", object), "content", (list, tuple))
    plain["logprobs"] = {"content": [_plain_value(t, ("token", "logprob", "id")) for t in scored or ()]}
    message = _get(choice, "message", object)
    if message is not None and not isinstance(plain["text"], str):
        plain["message"] = {
            "content": _get(message, "content", (str, list)),
            "reasoning_content": _get(message, "reasoning_content", str) or _get(message, "reasoning", str),
            "tool_calls": [_plain_call(c) for c in _get(message, "tool_calls", (list, tuple)) or ()],
        }
    return plain


def _plain_call(call: Any) -> dict[str, Any]:
    function = _get(call, "function", object)
    return {
        "id": _get(call, "id", str),
        "function": {
            "name": _get(function, "name", str),
            "arguments": _get(function, "arguments", (str, dict, list)),
        },
    }


def _plain_value(value: Any, names: tuple[str, ...]) -> dict[str, Any] | None:
    if value is None:
        return None
    return {name: _get(value, name, (str, int, float)) for name in names}


def _get(holder: Any, name: str, kinds: Any) -> Any:
    """A key or attribute, if it is of the kind that belongs there."""
    value = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return value if isinstance(value, kinds) else None


def _translated(error: Exception, request: ModelRequest) -> errors.Error:
    """An exception of the OpenAI package as ours; of any other origin as a `ModelError` with its text."""
    text = f"{type(error).__name__}: {error}"
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "APITimeoutError" in kinds or isinstance(error, TimeoutError):
        return errors.ModelTimeoutError(text)
    if "APIConnectionError" in kinds or isinstance(error, ConnectionError):
        return errors.ModelUnavailableError(text)
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return errors.ModelError(text)
    reply = getattr(error, "response", None)
    body = getattr(reply, "content", None)
    body = body if isinstance(body, bytes) and body else str(error).encode()
    url = str(getattr(getattr(error, "request", None), "url", "the server"))
    outcome = Refusal.read(url, status, {}, body, "its api_key", ()).outcome(request.model, request.sampling)
    return last_word(outcome, url, 1) if isinstance(outcome, Fault) else outcome  # type: ignore[return-value]
