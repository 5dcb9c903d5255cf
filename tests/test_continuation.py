"""Adding new messages to a conversation in tokens, with chat templates small enough to be seen at a glance.

A token is a character here; `.` ends a reply. The real thing is asked in `test_vllm.py`.
"""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.attempt import Attempt, Plan
from verifiers.clients.client import Seen
from verifiers.clients.continuation import Continuation
from verifiers.errors import ModelRequestError
from verifiers.records import TokenTrace
from verifiers.types import AssistantMessage, Response, ToolCall, ToolMessage, UserMessage


def ids(text: str) -> list[int]:
    return [ord(c) for c in text]


def text(ids: Any) -> str:
    return "".join(map(chr, ids))


class Template:
    """Renders `<u` and a user's text, `<a` and the model's, each closed by `.` and a line break."""

    def __init__(self) -> None:
        self.rendered: list[list[Any]] = []

    async def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        self.rendered.append(body["messages"])
        opening = "<a" if body.get("add_generation_prompt", True) else ""
        return {"token_ids": ids(self.head(body) + self.shown(body["messages"]) + opening), "model": "m"}

    def head(self, body: dict[str, Any]) -> str:
        return "".join(f"<t{tool}.\n" for tool in body.get("tools", ()))

    def shown(self, messages: list[Any]) -> str:
        return "".join(f"<{m['role'][0]}{m['content']}{m.get('tool_calls') or ''}.\n" for m in messages)


class Thinks(Template):
    """Writes thinking only into what follows the last user message, as Qwen3's template does."""

    def shown(self, messages: list[Any]) -> str:
        last = max(n for n, m in enumerate(messages) if m["role"] == "user")
        return "".join(
            f"<{m['role'][0]}{'[]' if n > last and m['role'] == 'assistant' else ''}{m['content']}.\n"
            for n, m in enumerate(messages)
        )


class Refuses(Template):
    """Wants a first message with a name in it."""

    async def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        raise ModelRequestError("conversation roles must alternate")


async def continued(template: Template, seen: str, *new: Any, is_whole: bool = True, **asked: Any) -> str | None:
    messages = [UserMessage("hello"), AssistantMessage("what it said"), *new]
    order = await Continuation().order(template, {"messages": messages, **asked}, Seen(2, buffer(seen), is_whole))
    return None if order is None else text(order["token_ids"])


def buffer(seen: str) -> bytes:
    return array("i", ids(seen)).tobytes()


@pytest.mark.parametrize("template", [Template(), Thinks()])
@given(reply=st.text(alphabet="ab<\n", max_size=8), new=st.text(alphabet="ab<.\n", max_size=8))
async def test_what_was_seen_is_kept_and_the_new_messages_follow(template, reply, new):
    seen = f"<uhello.\n<a{reply}"
    whole = f"{seen}.\n<u{new}.\n<a"
    assert await continued(template, f"{seen}.", UserMessage(new)) == whole
    if not reply.endswith("."):
        assert await continued(template, seen, UserMessage(new), is_whole=False) == whole


async def test_tools_in_front_and_calls_in_the_reply_are_not_taken_for_what_is_new():
    template, seen = Template(), "<tadd.\n<uhello.\n<acall."
    messages = [UserMessage("hello"), AssistantMessage("", [ToolCall("c", "add", "{}")]), ToolMessage("3", "c")]
    order = await Continuation().order(template, {"messages": messages, "tools": ["add"]}, Seen(2, buffer(seen)))
    assert text(order["token_ids"]) == f"{seen}\n<t3.\n<a"


async def test_each_turn_renders_only_what_is_new():
    template, continuation = Template(), Continuation()
    messages, seen = [UserMessage("hello")], "<uhello.\n<aone."
    for turn in range(5):
        messages += [AssistantMessage("one"), UserMessage(str(turn))]
        request = Seen(len(messages) - 1, buffer(seen))
        order = await continuation.order(template, {"messages": messages}, request)
        seen = text(order["token_ids"]) + "one."
    assert [len(rendered) for rendered in template.rendered] == [2, 2, 3, 3, 3, 3, 3]


async def test_what_cannot_be_continued_is_left_to_a_whole_rendering():
    image = UserMessage([{"type": "image_url", "image_url": {"url": "data:"}}])
    assert await continued(Template(), "<uhello.\n<aone.", image) is None
    assert await continued(Refuses(), "<uhello.\n<aone.", UserMessage("x")) is None
    assert await continued(Template(), "<uhello.\n<aone!", UserMessage("x")) is None, "another end than the template's"
    assert await continued(Template(), "<uhello.\n<aone.") is None, "nothing is new"


async def test_a_reply_cut_by_a_stop_string_is_ended_as_the_template_does():
    found = await continued(Template(), "<uhello.\n<aone!", UserMessage("x"), stop=["!"])
    assert found == "<uhello.\n<aone!.\n<ux.\n<a"


# --- when a conversation still is what was seen ---------------------------------------------------------------------

ASKED = ("m", "client", None)


def attempt_after(reply: AssistantMessage, finish_reason: str = "stop") -> tuple[Attempt, list[Any]]:
    attempt, history = Attempt(Plan(), []), [UserMessage("hello"), reply]
    attempt.asked, attempt.seen = ASKED, buffer("hi")
    tokens = TokenTrace.of([1], [2])
    attempt.remember(history, Response(reply.copy(), tokens=tokens, finish_reason=finish_reason))
    return attempt, history


def test_a_conversation_that_only_grew_is_known():
    attempt, history = attempt_after(AssistantMessage("yes"))
    assert attempt.seen_in([*history, UserMessage("x")], ASKED) == Seen(2, buffer("hi"), True)
    attempt, history = attempt_after(AssistantMessage("yes"), "length")
    assert attempt.seen_in([*history, UserMessage("x")], ASKED) == Seen(2, buffer("hi"), False)


@pytest.mark.parametrize(
    "change",
    [
        lambda history: history[0].update(content="other"),
        lambda history: history[1].update(content="other"),
        lambda history: history[1].update(reasoning_content="other"),
        lambda history: history.pop(0),
        lambda history: history.insert(0, UserMessage("x")),
    ],
)
def test_a_conversation_that_was_changed_is_not(change):
    attempt, history = attempt_after(AssistantMessage("yes", reasoning_content="because"))
    change(history)
    assert attempt.seen_in([*history, UserMessage("x")], ASKED) is None


def test_another_model_client_or_tools_were_not_told():
    attempt, history = attempt_after(AssistantMessage("yes"))
    history.append(UserMessage("x"))
    for asked in (("other", "client", None), ("m", "other", None), ("m", "client", ["add"])):
        assert attempt.seen_in(history, asked) is None


def test_ids_of_the_reply_alone_are_not_a_beginning():
    attempt, history = attempt_after(AssistantMessage("yes"))
    attempt.remember(history, Response(AssistantMessage("yes"), tokens=TokenTrace.of([], [2])))
    assert attempt.seen_in([*history, UserMessage("x")], ASKED) is None
