"""What an OpenAI-compatible endpoint reads and says: a request of an agent as values, a `Response` as its answer.

Pure: `AgentEnv` decides who is asked, and whether at all.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from verifiers.envs.agent_tunnel import HttpAnswer
from verifiers.tools import as_tool
from verifiers.types import Message, Response, Tool, as_message

# Of a request's body, what goes to the model; the run's own sampling arguments of the same names count more.
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "stop", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "chat_template_kwargs",
)  # fmt: skip
_LENGTHS = ("max_completion_tokens", "max_tokens")
_PATH = re.compile(r"(?:/(?P<actor>[^/?]+))?/v1/(?P<what>[^?]*?)/?(?:\?.*)?")


class RefusedRequest(Exception):
    """Told to the agent with an HTTP status in 4xx or 5xx; `code` says which limit or mistake it is about."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    @property
    def answer(self) -> HttpAnswer:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": str(self), "type": kind, "param": None, "code": self.code}
        return HttpAnswer(self.status, json.dumps({"error": error}))


@dataclass(frozen=True, slots=True)
class Where:
    """An address of the endpoint: `/v1/…`, or `/ACTOR/v1/…`."""

    actor: str | None
    what: Literal["chat", "models"]

    @classmethod
    def of(cls, method: str, path: str) -> Where:
        found = _PATH.fullmatch(path)
        what = found["what"] if found else None
        if found and method == "POST" and what == "chat/completions":
            return cls(found["actor"], "chat")
        if found and method == "GET" and what == "models":
            return cls(found["actor"], "models")
        raise RefusedRequest(
            404, f"there is no {method} {path} here; there are POST /v1/chat/completions and GET /v1/models"
        )


@dataclass(frozen=True, slots=True)
class ChatCall:
    """One request for a chat completion."""

    model: str
    messages: list[Message]
    tools: list[Tool]
    sampling: dict[str, Any]
    max_tokens: int | None
    is_streamed: bool
    wants_usage: bool  # as the last piece of a stream

    @classmethod
    def read(cls, body: str) -> ChatCall:
        """Raises RefusedRequest (400) that names what is wrong."""
        try:
            asked = _decoded(body)
        except (ValueError, RecursionError) as error:
            raise RefusedRequest(400, f"the body is not JSON: {error}") from None
        if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list) or not asked["messages"]:
            raise RefusedRequest(400, "a request has 'messages': a list of at least one message")
        if asked.get("n") not in (None, 1):
            raise RefusedRequest(400, f"one reply is given to a request, and n={asked['n']} are asked for")
        if asked.get("functions"):
            raise RefusedRequest(400, "'functions' are not taken; give them as 'tools'")
        try:
            messages = [_plain(as_message(message)) for message in asked["messages"]]
            tools = [as_tool(tool) for tool in asked.get("tools") or ()]
            lengths = [int(asked[name]) for name in _LENGTHS if asked.get(name) is not None]
            wants_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            raise RefusedRequest(400, f"the request cannot be read: {error}") from None
        return cls(
            model=str(asked.get("model") or ""),
            messages=messages,
            tools=tools,
            sampling={name: asked[name] for name in _SAMPLING if asked.get(name) is not None},
            max_tokens=min(lengths, default=None),
            is_streamed=bool(asked.get("stream")),
            wants_usage=wants_usage,
        )

    def sampling_under(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """The run's arguments, and the agent's where the run has none; the lower of the two lengths."""
        own = {name: value for name, value in own.items() if value is not None}
        merged = {**self.sampling, **own}
        if self.max_tokens is not None:
            name = next((name for name in _LENGTHS if name in own), "max_tokens")
            merged[name] = min(self.max_tokens, own.get(name) or self.max_tokens)
        return merged


def _decoded(body: str) -> Any:
    """Half a pair of surrogates, as in the output of a command that an agent repeats, is text for nobody else."""
    asked = json.loads(body)
    if "\\ud" in body.lower():
        asked = json.loads(json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace"))
    return asked


def _plain(message: Message) -> Message:
    """Without what clients add of their own, such as `annotations`."""
    for name in [name for name in message if name not in Message.fields]:
        del message[name]
    return message


def is_same(ours: Message, theirs: Message) -> bool:
    """Whether an agent's message is one that we know, written another way or without the model's reasoning."""
    if ours is theirs or ours == theirs:
        return True
    same = ours.get("role") == theirs.get("role") and ours.get("tool_call_id") == theirs.get("tool_call_id")
    return same and _content(ours) == _content(theirs) and _calls(ours) == _calls(theirs)


def _content(message: Message) -> Any:
    content = message.get("content") or ""
    if isinstance(content, list) and all(isinstance(p, Mapping) and p.get("type") == "text" for p in content):
        return "".join(str(part.get("text") or "") for part in content)
    return content


def _calls(message: Message) -> list[tuple[str, str, Any]]:
    return [(call["id"], call.name, _arguments(call.arguments)) for call in message.get("tool_calls") or ()]


def _arguments(written: Any) -> Any:
    try:
        return json.loads(written) if isinstance(written, str) else written
    except ValueError:
        return written


def completion(response: Response, call: ChatCall) -> HttpAnswer:
    """A reply in the shape that was asked for: whole, or as server-sent events."""
    message = _wire(response.message)
    head = {
        "id": response.id or f"chatcmpl-{uuid4().hex[:24]}",
        "created": response.created or int(time.time()),
        "model": call.model,
    }
    usage = None if response.usage is None else _usage(response.usage)
    reason = response.finish_reason or "stop"
    if not call.is_streamed:
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        whole = {**head, "object": "chat.completion", "choices": [choice]}
        return HttpAnswer(200, json.dumps(whole if usage is None else {**whole, "usage": usage}))
    head["object"] = "chat.completion.chunk"
    pieces: list[dict[str, Any]] = []
    for delta, ended in _deltas(message, reason):
        pieces.append({"choices": [{"index": 0, "delta": delta, "finish_reason": ended}]})
    if call.wants_usage:
        pieces.append({"choices": [], "usage": usage or {}})
    events = [json.dumps({**head, **piece}) for piece in pieces]
    return HttpAnswer(200, "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]), "text/event-stream")


def _deltas(message: dict[str, Any], reason: str) -> Iterable[tuple[dict[str, Any], str | None]]:
    yield {"role": "assistant", "content": ""}, None
    for name in ("reasoning_content", "content", "refusal"):
        if message.get(name):
            yield {name: message[name]}, None
    if message.get("tool_calls"):
        yield {"tool_calls": [{"index": n, **call} for n, call in enumerate(message["tool_calls"])]}, None
    yield {}, reason


def _wire(message: Message) -> dict[str, Any]:
    made = {name: message[name] for name in ("reasoning_content", "refusal") if message.get(name)}
    made |= {"role": "assistant", "content": message.get("content")}
    calls = []
    for call in message.get("tool_calls") or ():
        arguments = call.arguments
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        calls.append({"id": call["id"], "type": "function", "function": {"name": call.name, "arguments": text}})
    return {**made, "tool_calls": calls} if calls else made


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    prompt, said = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    made: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
    if (reasoning := usage.get("reasoning_tokens")) is not None:
        made["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return made


def models(names: Iterable[str]) -> HttpAnswer:
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "verifiers"} for name in names]
    return HttpAnswer(200, json.dumps({"object": "list", "data": data}))
