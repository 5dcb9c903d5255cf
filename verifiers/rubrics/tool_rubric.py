"""`ToolRubric`: how often the model called tools, as the metrics `total_tool_calls` and `<tool>_calls`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from verifiers.calls import name_of
from verifiers.rubrics.rubric import Rubric
from verifiers.types import State, ToolCall, as_tool_call


class ToolRubric(Rubric):
    """Metrics only; `ToolEnv` adds one by itself, and takes yours instead when its rubric holds one."""

    def __init__(
        self, tools: Sequence[Callable[..., Any]] | None = None, tool_names: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(funcs=[total_tool_calls], weights=[0.0], **kwargs)
        for name in (*map(name_of, tools or ()), *tool_names):
            self.watch(name)

    @property
    def tool_names(self) -> list[str]:
        return [func.tool for func in self.funcs if isinstance(func, _CallCounter)]

    def add_tool_metric(self, tool: Callable[..., Any] | str) -> None:
        """`watch`, as environments of the classic API call it."""
        self.watch(tool if isinstance(tool, str) else name_of(tool))

    def remove_tool_metric(self, tool: Callable[..., Any] | str) -> None:
        self.forget(tool if isinstance(tool, str) else name_of(tool))

    def watch(self, name: str) -> None:
        """Counts the calls of one more tool, once."""
        counter = _CallCounter(name)
        if all(call.name != counter.__name__ for call in self.reward_calls):
            self.add_metric(counter)

    def forget(self, name: str) -> None:
        kept = [call for call in self.reward_calls if call.name != f"{name}_calls"]
        self.funcs, self.weights = [call.func for call in kept], [call.weight for call in kept]


class _CallCounter:
    """The metric `<tool>_calls` of one tool."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.__name__ = f"{tool}_calls"

    def __call__(self, state: State) -> float:
        return float(sum(call["function"]["name"] == self.tool for call in _all_calls(state)))


def calls_of(messages: Sequence[Any]) -> list[ToolCall]:
    """The tool calls of the last message, if it is the model's."""
    last = messages[-1] if messages else None
    if last is None or last.get("role") != "assistant":
        return []
    return [as_tool_call(call) for call in last.get("tool_calls") or ()]


def _all_calls(state: State) -> list[ToolCall]:
    return [call for step in state["trajectory"] for call in calls_of(step["completion"])]


def total_tool_calls(state: State) -> float:
    return float(len(_all_calls(state)))
