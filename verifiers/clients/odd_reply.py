"""Replies of a shape that the typed reader does not know, understood as far as they can be.

Fields missing, null or of another type; parts for text; objects where JSON text belongs; errors with status 200.
What cannot be understood is a `Fault`, so that it is asked for again.
"""

from __future__ import annotations

import itertools
import json
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from verifiers.clients.refusal import error_of, one_line
from verifiers.clients.retry import Fault
from verifiers.records import TokenTrace
from verifiers.types import AssistantMessage, Response, ToolCall, Usage

_BROKEN_ENDS = ("error", "abort")  # the server gave up half-way, during an update of its weights for instance
_call_numbers = itertools.count()


def plain_json(data: bytes) -> dict[str, Any]:
    """A JSON object by the standard library, which takes NaN and Infinity as Python servers write them."""
    try:
        reply = json.loads(data)
    except (ValueError, RecursionError):
        raise Fault("malformed", f"the reply is not JSON: {one_line(data, 120)}") from None
    if not isinstance(reply, dict):
        raise Fault("malformed", f"the reply is a JSON {type(reply).__name__}, not an object: {one_line(data, 120)}")
    return reply


def read_plain(reply: Mapping[str, Any], data: bytes = b"") -> Response:
    """A `Response` from plain JSON with fields missing, null or of another type. Raises Fault without choices."""
    choice = first_choice(reply, data)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise Fault("malformed", f"a choice without a message: {_shown(reply, data)}")
    logprobs = choice.get("logprobs")
    scored = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    return Response(
        _plain_message(message),
        finish_reason=end_of(choice),
        usage=plain_usage(reply.get("usage")),
        tokens=_plain_trace(reply, choice, [t for t in _list(scored) if isinstance(t, Mapping)]),
        id=_text(reply.get("id")),
        model=_text(reply.get("model")),
        created=int(_number(reply.get("created")) or 0),
    )


def first_choice(reply: Mapping[str, Any], data: bytes = b"") -> Mapping[str, Any]:
    if "choices" not in reply:
        raise _error_in(reply) or Fault("malformed", f"the reply has no 'choices': {_shown(reply, data)}")
    choices = reply["choices"]
    if not choices:
        raise _error_in(reply) or Fault("empty", "the server returned no choices")
    if not isinstance(choices, list) or not isinstance(choices[0], Mapping):
        raise Fault("malformed", f"'choices' is no list of objects: {_shown(reply, data)}")
    if fault := _error_in(choices[0]):
        raise fault
    return choices[0]


def end_of(choice: Mapping[str, Any]) -> str | None:
    reason = choice.get("finish_reason")
    check_end(reason)
    return reason if isinstance(reason, str) else None


def _error_in(reply: Mapping[str, Any]) -> Fault | None:
    """An error that came with status 200."""
    if not reply.get("error"):
        return None
    words, code = error_of(reply) or ("", "")
    status = next((int(m) for m in code.split() if m.isdigit() and 400 <= int(m) < 600), None)
    return Fault("slow down" if status == 429 else "malformed", f"an error inside a reply: {words}", status=status)


def _plain_message(message: Mapping[str, Any]) -> AssistantMessage:
    content, thinking = text_and_thinking(message.get("content"))
    calls = [c for c in map(_plain_call, _list(message.get("tool_calls"))) if c is not None]
    if not calls and isinstance(old := message.get("function_call"), Mapping):
        calls = [c for c in (_plain_call({"function": old}),) if c is not None]
    result = AssistantMessage(content if content or not calls else None)
    if calls:
        result["tool_calls"] = calls
    given = (message.get("reasoning_content"), message.get("reasoning"), thinking)
    if reasoning := next((r for r in given if r and isinstance(r, str)), None):
        result["reasoning_content"] = reasoning
    for name in ("refusal", "reasoning_details", "thinking_blocks"):
        if value := message.get(name):
            result[name] = value
    return result


def text_and_thinking(content: Any) -> tuple[str, str]:
    """Of text, nothing, or a list of parts."""
    if isinstance(content, str):
        return content, ""
    text, thinking = [], []
    for part in _list(content):
        if isinstance(part, str):
            text.append(part)
        elif isinstance(part, Mapping) and "thinking" in part:
            inner = part["thinking"]
            thinking.append(inner if isinstance(inner, str) else text_and_thinking(inner)[0])
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            text.append(part["text"])
    return "".join(text), "".join(thinking)


def _plain_call(call: Any) -> ToolCall | None:
    if not isinstance(call, Mapping):
        return None
    inner = call.get("function")
    function = inner if isinstance(inner, Mapping) else call
    arguments = function.get("arguments")
    if arguments is None:
        arguments = "{}"
    elif not isinstance(arguments, str):  # an object where text belongs
        arguments = json.dumps(arguments, ensure_ascii=False)
    return tool_call(_text(call.get("id")), _text(function.get("name")), arguments)


def plain_usage(usage: Any) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    prompt = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
    completion = _count(usage.get("completion_tokens", usage.get("output_tokens")))
    details = usage.get("completion_tokens_details")
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=_count(usage.get("total_tokens")),
        reasoning_tokens=_count(details.get("reasoning_tokens")) if isinstance(details, Mapping) else None,
    )


def _plain_trace(
    reply: Mapping[str, Any], choice: Mapping[str, Any], scored: list[Mapping[str, Any]]
) -> TokenTrace | None:
    ids = choice.get("token_ids")
    if not isinstance(ids, list):
        ids = ids_in((t.get("token"), t.get("id", t.get("token_id"))) for t in scored)
    logprobs = [value for t in scored if (value := _number(t.get("logprob"))) is not None]
    if len(logprobs) != len(scored):
        logprobs = []
    if not ids and not logprobs:
        return None
    prompt_ids = reply.get("prompt_token_ids") or choice.get("prompt_token_ids")
    return trace_of(prompt_ids or (), ids, logprobs)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _shown(reply: Any, data: bytes) -> str:
    return one_line(data or repr(reply).encode(), 120)


def check_end(finish_reason: str | None) -> None:
    if finish_reason in _BROKEN_ENDS:
        raise Fault("malformed", f"the server broke off (finish_reason {finish_reason!r})")


def trace_of(prompt_ids: Iterable[int], ids: list[int], logprobs: list[float]) -> TokenTrace:
    if ids and logprobs and len(ids) != len(logprobs):
        raise Fault("malformed", f"{len(ids)} token ids but {len(logprobs)} log-probabilities in one reply")
    try:
        prompt, completion = array("i", prompt_ids).tobytes(), array("i", ids).tobytes()
    except (TypeError, OverflowError):
        raise Fault("malformed", "token ids that are no 32-bit numbers") from None
    return TokenTrace(0, prompt, completion, array("f", logprobs).tobytes())


def ids_in(names: Iterable[tuple[Any, Any]]) -> list[int]:
    """All ids of (token text, id) pairs, or none: a trace with holes would be worse than no trace."""
    ids: list[int] = []
    for text, number in names:
        if isinstance(number, int):
            ids.append(number)
        elif isinstance(text, str) and text.startswith("token_id:") and text[9:].isdigit():
            ids.append(int(text[9:]))
        else:
            return []
    return ids


def tool_call(id: str | None, name: str, arguments: str) -> ToolCall:
    return ToolCall(id or f"call_{next(_call_numbers)}", function={"name": name, "arguments": arguments})
