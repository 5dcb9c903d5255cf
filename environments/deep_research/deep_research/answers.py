"""The final answer of a rollout, and whether it is the reference in other writing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import verifiers as vf
from verifiers.tools import parse_arguments
from verifiers.types import as_tool_call

MOST_CHARS = 2_000  # of an answer that is compared
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-")
_TOKEN = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)|\w+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ARTICLE = {"the", "a", "an"}


class FinalAnswer(vf.MaybeThinkParser):
    """What `finish` was called with; else the last reply, if it calls no tool. The first call counts."""

    def parse_answer(self, completion: Any) -> str:
        messages = self.get_assistant_messages(completion)
        for message in messages:
            if (answer := finished_with(message)) is not None:
                return answer
        if isinstance(completion, str) or (messages and not messages[-1].get("tool_calls")):
            return self.parse(self.assistant_texts(completion)[-1])
        return ""


def finished_with(message: Any) -> str | None:
    """The answer that a reply gives by a call of `finish`; `None` when it gives none."""
    for call in map(as_tool_call, message.get("tool_calls") or ()):
        if call.name != "finish":
            continue
        try:
            answer = parse_arguments(call.arguments).get("answer")
        except vf.ToolParseError:
            continue
        if answer is not None and str(answer).strip():
            return str(answer).strip()
    return None


def is_same(answer: str, references: Iterable[str]) -> bool:
    """Whether an answer is one of the references up to case, accents, articles, punctuation and thousands' commas.

    >>> is_same("the River  Lora.", ["River Lora"]), is_same("Lora or Feiva", ["Lora"])
    (True, False)
    """
    found = _tokens(answer)
    return bool(found) and len(answer) <= MOST_CHARS and any(found == _tokens(reference) for reference in references)


def _tokens(text: str) -> list[str]:
    text = unicodedata.normalize("NFKD", text[: MOST_CHARS + 1]).translate(_DASHES)
    text = "".join(c for c in text if not unicodedata.combining(c)).casefold().replace("&", " and ")
    tokens: list[str] = _TOKEN.findall(_THOUSANDS.sub("", text))
    return tokens[1:] if len(tokens) > 1 and tokens[0] in _ARTICLE else tokens
