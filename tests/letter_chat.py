"""A chat template and an engine of single letters, for adapters that bring token ids: no torch, no transformers.

Without jinja2, importing it skips the test module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="chat templates are rendered where the extra 'train' is")

END, USER, ASSISTANT = 0, 1, 2
SPECIALS = {"<end>": END, "<user>": USER, "<assistant>": ASSISTANT}
FIRST = 3


class Letters:
    """As much of a tokenizer of transformers as the adapters read."""

    eos_token_id = pad_token_id = END
    name_or_path = "letters"
    chat_template = "letters"
    all_special_ids = (END, USER, ASSISTANT)

    def __init__(self) -> None:
        self.added_tokens_decoder = {n: SimpleNamespace(special=True) for n in SPECIALS.values()}

    def convert_ids_to_tokens(self, number: int) -> str:
        return next(text for text, found in SPECIALS.items() if found == number)

    def apply_chat_template(self, messages: Any, *, add_generation_prompt: bool, **_: Any) -> str:
        text = ""
        for message in messages:
            is_reply = message["role"] == "assistant"
            text += f"<assistant>{message['content']}<end>" if is_reply else f"<user>{message['content']}"
        return text + "<assistant>" * add_generation_prompt

    def encode(self, text: str, **_: Any) -> list[int]:
        ids: list[int] = []
        while text:
            special = next((name for name in SPECIALS if text.startswith(name)), None)
            ids.append(SPECIALS[special] if special else ord(text[0]) - ord("a") + FIRST)
            text = text[len(special) if special else 1 :]
        return ids

    def decode(self, ids: Any, **_: Any) -> str:
        names = {number: text for text, number in SPECIALS.items()}
        return "".join(names[n] if n in names else chr(n - FIRST + ord("a")) for n in ids)


@dataclass
class Engine:
    """Answers the last question by `reply(question, number of the request)`; counts what it was asked."""

    reply: Callable[[str, int], str]
    tokenizer: Letters = field(default_factory=Letters)
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, prompt_ids: list[int], **asked: Any) -> tuple[list[int], list[float]]:
        number = len(self.asked)
        self.asked.append({"prompt_ids": list(prompt_ids), **asked})
        await asyncio.sleep(0)
        question = self.tokenizer.decode(prompt_ids).rpartition("<user>")[2].removesuffix("<assistant>")
        ids = [*self.tokenizer.encode(self.reply(question, number)), END]
        return ids, [-0.25] * len(ids)
