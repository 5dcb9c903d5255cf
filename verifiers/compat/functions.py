"""Functions that classic releases kept in `verifiers.utils`: messages, replies, tools, clients, small files.

Each is a thin shell on what this library has of its own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from verifiers.calls import name_of
from verifiers.decorators import marked
from verifiers.tools import tool_from
from verifiers.types import AssistantMessage, Message, Response, TextMessage, Tool, as_message, as_messages

VALID_TOOL_CONTENT_PART_TYPES = frozenset({"text", "image_url"})

# Messages


def normalize_messages(value: Any, *, field_name: str = "messages") -> list[Message]:
    """Our messages from any; a str is a base model's text."""
    if isinstance(value, str):
        return [TextMessage(value)]
    try:
        return as_messages(value)
    except TypeError as error:
        raise TypeError(f"{field_name}: {error}") from None


def concat_messages(messages_list: Iterable[Any]) -> list[Message]:
    return [message for messages in messages_list for message in normalize_messages(messages)]


def message_to_printable(message: Any) -> dict[str, Any]:
    """The message with a word in place of each image or sound."""
    shown = as_message(message).model_dump()
    if isinstance(shown.get("content"), list):
        shown["content"] = "\n\n".join(_printable_part(part) for part in shown["content"])
    return shown


def messages_to_printable(messages: Any) -> Any:
    return messages if isinstance(messages, str) else [message_to_printable(m) for m in messages or ()]


def _printable_part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    return str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type', 'part')}]"


def serialize_message_for_output(message: Any) -> dict[str, Any]:
    return as_message(message).model_dump()


def serialize_messages_for_output(messages: Any) -> Any:
    """Plain dicts, as JSON takes them."""
    return (
        messages if messages is None or isinstance(messages, str) else [m.model_dump() for m in as_messages(messages)]
    )


def sanitize_tool_calls(messages: Any) -> Any:
    """Messages whose tool calls are JSON text: rows of one column must have one shape."""
    if isinstance(messages, str):
        return messages
    plain = [dict(as_message(m)) for m in messages]
    return [
        {**m, "tool_calls": [json.dumps(call) for call in m["tool_calls"]]} if m.get("tool_calls") else m for m in plain
    ]


def without_nones(message: Any) -> Message:
    """The message whose parts have no empty fields: rows of one Arrow column share their keys."""
    kept = as_message(message).copy()
    if isinstance(kept.get("content"), list):
        kept["content"] = [_filled(part) if isinstance(part, Mapping) else part for part in kept["content"]]
    return kept


def strip_nones_from_content(messages: Any) -> Any:
    return messages if isinstance(messages, str) else [without_nones(message) for message in messages]


def _filled(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None}


# Replies


async def parse_response_messages(response: Any, message_type: str = "chat") -> list[Message] | str:
    """The assistant's message of a reply, in a list; the text of a completion, as it was up to 0.1.9."""
    choice = response.choices[0]
    if message_type == "completion":
        return choice.text or ""
    return [as_message(choice.message)]


async def parse_is_truncated(response: Any, message_type: str = "chat") -> bool:
    """Whether the reply ended because its length was used up."""
    return response is not None and response.choices[0].finish_reason == "length"


async def parse_response_message(response: Response) -> list[Message]:
    message = as_message(response.choices[0].message)
    return [message if message.get("role") == "assistant" else AssistantMessage(message.get("content"))]


async def parse_response_tokens(
    response: Any, message_type: str = "chat", max_seq_len: int | None = None
) -> dict[str, Any] | None:
    """A reply's tokens as lists with masks, cut to `max_seq_len`; `None` when the server sent no ids.

    The second argument may be the length, as it was from 0.1.11.
    """
    if not isinstance(message_type, str):
        max_seq_len = message_type
    found = _token_lists(response)
    if found is None:
        return None
    prompt_ids, completion_ids, logprobs = found
    limit = len(prompt_ids) + len(completion_ids) if max_seq_len is None else max_seq_len
    room = max(limit - len(prompt_ids), 0)
    kept = completion_ids[:room]
    return {
        "prompt_ids": prompt_ids[:limit],
        "prompt_mask": [0] * len(prompt_ids[:limit]),
        "completion_ids": kept,
        "completion_mask": [1] * len(kept),
        "completion_logprobs": logprobs[:room],
        "overlong_prompt": len(prompt_ids) > limit,
        "is_truncated": len(prompt_ids) + len(completion_ids) > limit,
        "routed_experts": None,
    }


def _token_lists(response: Any) -> tuple[list[int], list[int], list[float]] | None:
    """(prompt ids, completion ids, log-probabilities) of a reply of ours, or of one as vLLM sends it."""
    trace = getattr(response, "tokens", None)
    if trace is not None:
        if trace.prefix_length:
            raise ValueError(
                "this reply's prompt is kept as a continuation of the turn before; "
                'its tokens are in state["trajectory"][i]["tokens"]'
            )
        if not trace.completion_ids:
            return None
        return list(trace.prompt_ids), list(trace.completion_ids), list(trace.logprobs)
    prompt_ids = getattr(response, "prompt_token_ids", None)
    if prompt_ids is None:
        return None
    choice = response.choices[0]
    content = getattr(getattr(choice, "logprobs", None), "content", None) or ()
    logprobs = [item["logprob"] if isinstance(item, Mapping) else item.logprob for item in content]
    return list(prompt_ids), list(getattr(choice, "token_ids", None) or ()), logprobs


# Tools


def convert_func_to_tool_def(func: Callable[..., Any]) -> Tool:
    return tool_from(func)


def convert_func_to_oai_tool(func: Callable[..., Any]) -> dict[str, Any]:
    """The same in the shape of the OpenAI API, as it was up to 0.1.10."""
    return tool_from(func).wire()


def is_valid_tool_content_parts(value: Any) -> bool:
    """Whether a tool's result goes into its message as it is: a list of text and image parts."""
    return isinstance(value, list) and all(
        isinstance(part, dict) and part.get("type") in VALID_TOOL_CONTENT_PART_TYPES for part in value
    )


def filter_signature(func: Callable[..., Any], args_to_skip: Sequence[str]) -> Callable[..., Any]:
    """`func` behind a signature without some of its arguments, for a schema; the call itself takes all."""
    if not args_to_skip:
        return func

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    hidden = {*args_to_skip, "self"}
    signature = inspect.signature(func)
    shown = [p for name, p in signature.parameters.items() if name not in hidden]
    wrapper.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {k: v for k, v in getattr(func, "__annotations__", {}).items() if k not in hidden}
    wrapper.__name__ = name_of(func)
    return wrapper


def discover_decorated(owner: Any, kind: str) -> list[Callable[..., Any]]:
    return marked(owner, kind)


# Clients


def setup_openai_client(config: Any) -> Any:
    """An `AsyncOpenAI` for the server that a `ClientConfig` describes; of several replicas, the one of `client_idx`."""
    from openai import AsyncOpenAI

    from verifiers.clients import Endpoint

    endpoint = Endpoint.of(config)
    number = config.get("client_idx", 0) if isinstance(config, Mapping) else 0
    chosen = endpoint.all_replicas[number % len(endpoint.all_replicas)]
    return AsyncOpenAI(
        api_key=chosen.key() or "EMPTY",
        base_url=chosen.base_url,
        timeout=chosen.timeout_s,
        max_retries=chosen.max_retries,
        default_headers=dict(chosen.headers),
        default_query=dict(chosen.query),
    )


# Files and waiting


def write_temp_file(content: str, suffix: str = ".txt") -> str:
    """The path of a new file with this text. Whoever asks for it removes it."""
    with tempfile.NamedTemporaryFile("w", delete=False, suffix=suffix, encoding="utf-8") as file:
        file.write(content)
        return file.name


async def maybe_semaphore(limit: int | None = None) -> AbstractAsyncContextManager[Any]:
    """A semaphore, or no limit at all."""
    return asyncio.Semaphore(limit) if limit and limit > 0 else nullcontext()


async def with_sem(sem: AbstractAsyncContextManager[Any], coro: Any) -> Any:
    """Awaits `coro` inside `sem`; closes it when it never began."""
    try:
        async with sem:
            return await coro
    finally:
        coro.close()
