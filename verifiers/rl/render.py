"""`Renderer`: conversations as token ids, the same for supervised training and for reinforcement learning.

A reply is trained on only as the model would make it: behind the very prompt that it would be asked with, up to the
token that ends it. Many chat templates tell the past in another way than it happened (thinking is left out, tools move
to the newest question), so every claim is checked on rendered conversations; what cannot be proved is not trained,
and does not go on in the same tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Messages = Sequence[Mapping[str, Any]]  # OpenAI's shape
Tools = Sequence[Mapping[str, Any]]

THINK_START, THINK_END = "<think>", "</think>"  # as nearly all models that think write it


class RenderError(ValueError):
    """A chat template refuses the conversation; the message is the template's own."""


class ChatTokenizer(Protocol):
    """A tokenizer and its chat template: `chat_tokenizer.load_chat_tokenizer` has one from a model's folder."""

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Control tokens by their text. Text is cut at them before it is tokenised, so that none depends on others."""
        ...

    def text(self, messages: Messages, tools: Tools | None = None, *, add_generation_prompt: bool = False) -> str:
        """Raises RenderError."""
        ...

    def encode(self, text: str) -> list[int]:
        """Control tokens that the text spells out are control tokens; none is added."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation of T tokens. `mask` is 1 where a token is one that the assistant is to learn to write."""

    ids: list[int]  # [T]
    mask: list[int]  # [T]
    untrained: dict[int, str] = field(default_factory=dict[int, str])  # assistant messages that are not, and why


class Renderer(Protocol):
    def prompt(self, messages: Messages, tools: Tools | None = None) -> list[int]:
        """What a model is asked with: the conversation, and the beginning of its reply."""
        ...

    def render(self, messages: Messages, tools: Tools | None = None) -> Rendered:
        """The whole conversation. Raises RenderError."""
        ...

    def sequences(self, messages: Messages, tools: Tools | None = None) -> list[Rendered]:
        """Sequences to train on that hold every reply exactly once, each in the context that it is made in.

        Replies that cannot be trained are in `untrained` of the first. Raises RenderError.
        """
        ...

    def next_turn(
        self, ids_so_far: Sequence[int], past: Messages, new: Messages, tools: Tools | None = None
    ) -> list[int] | None:
        """The prompt of the next turn: `ids_so_far` unchanged, and what the messages `new` add.

        `ids_so_far` are a prompt and the reply that was sampled, `past` the messages that they stand for, the reply
        last. None where it is not shown that the template tells the past in that way still; the caller then asks with
        the whole conversation (`prompt`), which is a fork.
        """
        ...


class TemplateRenderer:
    """Renders with a chat template of any model, and finds by comparing what the assistant wrote in it.

    No `{% generation %}` marks are needed. Each question to the template costs one rendering (some 0.1 ms).
    """

    def __init__(self, chat: ChatTokenizer) -> None:
        self.chat = chat
        longest_first = sorted(chat.special_tokens, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def prompt(self, messages: Messages, tools: Tools | None = None) -> list[int]:
        return self.chat.encode(self.chat.text(messages, tools, add_generation_prompt=True))

    def render(self, messages: Messages, tools: Tools | None = None) -> Rendered:
        return self._within(messages, tools, self._replies(messages, tools))

    def sequences(self, messages: Messages, tools: Tools | None = None) -> list[Rendered]:
        replies = self._replies(messages, tools)
        never = {at: reply for at, reply in replies.items() if isinstance(reply, str)}
        left = {at: reply for at, reply in replies.items() if at not in never}
        found: list[Rendered] = []
        while left:
            newest = max(left)
            rendered = self._within(messages[: newest + 1], tools, left)
            if newest in rendered.untrained:  # not by later messages: there are none
                never[newest] = rendered.untrained[newest]
                del left[newest]
                continue
            found.append(Rendered(rendered.ids, rendered.mask))
            left = {at: reply for at, reply in left.items() if at in rendered.untrained}
        if not found:
            return [self._within(messages, tools, never)]
        return [Rendered(found[0].ids, found[0].mask, never), *found[1:]]

    def _replies(self, messages: Messages, tools: Tools | None) -> dict[int, _Reply | str]:
        """Each reply as it is made, or why it cannot be trained."""
        return {at: self._reply(messages, at, tools) for at, message in enumerate(messages) if _is_reply(message)}

    def _reply(self, messages: Messages, at: int, tools: Tools | None) -> _Reply | str:
        try:
            prompt = self.chat.text(messages[:at], tools, add_generation_prompt=True)
            text = self.chat.text(messages[: at + 1], tools).rstrip()
        except RenderError as error:
            return f"the template refuses the conversation up to here: {error}"
        if not text.startswith(prompt):
            return "the template renders it without the beginning that it gives the model"
        end = self._end_token(text[len(prompt) :])
        if end is None:
            return "the template writes no control token at its end"
        opening = max((found.start() for found in self._special.finditer(prompt)), default=0)
        return _Reply(prompt, opening, text, len(text) - len(end))

    def _within(self, messages: Messages, tools: Tools | None, replies: Mapping[int, _Reply | str]) -> Rendered:
        """The conversation, with those of its `replies` trained that it tells as they are made.

        It is tokenised in pieces that begin with a control token, each once: what the whole would give.
        """
        text = self.chat.text(messages, tools)
        ids, mask, untrained = list[int](), list[int](), dict[int, str]()
        done = 0  # text before it is in `ids`; a control token begins there
        first = 0  # whether that token ends a reply

        def add(end: int) -> list[int]:
            nonlocal done, first
            piece = self.chat.encode(text[done:end]) if end > done else []
            ids.extend(piece)
            mask.extend([first, *[0] * (len(piece) - 1)] if piece else ())
            if piece:
                done, first = end, 0
            return piece

        for at, reply in replies.items():
            if isinstance(reply, str):
                untrained[at] = reply
                continue
            if not text.startswith(reply.text):
                untrained[at] = "the template tells it in another way once more messages follow"
                continue
            add(reply.opening)
            opening = self.chat.encode(reply.prompt[done:])
            piece = add(reply.end)
            if piece[: len(opening)] != opening:
                untrained[at] = "it begins in the middle of a token"
                continue
            if length := len(piece) - len(opening):
                mask[-length:] = [1] * length
            first = 1
        add(len(text))
        return Rendered(ids, mask, untrained)

    def next_turn(
        self, ids_so_far: Sequence[int], past: Messages, new: Messages, tools: Tools | None = None
    ) -> list[int] | None:
        if not ids_so_far or not past or not _is_reply(past[-1]) or not new or any(map(_is_reply, new)):
            return None
        try:
            asked = self.chat.text(past[:-1], tools, add_generation_prompt=True)
            before = self.chat.text(past, tools)
            after = self.chat.text([*past, *new], tools, add_generation_prompt=True)
        except RenderError:
            return None
        end = self._end_token(before)
        # A reply that was cut short or ended in another way is nothing that a template writes.
        if end is None or ids_so_far[-1] != self.chat.special_tokens[end]:
            return None
        # The reply began as it was made to begin, and nothing up to its end is told in another way now. Of the reply
        # itself only the thinking is compared: how a tool call was spelled is what the ids are kept for.
        if not before.startswith(asked) or not after.startswith(before) or not self._tells_thoughts(before, ids_so_far):
            return None
        return [*ids_so_far, *self.chat.encode(after[before.rindex(end) :])[1:]]

    def _tells_thoughts(self, text: str, ids: Sequence[int]) -> bool:
        """Whether the conversation as it is told has the same thoughts as in its tokens."""
        told, thought = _thoughts(text), _thoughts(self.chat.decode(ids))
        return told == thought or [self.chat.decode(self.chat.encode(one)).strip() for one in told] == thought

    def _end_token(self, text: str) -> str | None:
        """The control token that ends the text, but for white space."""
        text = text.rstrip()
        return max((token for token in self.chat.special_tokens if text.endswith(token)), key=len, default=None)


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply as it is made: the prompt, and the text up to the token that ends it."""

    prompt: str
    opening: int  # where the prompt's last control token begins
    text: str  # it begins with the prompt
    end: int  # where the token that ends the reply begins


def _thoughts(text: str) -> list[str]:
    return [part.rpartition(THINK_START)[2].strip() for part in text.split(THINK_END)[:-1]]


def _is_reply(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant"
