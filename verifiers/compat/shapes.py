"""Old shapes of author code, turned into today's: pure functions, used at the edge of the rollout loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from verifiers.calls import parameters_of
from verifiers.types import Message, State, TextMessage, as_messages


def env_messages(returned: Any, state: State, message_type: str) -> list[Message]:
    """What `env_response` returned, as messages.

    Since 0.1.8 it returns messages; before, `(messages, state)`, whose state replaces the keys of ours.
    """
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
        returned, changed = returned
        if changed is not state:
            state.update(changed)
    return prompt_messages(returned, message_type)


def prompt_messages(prompt: Any, message_type: str) -> list[Message]:
    """A prompt as messages. Base models are prompted with a text."""
    if prompt is None:
        return []
    if message_type != "chat" and isinstance(prompt, str):
        return [TextMessage(prompt)]
    return as_messages(prompt)


def prompt_text(prompt: list[Message]) -> Any:
    """A base model's prompt as authors read it; messages that hold more than text stay as they are."""
    contents: list[Any] = [m.get("content") for m in prompt]
    return "".join(contents) if all(isinstance(c, str) for c in contents) else prompt


def state_returned(returned: Any, state: State) -> State:
    """The state after `setup_state`, which may return it, a new one, or nothing."""
    if returned is None or returned is state:
        return state
    if isinstance(returned, State):
        if returned.attempt is None:
            returned.attempt = state.attempt
            returned.seed = state.seed
        return returned
    if isinstance(returned, Mapping):
        state.update(returned)
        return state
    raise TypeError(f"setup_state must return the state or None, got {type(returned).__name__}")


def wants_messages(is_completed: Callable[..., Any]) -> bool:
    """Whether an overridden `is_completed` is of the kind before 0.1.8: `(messages, state, **kwargs)`."""
    names = [p.name for p in parameters_of(is_completed) if p.kind is p.POSITIONAL_OR_KEYWORD]
    return bool(names) and names[0] == "messages"


def sampling(args: Mapping[str, Any] | None) -> dict[str, Any]:
    """Sampling arguments without what means nothing (`None`, n=1, an empty extra_body)."""
    return {
        name: value
        for name, value in (args or {}).items()
        if value is not None and not (name == "n" and value == 1) and not (name == "extra_body" and not value)
    }


def info_tools(info: Any) -> Any:
    """A row's own tools: `info["tool_defs"]`, or `info["oai_tools"]` up to 0.1.10; `None` without either."""
    tools = tools_in(info)
    return json.loads(tools) if isinstance(tools, str) else tools


def tools_in(info: Any) -> Any:
    """The same as it stands there, perhaps as JSON text."""
    return (info.get("tool_defs") or info.get("oai_tools")) if info and isinstance(info, dict) else None


def adopt_info_tools(state: State, before: Any) -> None:
    """Tools that `setup_state` put into `info`, where there was another `before`, count from the first turn on."""
    info = state.get("info")
    tools = tools_in(info)
    if tools is not None and tools is not before:
        state["tool_defs"] = info_tools(info)


def rows_of_columns(inputs: Any) -> Any:
    """`{"prompt": [...], "answer": [...]}`, which `generate` took before 0.1.8, as rows; all else as it is."""
    if not isinstance(inputs, dict) or not all(isinstance(column, (list, tuple)) for column in inputs.values()):
        return inputs
    return [dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)]
