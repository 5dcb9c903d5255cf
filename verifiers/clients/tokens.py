"""Token-in/token-out, as vLLM offers it: exact ids both ways, and which weights made which token.

The messages are rendered to ids by the server (`/chat/completions/render`), the ids continued
(`/inference/v1/generate`), and what came out read back as a message (`/chat/completions/derender`). Later turns of a
conversation add to the ids of the turns before (`continuation`). A server without these routes, or one that keeps
them closed, is asked for chat completions with ids and log-probabilities instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from verifiers.clients import chat, completions
from verifiers.clients.chat import Send
from verifiers.clients.client import ModelRequest
from verifiers.clients.continuation import Continuation
from verifiers.clients.odd_reply import check_end, plain_json, trace_of
from verifiers.clients.retry import Fault
from verifiers.errors import AuthenticationError, ModelNotFoundError, ModelRequestError
from verifiers.records import TokenTrace, VersionSpan
from verifiers.types import AssistantMessage, Response, Usage

RENDER = "/chat/completions/render"
GENERATE = "/inference/v1/generate"
DERENDER = "/chat/completions/derender"

T = TypeVar("T")

_NOT_SAMPLING = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs", "return_token_ids"}
)
_OF_REQUEST = ("cache_salt", "priority")  # stand beside the sampling parameters, not among them
_TOKEN_LIMITS = ("max_completion_tokens", "max_tokens")


class TokensDialect(chat.ChatDialect):
    name = "tokens"

    def __init__(self) -> None:
        super().__init__()
        self.has_generate: bool | None = None  # None: not known yet
        self.continuation = Continuation()

    async def complete(self, send: Send, request: ModelRequest) -> Response:
        if self.has_generate is not False:
            try:
                response = await self._generate(_Exchange(send, request), request)
                self.has_generate = True
                return response
            except (AuthenticationError, ModelNotFoundError, ModelRequestError) as error:
                # 403, 404, 405 and 501 are how servers say that they do not offer the routes.
                if self.has_generate or getattr(error, "status", None) not in (403, 404, 405, 501):
                    raise
        response = await self._chat(send, request)
        self.has_generate = False  # only now: a wrong key or model would have been refused here too
        return response

    async def _generate(self, exchange: _Exchange, request: ModelRequest) -> Response:
        asked = chat.body_of(request, self.reasoning_key)
        order = generate_body(await self._order(exchange, request, asked), asked)
        prompt_ids = order["token_ids"]
        made = await exchange.post(GENERATE, order, read_generated)
        if ids := made.ids if asked.get("include_stop_str_in_output") else made.shown_ids():
            response = await exchange.post(DERENDER, derender_body(made, ids, prompt_ids, asked), self.read)
        else:
            response = Response(AssistantMessage(""), id=made.id, model=request.model)
        _cut_stop_string(response.message, made.stop_reason, asked)
        response.tokens = made.trace(prompt_ids)
        response.versions = made.versions
        response.finish_reason = made.finish_reason
        if response.message.get("tool_calls") and made.finish_reason == "stop":
            response.finish_reason = "tool_calls"
        n_prompt, n_made = len(prompt_ids), len(made.ids)
        response.usage = Usage(prompt_tokens=n_prompt, completion_tokens=n_made, total_tokens=n_prompt + n_made)
        response.queue_s, response.model_s = exchange.queue_s, exchange.model_s
        return response

    async def _order(self, exchange: _Exchange, request: ModelRequest, asked: dict[str, Any]) -> dict[str, Any]:
        """What to generate from: the ids that are given, those of the turns before with what is new, or all anew."""

        async def render(body: dict[str, Any]) -> dict[str, Any]:
            return await exchange.post(RENDER, body, read_order)

        if request.prompt_ids is not None:
            beside = {name: asked[name] for name in _OF_REQUEST if name in asked}
            return {"model": request.model, "token_ids": list(request.prompt_ids), **beside}
        if request.seen is not None and self.has_generate:
            order = await self.continuation.order(render, asked, request.seen)
            if order is not None:
                return order
        return await render(asked)

    async def _chat(self, send: Send, request: ModelRequest) -> Response:
        """The nearest that any vLLM offers. Ids that are given can only be continued as text."""
        if request.prompt_ids is None:
            body = chat.body_of(request, self.reasoning_key)
            body.setdefault("logprobs", True)
            body.setdefault("return_token_ids", True)
            response, response.queue_s, response.model_s = await send(chat.PATH, body, self.read, request)
            return response
        body = completions.body_of(request)
        body.setdefault("logprobs", 1)
        body.setdefault("return_token_ids", True)
        for name in ("tools", "tool_choice", "top_logprobs"):
            body.pop(name, None)
        read = completions.read_text
        response, response.queue_s, response.model_s = await send(completions.PATH, body, read, request)
        response.message = AssistantMessage(response.text)
        return response


class _Exchange:
    """The several posts that one request is made of, and their time together. Its budget is for all of them."""

    def __init__(self, send: Send, request: ModelRequest) -> None:
        self._send, self._request = send, request
        self.queue_s = self.model_s = 0.0

    async def post(self, path: str, body: dict[str, Any], read: Callable[[bytes], T]) -> T:
        request = self._request
        if request.budget_s is not None:
            request = replace(request, budget_s=request.budget_s - self.model_s)
        value, queued, worked = await self._send(path, body, read, request)
        self.queue_s += queued
        self.model_s += worked
        return value


def read_order(data: bytes) -> dict[str, Any]:
    """A rendered prompt. Raises Fault for what is not one."""
    order = plain_json(data)
    if not isinstance(order.get("token_ids"), list):
        raise Fault("malformed", "the rendered prompt has no 'token_ids'")
    return order


def generate_body(order: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """The order with log-probabilities switched on, and with the limit that was asked for.

    A rendered limit is what the context leaves behind the messages that were rendered, which need not be all.
    """
    sampling = order.get("sampling_params")
    if not isinstance(sampling, dict):
        sampling = {k: v for k, v in asked.items() if k not in _NOT_SAMPLING and k not in _OF_REQUEST}
    limit = next((asked[name] for name in _TOKEN_LIMITS if asked.get(name) is not None), None)
    sampling = {k: v for k, v in sampling.items() if k not in _TOKEN_LIMITS}
    if limit is not None:
        sampling["max_tokens"] = limit
    sampling["logprobs"] = asked.get("top_logprobs") or 1
    return {**order, "sampling_params": sampling, "output_mode": "tokens", "stream": False}


def derender_body(made: Generated, ids: list[int], prompt_ids: list[int], asked: dict[str, Any]) -> dict[str, Any]:
    """What the server needs to read a message out of `ids`; of the conversation that is no more than its end."""
    choice = {"index": 0, "token_ids": ids, "finish_reason": made.finish_reason, "stop_reason": made.stop_reason}
    reply = {"request_id": made.id, "model": asked["model"], "choices": [choice], "prompt_token_ids": prompt_ids}
    chat_request = {**asked, "messages": asked["messages"][-1:]}
    return {"model": asked["model"], "generate_response": reply, "chat_request": chat_request}


def _cut_stop_string(message: Any, stop: Any, asked: dict[str, Any]) -> None:
    """Ends the text before the stop string, as chat completions do: the ids hold it, so it was read back."""
    if not isinstance(stop, str) or asked.get("include_stop_str_in_output"):
        return
    for name in ("content", "reasoning_content"):
        text = message.get(name)
        if isinstance(text, str) and stop in text:
            message[name] = text[: text.rindex(stop)]
            return


class _Logprob(msgspec.Struct, gc=False):
    logprob: float


class _Logprobs(msgspec.Struct, gc=False):
    content: list[_Logprob] | None = None


class _Span(msgspec.Struct, gc=False):
    start: int
    end: int
    version: str | int = ""


class _Choice(msgspec.Struct, gc=False):
    token_ids: list[int]
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: _Logprobs | None = None
    weight_versions: list[_Span] | None = None


class _Reply(msgspec.Struct, gc=False):
    choices: list[_Choice]
    request_id: str = ""


_decoder = msgspec.json.Decoder(_Reply)


class Generated:
    """One continuation in ids."""

    def __init__(self, data: bytes) -> None:
        try:
            reply = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Fault("malformed", f"no token ids in the reply ({error})") from None
        if not reply.choices:
            raise Fault("empty", "the server returned no choices")
        choice = reply.choices[0]
        check_end(choice.finish_reason)
        self.id = reply.request_id
        self.ids, self.finish_reason, self.stop_reason = choice.token_ids, choice.finish_reason, choice.stop_reason
        scored = choice.logprobs.content if choice.logprobs is not None else None
        self.logprobs = [t.logprob for t in scored or ()]
        self.versions = [VersionSpan(s.start, s.end, str(s.version)) for s in choice.weight_versions or ()]

    def trace(self, prompt_ids: list[int]) -> TokenTrace:
        return trace_of(prompt_ids, self.ids, self.logprobs)

    def shown_ids(self) -> list[int]:
        """Without the token that ended the reply: read back, its text would be part of the message."""
        ends_by_token = self.finish_reason == "stop" and not isinstance(self.stop_reason, str)
        return self.ids[:-1] if ends_by_token else self.ids


def read_generated(data: bytes) -> Generated:
    generated = Generated(data)
    generated.trace([])  # a mismatch is the reply's fault: ask again
    return generated
