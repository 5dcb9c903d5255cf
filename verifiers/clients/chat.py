"""The chat completions dialect: a `ModelRequest` as JSON, and the conversation with a server about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from verifiers.clients.client import ModelRequest
from verifiers.clients.reply import read_reply
from verifiers.types import Message, Response, Tool

PATH = "/chat/completions"

T = TypeVar("T")

_NOT_SENT = frozenset({"extra_body", "extra_headers", "extra_query", "timeout", "stream", "stream_options", "n"})


class Send(Protocol):
    """`HTTPClient` as a dialect sees it: the decoded reply, the seconds spent queueing, those the server worked."""

    async def __call__(
        self, path: str, body: dict[str, Any], read: Callable[[bytes], T], request: ModelRequest
    ) -> tuple[T, float, float]: ...


class ChatDialect:
    name = "chat"

    def __init__(self) -> None:
        self.reasoning_key = "reasoning_content"  # becomes "reasoning" once the server is seen to call it that

    async def complete(self, send: Send, request: ModelRequest) -> Response:
        body = body_of(request, self.reasoning_key)
        response, response.queue_s, response.model_s = await send(PATH, body, self.read, request)
        return response

    def read(self, data: bytes) -> Response:
        response = read_reply(data)
        if "reasoning_content" in response.message and b'"reasoning":' in data:
            self.reasoning_key = "reasoning"
        return response


def body_of(request: ModelRequest, reasoning_key: str = "reasoning_content") -> dict[str, Any]:
    body: dict[str, Any] = {"model": request.model, "messages": wire_messages(request.messages, reasoning_key)}
    if request.tools:
        body["tools"] = [wire_tool(tool) for tool in request.tools]
    return add_sampling(body, request)


def add_sampling(body: dict[str, Any], request: ModelRequest) -> dict[str, Any]:
    """Sampling arguments that are set, `n` only when it is not 1, the seed, and `extra_body` over all."""
    sampling = request.sampling
    for name, value in sampling.items():
        if value is not None and name not in _NOT_SENT:
            body[name] = value
    if sampling.get("n") not in (None, 1):
        body["n"] = sampling["n"]
    if request.seed is not None and "seed" not in body:
        body["seed"] = request.seed & 0x7FFFFFFF  # what every engine takes
    if extra := sampling.get("extra_body"):
        body.update(extra)
    return body


def wire_messages(messages: list[Message], reasoning_key: str = "reasoning_content") -> list[Any]:
    """The messages as they are, but for keys that hold nothing and the server's own name for reasoning."""
    renamed = reasoning_key != "reasoning_content"
    for m in messages:  # nearly all are a role and a content; history is long, so these are passed over quickly
        if len(m) == 2 and m.get("content") is not None and m.get("role") != "text":
            continue
        if None in m.values() or m.get("role") == "text" or (renamed and "reasoning_content" in m):
            return [_wire_message(m, reasoning_key) for m in messages]
    return messages


def _wire_message(message: Mapping[str, Any], reasoning_key: str) -> dict[str, Any]:
    wire = {k: v for k, v in message.items() if v is not None or k == "content"}
    if wire.get("content", "") is None and not wire.get("tool_calls"):
        wire["content"] = ""
    if wire.get("role") == "text":
        wire["role"] = "user"
    if reasoning_key != "reasoning_content" and "reasoning_content" in wire:
        wire[reasoning_key] = wire.pop("reasoning_content")
    return wire


def wire_tool(tool: Any) -> Any:
    return tool.wire() if isinstance(tool, Tool) else tool
