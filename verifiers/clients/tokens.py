"""Token-in/token-out, as vLLM offers it: exact ids both ways, and which weights made which token.

The messages are rendered to ids by the server (`/chat/completions/render`), the ids continued
(`/inference/v1/generate`), and what came out read back as a message (`/chat/completions/derender`). A server without
these routes, or one that keeps them closed, is asked for chat completions with ids and log-probabilities instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from verifiers.clients import chat, completions
from verifiers.clients.chat import Send
from verifiers.clients.client import ModelRequest
from verifiers.clients.odd_reply import check_end, plain_json, trace_of
from verifiers.clients.retry import Fault
from verifiers.errors import AuthenticationError, ModelNotFoundError, ModelRequestError
from verifiers.records import TokenTrace, VersionSpan
from verifiers.types import AssistantMessage, Response, Usage

RENDER = "/chat/completions/render"
GENERATE = "/inference/v1/generate"
DERENDER = "/chat/completions/derender"

_NOT_SAMPLING = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs", "return_token_ids"}
)
_RENAMED = {"max_completion_tokens": "max_tokens"}


class TokensDialect(chat.ChatDialect):
    name = "tokens"

    def __init__(self) -> None:
        super().__init__()
        self.has_generate: bool | None = None  # None: not known yet

    async def complete(self, send: Send, request: ModelRequest) -> Response:
        if self.has_generate is not False:
            try:
                response = await self._generate(send, request)
                self.has_generate = True
                return response
            except (AuthenticationError, ModelNotFoundError, ModelRequestError) as error:
                # 403, 404, 405 and 501 are how servers say that they do not offer the routes.
                if self.has_generate or getattr(error, "status", None) not in (403, 404, 405, 501):
                    raise
                self.has_generate = False
        return await self._chat(send, request)

    async def _generate(self, send: Send, request: ModelRequest) -> Response:
        asked = chat.body_of(request, self.reasoning_key)
        queue_s = model_s = 0.0
        if request.prompt_ids is None:
            order, queued, worked = await send(RENDER, asked, plain_json, request)
            queue_s, model_s = queued, worked
        else:
            order = {"model": request.model, "token_ids": list(request.prompt_ids)}
        order = generate_body(order, asked)
        made, queued, worked = await send(GENERATE, order, read_generated, _later(request, model_s))
        queue_s, model_s = queue_s + queued, model_s + worked
        prompt_ids = order["token_ids"]
        derender = {
            "model": request.model,
            "generate_response": made.raw,
            "prompt_tokens": len(prompt_ids),
            "prompt_token_ids": prompt_ids,
            "chat_request": asked,
        }
        response, queued, worked = await send(DERENDER, derender, self.read, _later(request, model_s))
        response.tokens = made.trace(prompt_ids)
        response.versions = made.versions
        response.finish_reason = response.finish_reason or made.finish_reason
        if response.usage is None:
            response.usage = Usage(prompt_tokens=len(prompt_ids), completion_tokens=len(made.ids))
        response.queue_s, response.model_s = queue_s + queued, model_s + worked
        return response

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


def _later(request: ModelRequest, worked_s: float) -> ModelRequest:
    """The request with what is left of its budget."""
    return request if request.budget_s is None else replace(request, budget_s=request.budget_s - worked_s)


def generate_body(order: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """What to generate from: the rendered order, or one made of given ids, with log-probabilities switched on."""
    if not isinstance(order.get("token_ids"), list):
        raise Fault("malformed", "the rendered prompt has no 'token_ids'")
    sampling = order.get("sampling_params")
    if not isinstance(sampling, dict):
        sampling = {_RENAMED.get(k, k): v for k, v in asked.items() if k not in _NOT_SAMPLING}
    sampling = {**sampling, "logprobs": asked.get("top_logprobs") or 1}
    return {**order, "sampling_params": sampling, "output_mode": "tokens", "stream": False}


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
    logprobs: _Logprobs | None = None
    weight_versions: list[_Span] | None = None


class _Reply(msgspec.Struct, gc=False):
    choices: list[_Choice]


_decoder = msgspec.json.Decoder(_Reply)


class Generated:
    """One continuation in ids, with the bytes that it came in."""

    def __init__(self, data: bytes) -> None:
        try:
            reply = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Fault("malformed", f"no token ids in the reply ({error})") from None
        if not reply.choices:
            raise Fault("empty", "the server returned no choices")
        choice = reply.choices[0]
        check_end(choice.finish_reason)
        self.raw = msgspec.Raw(data)  # handed on as it is
        self.ids, self.finish_reason = choice.token_ids, choice.finish_reason
        scored = choice.logprobs.content if choice.logprobs is not None else None
        self.logprobs = [t.logprob for t in scored or ()]
        self.versions = [VersionSpan(s.start, s.end, str(s.version)) for s in choice.weight_versions or ()]

    def trace(self, prompt_ids: list[int]) -> TokenTrace:
        return trace_of(prompt_ids, self.ids, self.logprobs)


def read_generated(data: bytes) -> Generated:
    generated = Generated(data)
    generated.trace([])  # a mismatch is the reply's fault: ask again
    return generated
