"""What new messages add to a conversation that is known in tokens.

Rendered as a whole, a conversation has the model's earlier replies tokenised anew, often into other tokens than the
model made, and many templates leave out their thinking. Then a turn does not continue the one before, and what was
sampled is not what is trained on. So only the new messages are rendered, behind a stand-in for the conversation, and
what comes after the stand-in's reply is put behind the tokens as they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from verifiers.clients.client import Seen
from verifiers.errors import ModelRequestError
from verifiers.records import encode_json

Render = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]  # a chat request as an order: what to generate from

_QUESTION = {"role": "user", "content": "?"}
_TEMPLATE_KEYS = ("model", "tools", "chat_template", "chat_template_kwargs", "documents", "reasoning_effort")
_MOST_TEMPLATES = 64


class ReplyEnd(NamedTuple):
    """How a chat template ends a reply: with token `id`, the `nth` of its kind when one question came before."""

    id: int
    nth: int


class Continuation:
    """Continues conversations in tokens. What it finds out about a template it remembers."""

    def __init__(self) -> None:
        self._ends: dict[bytes, ReplyEnd | None] = {}

    async def order(self, render: Render, asked: dict[str, Any], seen: Seen) -> dict[str, Any] | None:
        """What to generate from for the chat request `asked`; `None` when only rendering it as a whole will do.

        That is so for images, for templates that refuse the stand-in, and where a reply has an end that the template
        does not write.
        """
        messages = asked["messages"]
        reply, new = messages[seen.messages - 1], messages[seen.messages :]
        if not new or any(_has_other_than_text(m) for m in messages):
            return None
        try:
            end = await self._end(render, asked)
            if end is None:
                return None
            stand_in = {"role": "assistant", "content": "A"}
            if calls := reply.get("tool_calls"):  # the answers to them are checked against them by some templates
                stand_in["tool_calls"] = calls
            order = await render({**asked, "messages": [_QUESTION, stand_in, *new]})
        except ModelRequestError:
            return None
        ids = array("i")
        ids.frombytes(seen.ids)
        ends_itself = bool(ids) and ids[-1] == end.id
        if not ends_itself and seen.is_whole and not asked.get("stop"):
            return None
        added = _after(order["token_ids"], end)
        if added is None:
            return None
        return {**order, "token_ids": [*ids, *([] if ends_itself else [end.id]), *added]}

    async def _end(self, render: Render, asked: dict[str, Any]) -> ReplyEnd | None:
        key = encode_json([asked.get(name) for name in _TEMPLATE_KEYS])
        if key not in self._ends:
            found = [await self._rendered_reply(render, asked, text) for text in ("A", "B")]
            if len(self._ends) >= _MOST_TEMPLATES:
                self._ends.clear()
            self._ends[key] = _reply_end(*found)
        return self._ends[key]

    async def _rendered_reply(self, render: Render, asked: dict[str, Any], text: str) -> list[int]:
        messages = [_QUESTION, {"role": "assistant", "content": text}]
        return (await render({**asked, "messages": messages, "add_generation_prompt": False}))["token_ids"]


def _reply_end(one: Sequence[int], other: Sequence[int]) -> ReplyEnd | None:
    """From two conversations that differ in the text of the reply alone: what both have after it."""
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(reversed(one), reversed(other))))
    if not length or length >= min(len(one), len(other)):
        return None
    id = one[-length]
    return ReplyEnd(id, sum(i == id for i in one[: len(one) - length + 1]))


def _after(ids: Sequence[int], end: ReplyEnd) -> Sequence[int] | None:
    """What follows the reply's end."""
    positions = [position for position, id in enumerate(ids) if id == end.id]
    return ids[positions[end.nth - 1] + 1 :] if len(positions) >= end.nth else None


def _has_other_than_text(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(isinstance(p, Mapping) and p.get("type") != "text" for p in content)
