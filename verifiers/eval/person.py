"""`Person`: a client whose replies are typed by somebody at the terminal."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from verifiers.clients.client import ModelRequest
from verifiers.errors import ConfigError
from verifiers.eval.transcript import Transcript
from verifiers.types import AssistantMessage, Message, Response, TextMessage, Tool, ToolCall

HINT = "(your reply; an empty line or . sends it, the end of input leaves)"
TOOL_HINT = '(or calls, one a line: name(argument=1) or {"name": "…", "arguments": {…}})'


class Person:
    """Shows what is new and reads a reply. At the end of input it calls `on_end` and breaks off the rollout."""

    def __init__(self, transcript: Transcript, source: TextIO, *, message_type: str = "chat") -> None:
        self.transcript, self.source, self.message_type = transcript, source, message_type
        self.on_end: Callable[[], None] = lambda: None
        self._was_told = False

    async def complete(self, request: ModelRequest) -> Response:
        """Blocks the event loop while somebody types: nothing else is going on."""
        self.transcript.conversation(request.messages)
        tools = request.tools or []
        if not self._was_told:
            self.transcript.line(f"{HINT} {TOOL_HINT if tools else ''}".rstrip(), "system")
            self._was_told = True
        began = time.perf_counter()
        while True:
            text = self._typed()
            if text is None:
                self.on_end()
                await asyncio.sleep(0)  # where the cancel arrives
                raise asyncio.CancelledError
            try:
                message = self._message(text, tools)
                break
            except ConfigError as error:
                self.transcript.line(f"{error} Nothing was sent: write it again.", "note")
        self.transcript.typed(message)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        return Response(message, finish_reason=reason, model=request.model, model_s=time.perf_counter() - began)

    async def close(self) -> None:
        pass

    def status(self) -> str | None:
        return None

    def _message(self, text: str, tools: Sequence[Tool]) -> Message:
        if self.message_type == "completion":
            return TextMessage(text)
        return AssistantMessage(None if (calls := tool_calls(text, tools)) else text, tool_calls=calls)

    def _typed(self) -> str | None:
        """The lines up to an empty one, to "." or to the end of input; `None` when the input had ended before."""
        lines: list[str] = []
        while True:
            print("> ", end="", file=self.transcript.out, flush=True)
            line = self.source.readline()
            if not line:
                return "\n".join(lines) if lines else None
            line = line.rstrip("\r\n")
            if line == ".":  # alone it sends an empty reply
                return "\n".join(lines)
            if line.strip():
                lines.append(line)
            elif lines:
                return "\n".join(lines)


def tool_calls(text: str, tools: Sequence[Tool]) -> list[ToolCall]:
    """The calls that `text` consists of; none when it is an answer in words.

    Raises ConfigError for what starts like a call of one of the tools and is none.

    >>> [call.arguments for call in tool_calls("add(1, b=2)", [Tool("add", parameters={"properties": {"a": {}}})])]
    ['{"a": 1, "b": 2}']
    """
    if not tools or not text.strip():
        return []
    written = _from_json(text)
    if written is None:
        names = "|".join(re.escape(tool["name"]) for tool in tools)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not all(re.match(rf"({names})\s*\(", line) or _from_json(line) for line in lines):
            return []
        written = [call for line in lines for call in _from_json(line) or [_from_python(line, tools)]]
    return [ToolCall(id=f"call_{number}", name=n, arguments=json.dumps(a)) for number, (n, a) in enumerate(written)]


def _from_json(text: str) -> list[tuple[str, Any]] | None:
    """Calls as JSON: one object, or a list of them; `None` when it is something else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    calls = value if isinstance(value, list) else [value]
    if not calls or not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        return None
    return [(call["name"], call.get("arguments", call.get("parameters", {}))) for call in calls]


def _from_python(line: str, tools: Sequence[Tool]) -> tuple[str, dict[str, Any]]:
    try:
        call = ast.parse(line, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("that is no call")
        name = call.func.id
        properties = next(
            list((tool["parameters"] or {}).get("properties") or {}) for tool in tools if tool["name"] == name
        )
        if len(call.args) > len(properties):
            raise ValueError(f"{name} takes {len(properties)} arguments: {', '.join(properties)}")
        arguments = {key: ast.literal_eval(value) for key, value in zip(properties, call.args)}
        arguments |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        json.dumps(arguments)
    except (SyntaxError, ValueError, TypeError, StopIteration) as error:
        told = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConfigError(f"'{line[:80]}' is no call that can be read: {told}.") from None
    return name, arguments
