"""MaybeThinkParser: like ThinkParser, for models that may or may not think in tags."""

from collections.abc import Callable
from typing import Any

from verifiers.parsers.parser import FormatRewardFunc, Parser, identity, mean_over_texts
from verifiers.parsers.think_parser import has_balanced_think_tags, strip_reasoning


class MaybeThinkParser(Parser):
    r"""The text outside the reasoning; without tags, the whole text.

    A thought that never closed holds no answer: a draft in it must not be scored. The format reward of
    a message is 1 unless its think tags do not pair up (an opening one may stand in the prompt).

    >>> from verifiers.parsers import extract_boxed_answer
    >>> parser = MaybeThinkParser(extract_boxed_answer)
    >>> parser.parse(r"so three</think>\boxed{3}"), parser.parse(r"<think>maybe \boxed{3}")
    ('3', '')
    """

    def __init__(self, extract_fn: Callable[[str], Any] = identity, **kwargs: Any) -> None:
        super().__init__(extract_fn=extract_fn, **kwargs)

    def parse(self, text: str) -> Any:
        return self.extract_fn(strip_reasoning(text))

    def get_format_reward_func(self) -> FormatRewardFunc:
        def format_reward_func(completion: Any, **kwargs: Any) -> float:
            texts = self.assistant_texts(completion)
            # Nothing was asked of a completion without a message, so nothing was broken either.
            return mean_over_texts(lambda text: float(has_balanced_think_tags(text)), texts) if texts else 1.0

        return format_reward_func
