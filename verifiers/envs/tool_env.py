"""`ToolEnv`: the model calls Python functions until it answers without a call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.calls import AuthorCall
from verifiers.decorators import stop
from verifiers.envs.multiturn_env import MultiTurnEnv
from verifiers.errors import EnvironmentFault, Error, ToolCallError, ToolParseError
from verifiers.images import as_part, shown
from verifiers.rubrics.tool_rubric import ToolRubric, calls_of
from verifiers.tools import as_tool, kept_arguments, parse_arguments, tool_from
from verifiers.types import Message, State, Tool, ToolCall, ToolMessage, as_message, as_tool_call

logger = logging.getLogger("verifiers")

MAX_TOOL_RESULT = 1_000_000  # characters; more would only overflow the context


class ToolEnv(MultiTurnEnv):
    """Tools are functions; their schema comes from signature and docstring.

    Whatever goes wrong in a call (broken arguments, an unknown name, an exception) is told to the model in the tool
    message of that call, by `error_formatter`, and the rollout goes on. Exceptions of a type in `stop_errors` end it.
    `tool_timeout_s` bounds each call.
    """

    def __init__(
        self,
        tools: Sequence[Callable[..., Any]] | None = None,
        max_turns: int = 10,
        error_formatter: Callable[[Exception], str] = str,
        stop_errors: Sequence[type[Exception]] | None = None,
        tool_timeout_s: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(max_turns=max_turns, **kwargs)
        self.error_formatter = error_formatter
        self.stop_errors: list[type[Exception]] = list(stop_errors or ())
        self.tool_timeout_s = tool_timeout_s
        self.tools: list[Callable[..., Any]] = []
        self.tool_map: dict[str, Callable[..., Any]] = {}
        self._tool_calls: dict[str, AuthorCall] = {}
        self.tool_monitor = self._tool_monitor()
        for tool in tools or ():
            self.add_tool(tool)

    def _tool_monitor(self) -> ToolRubric:
        """The author's, where the rubric holds one: two would count every call twice."""
        for rubric in getattr(self.rubric, "rubrics", [self.rubric]):
            if isinstance(rubric, ToolRubric):
                return rubric
        monitor = ToolRubric()
        self.add_rubric(monitor)
        return monitor

    @property
    def tool_monitor_rubric(self) -> ToolRubric:
        """`tool_monitor`, as the classic API calls it."""
        return self.tool_monitor

    @tool_monitor_rubric.setter
    def tool_monitor_rubric(self, rubric: ToolRubric) -> None:
        self.tool_monitor = rubric

    def add_tool(self, tool: Callable[..., Any]) -> None:
        """Offers one more function. Its name must be new."""
        self._register(tool, tool_from(tool))

    def _register(self, tool: Callable[..., Any], definition: Tool) -> None:
        name = definition["name"]
        if name in self.tool_map:
            raise ValueError(f"there is a tool '{name}' already; give one of the two another name")
        self.tools.append(tool)
        self.tool_map[name] = tool
        self._tool_calls[name] = AuthorCall(tool, name)
        self.tool_defs = [*(self.tool_defs or ()), definition]
        self.tool_monitor.watch(name)

    def remove_tool(self, tool: Callable[..., Any] | str) -> None:
        name = tool if isinstance(tool, str) else next((n for n, t in self.tool_map.items() if t == tool), None)
        if name is None or name not in self.tool_map:
            raise ValueError(f"no such tool: {tool} (there are: {', '.join(self.tool_map) or 'none'})")
        self.tools.remove(self.tool_map.pop(name))
        self._tool_calls.pop(name, None)
        self.tool_defs = [d for d in self.tool_defs or () if as_tool(d)["name"] != name] or None
        self.tool_monitor.forget(name)

    @stop
    async def no_tools_called(self, state: State, **kwargs: Any) -> bool:
        """The model answered without a call: that is its answer."""
        trajectory = state["trajectory"]
        return bool(trajectory) and not calls_of(trajectory[-1]["completion"])

    def kept_message(self, message: Message) -> Message:
        """The reply with arguments that every server can take back, see `tools.kept_arguments`."""
        return mended(message)

    async def env_response(self, messages: list[Message], state: State, **kwargs: Any) -> list[Message]:
        """One tool message for each call of the last reply, in order."""
        calls = calls_of(messages[-1:])
        return [await self._answer(call, messages, state, **kwargs) for call in written_calls(state, calls)]

    async def _answer(
        self, call: tuple[ToolCall, Any], messages: list[Message], state: State, **kwargs: Any
    ) -> Message:
        tool_call, written = call
        name, call_id = tool_call.name, tool_call["id"]
        try:
            arguments = self.parse_tool_arguments(written)
        except Exception as error:
            return self._failed(error, call_id, ToolParseError)
        if name in self.tool_map:
            arguments = await self._completed(name, arguments, messages, state, **kwargs)
        try:
            result = await self.call_tool(name, arguments, call_id)
        except Exception as error:
            return self._failed(error, call_id, ToolCallError)
        return as_message(result) if isinstance(result, Mapping) else ToolMessage(tool_content(result), call_id)

    def parse_tool_arguments(self, written: Any) -> dict[str, Any]:
        return parse_arguments(written)

    async def _completed(
        self, name: str, arguments: dict[str, Any], messages: list[Message], state: State, **kwargs: Any
    ) -> dict[str, Any]:
        """The arguments with what the environment adds; `StatefulToolEnv` has something to add."""
        return arguments

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any], tool_call_id: str, **kwargs: Any) -> Message:
        """Runs one tool. Raises what the tool raises, and KeyError for an unknown name."""
        tool, call = self.tool_map.get(tool_name), self._tool_calls.get(tool_name)
        if tool is None:
            raise UnknownTool(tool_name, list(self.tool_map))
        if call is None or call.func is not tool:  # the author wrote into `tool_map`
            call = self._tool_calls[tool_name] = AuthorCall(tool, tool_name)
        result = await call.invoke((), tool_args, self.tool_timeout_s)
        return ToolMessage(content=tool_content(result), tool_call_id=tool_call_id)

    def _failed(self, error: Exception, call_id: str, kind: type[Error]) -> Message:
        if any(isinstance(error, stopping) for stopping in self.stop_errors):
            raise kind(f"{type(error).__name__}: {error}") from error
        return ToolMessage(content=self._error_text(error), tool_call_id=call_id)

    def _error_text(self, error: Exception) -> str:
        try:
            return str(self.error_formatter(error)) or type(error).__name__
        except Exception as broken:
            raise EnvironmentFault(f"error_formatter raised {type(broken).__name__}: {broken}") from broken


def mended(message: Message) -> Message:
    """A reply with arguments that every server can take back, see `tools.kept_arguments`, and an id for each call."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    kept, ids = message.copy(), set()
    kept["tool_calls"] = []
    for index, call in enumerate(map(as_tool_call, calls)):
        call_id = str(call.get("id") or "")
        if not call_id or call_id in ids:  # left out, or given twice: each call needs a reply of its own
            call_id = f"{call_id or 'call'}_{index}"
        ids.add(call_id)
        kept["tool_calls"].append(
            ToolCall(id=call_id, name=str(call.name or ""), arguments=kept_arguments(call.arguments))
        )
    return kept


def written_calls(state: State, kept: list[ToolCall]) -> list[tuple[ToolCall, Any]]:
    """Each call with its arguments as the model wrote them (the conversation holds them mended)."""
    written: list[Any] = []
    if state["trajectory"]:
        reply = getattr(state["trajectory"][-1].get("response"), "message", {})
        written = [as_tool_call(call) for call in reply.get("tool_calls") or ()]
    if [call.name for call in kept] != [call.name for call in written]:  # the author answers other calls
        written = kept
    return [(call, _arguments_of(call, raw)) for call, raw in zip(kept, written, strict=True)]


def _arguments_of(kept: ToolCall, written: ToolCall) -> Any:
    """As the model wrote them, unless the author has put others into the conversation."""
    is_ours = kept.arguments == written.arguments or kept.arguments == kept_arguments(written.arguments)
    return written.arguments if is_ours else kept.arguments


class UnknownTool(KeyError):
    """The model called a tool that does not exist."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(name)
        self.message = f"there is no tool '{name}'; the tools are: {', '.join(known) or 'none'}"

    def __str__(self) -> str:
        return self.message


def tool_content(result: Any) -> Any:
    """A tool's result as the content of its message: text, or text and image parts."""
    if isinstance(result, list) and result and all(isinstance(p, Mapping) and "type" in p for p in result):
        return [as_part(part) for part in result]
    if not isinstance(result, str) and (parts := shown(result)):
        return parts
    text = result if isinstance(result, str) else str(result)
    if not text.isascii():  # half a surrogate pair, as file names and broken JSON have, is no text to send
        text = text.encode("utf-8", "replace").decode()
    if len(text) > MAX_TOOL_RESULT:
        return f"{text[:MAX_TOOL_RESULT]}\n… ({len(text) - MAX_TOOL_RESULT} more characters)"
    return text
