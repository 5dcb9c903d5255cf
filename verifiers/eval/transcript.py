"""`Transcript`: a rollout's messages and scores as lines of text, each message as soon as it is known."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from verifiers.clients.client import Client, ModelRequest
from verifiers.eval import wording
from verifiers.eval.progress import failures_of
from verifiers.parsers.parser import content_text
from verifiers.records import RolloutRecord
from verifiers.types import Response, as_message, as_tool_call

_COLOURS = {"system": "2", "user": "36", "assistant": "32", "tool": "33", "note": "1"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # what would move the terminal's cursor


class Transcript:
    """Writes to `out`; roles are coloured when that is a terminal and NO_COLOR is not set."""

    def __init__(self, out: TextIO, redact: Callable[[str], str] = str) -> None:
        self.out, self.redact = out, redact
        self._is_coloured = out.isatty() and not os.environ.get("NO_COLOR")
        self._shown: list[tuple[Any, Any]] = []  # role and content of what this rollout's reader has seen

    def begin(self, title: str) -> None:
        self._shown = []
        self.line(f"══ {title}", "note")

    def conversation(self, messages: Sequence[Any]) -> None:
        """Shows what is new in the conversation; all of it when its beginning is another one now."""
        keys = [_key(message) for message in messages]
        known = len(self._shown)
        if keys[:known] != self._shown:
            self.line("── the context was rewritten:", "note")
            known = 0
        for message in messages[known:]:
            self.message(message)
        self._shown = keys

    def reply(self, message: Any) -> None:
        """A reply that the next conversation will begin with."""
        self.message(message)
        self._shown.append(_key(message))

    def typed(self, message: Any) -> None:
        """As `reply`, of what its reader has written himself."""
        self._shown.append(_key(message))

    def message(self, message: Any) -> None:
        message = as_message(message)
        role = str(message.get("role"))
        self.line(f"── {role}", role)
        if message.get("reasoning_content"):
            self.line(str(message["reasoning_content"]), "system")
        content = message.get("content")
        text = content_text(content)
        if text or not message.get("tool_calls"):
            self.line(text)
        others = sum(part.get("type") != "text" for part in content) if isinstance(content, list) else 0
        if others:
            self.line(f"[parts that are no text: {others}]")
        for call in message.get("tool_calls") or ():
            call = as_tool_call(call)
            written = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            self.line(f"→ {call.name} {written}")

    def result(self, record: RolloutRecord) -> None:
        """What was not shown yet, then how the rollout ended and what each reward function said."""
        self.conversation([*record.prompt, *record.messages])
        told = "not scored" if record.reward is None else f"reward {record.reward:.4g}"
        ending = f"{told} · status {record.status} · stopped by {record.stop_condition or 'the environment'}"
        self.line(f"══ {ending} · {len(record.turns)} turn{'s' * (len(record.turns) != 1)}", "note")
        width = max((len(score.name) for score in record.scores), default=0)
        for score in record.scores:
            what = wording.number(score.value) if score.status == "scored" else score.status
            line = f"   {score.name:<{width}}  {what:>9}  {wording.weight(score.weight):<6} {score.reason or ''}"
            self.line(line.rstrip())
        for side, kind, message in failures_of(record):
            self.line(f"   failed ({side}): {kind}: {message}")

    def line(self, text: str, role: str = "") -> None:
        """A line or several. What a model wrote cannot move the cursor or change colours."""
        text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", self.redact(text))
        if self._is_coloured and role in _COLOURS:
            text = f"\x1b[{_COLOURS[role]}m{text}\x1b[0m"
        print(text, file=self.out, flush=True)


class ShownClient:
    """A client that shows each request's new messages, and each reply, in a transcript."""

    def __init__(self, client: Client, transcript: Transcript) -> None:
        self.client, self.transcript = client, transcript

    async def complete(self, request: ModelRequest) -> Response:
        self.transcript.conversation(request.messages)
        response = await self.client.complete(request)
        self.transcript.reply(response.message)
        return response

    async def close(self) -> None:
        await self.client.close()

    def status(self) -> str | None:
        return self.client.status()


def _key(message: Any) -> tuple[Any, Any]:
    return message.get("role"), message.get("content")
