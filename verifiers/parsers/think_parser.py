"""ThinkParser: the answer is what follows the model's `<think>...</think>`."""

import re
from collections.abc import Callable
from typing import Any

from verifiers.parsers.parser import FormatRewardFunc, Parser, identity, mean_over_texts

OPENING = "<think>"
CLOSING = "</think>"
_TAG = re.compile(r"</?think>")


class ThinkParser(Parser):
    """For models that always think in tags: without a `</think>` there is no answer, only `""`.

    The format reward of a message is 1 if it starts with `<think>`, has exactly one of each tag and
    some text after `</think>`, else 0; of a completion, the mean over its assistant messages.

    >>> ThinkParser().parse("<think>2 + 1</think> 3")
    '3'
    """

    def __init__(self, extract_fn: Callable[[str], Any] = identity, **kwargs: Any) -> None:
        super().__init__(extract_fn=extract_fn, **kwargs)

    def parse(self, text: str) -> Any:
        return self.extract_fn(strip_reasoning(text) if text and CLOSING in text else "")

    def get_format_reward_func(self) -> FormatRewardFunc:
        def format_reward_func(completion: Any, **kwargs: Any) -> float:
            return mean_over_texts(_follows_think_format, self.assistant_texts(completion))

        return format_reward_func


def strip_reasoning(text: str | None) -> str:
    """What lies outside the reasoning: the text after the last `</think>`, up to a `<think>` that never closes.

    A text without tags is returned whole (stripped). The opening tag may be missing, because many chat
    templates write it into the prompt.
    """
    after = (text or "").rpartition(CLOSING)[2]
    return after.partition(OPENING)[0].strip()


def is_reasoning_unfinished(text: str | None) -> bool:
    """Whether the text ends inside a `<think>` that was never closed: whatever it holds is no answer yet."""
    return OPENING in (text or "").rpartition(CLOSING)[2]


def has_balanced_think_tags(text: str) -> bool:
    """Whether thoughts open and close in turn. The first opening may be missing: it may stand in the prompt."""
    tags = _TAG.findall(text)
    if tags and tags[0] == CLOSING:
        tags.insert(0, OPENING)
    return len(tags) % 2 == 0 and all(tag == (CLOSING if i % 2 else OPENING) for i, tag in enumerate(tags))


def _follows_think_format(text: str) -> float:
    text = text.strip()
    is_right = (
        text.startswith(OPENING)
        and _TAG.findall(text) == [OPENING, CLOSING]
        and bool(text.partition(CLOSING)[2].strip())
    )
    return float(is_right)
