"""Old shapes of author code, turned into today's: pure functions, used at the edge of the rollout loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from verifiers.calls import parameters_of
from verifiers.types import Message, State, as_messages


def env_messages(returned: Any, state: State) -> list[Message]:
    """What `env_response` returned, as messages.

    Since 0.1.8 it returns messages; before, `(messages, state)`, whose state replaces the keys of ours.
    """
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
        returned, changed = returned
        if changed is not state:
            state.update(changed)
    if returned is None:
        return []
    return as_messages(returned)


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
    if not info or not isinstance(info, dict):
        return None
    tools = info.get("tool_defs") or info.get("oai_tools")
    return json.loads(tools) if isinstance(tools, str) else tools
