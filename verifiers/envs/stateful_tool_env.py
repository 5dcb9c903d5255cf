"""`StatefulToolEnv`: tools that also get arguments the model does not see, such as a session or the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from verifiers.calls import AuthorCall
from verifiers.envs.tool_env import ToolEnv
from verifiers.tools import tool_from
from verifiers.types import Message, State


class StatefulToolEnv(ToolEnv):
    """Hide arguments with `add_tool(f, args_to_skip=["session"])` and fill them in `update_tool_args`."""

    def __init__(self, tools: Sequence[Callable[..., Any]] | None = None, max_turns: int = 10, **kwargs: Any) -> None:
        self.skipped_args: dict[str, list[str]] = {}
        super().__init__(tools=tools, max_turns=max_turns, **kwargs)

    def add_tool(self, tool: Callable[..., Any], args_to_skip: Sequence[str] = ()) -> None:
        definition = tool_from(tool, tuple(args_to_skip))
        self._register(tool, definition)
        self.skipped_args[definition["name"]] = list(args_to_skip)

    def remove_tool(self, tool: Callable[..., Any] | str) -> None:
        super().remove_tool(tool)
        self.skipped_args = {name: args for name, args in self.skipped_args.items() if name in self.tool_map}

    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: list[Message], state: State, **kwargs: Any
    ) -> dict[str, Any]:
        """The arguments of a call with the hidden ones filled in. What it raises ends the rollout."""
        raise NotImplementedError(f"{type(self).__name__} must define update_tool_args(self, tool_name, tool_args, …)")

    async def _completed(
        self, name: str, arguments: dict[str, Any], messages: list[Message], state: State, **kwargs: Any
    ) -> dict[str, Any]:
        # what the model may not set it may not smuggle in either
        visible = {k: v for k, v in arguments.items() if k not in self.skipped_args.get(name, ())}
        completed = await self._update_call.invoke((name, visible, messages, state), kwargs)
        if not isinstance(completed, dict):
            raise TypeError(f"update_tool_args must return the arguments as a dict, got {type(completed).__name__}")
        return completed

    @cached_property
    def _update_call(self) -> AuthorCall:
        return AuthorCall(self.update_tool_args)
