"""`ChoiceRubric`: whether the reply chooses the right option of a multiple-choice question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from verifiers.parsers import MaybeThinkParser, Parser, content_text, is_reasoning_unfinished, message_field
from verifiers.rubrics.choice_answers import NOT_MARKED, choice_in, marked_choice
from verifiers.rubrics.choice_options import gold_letter, read_options
from verifiers.rubrics.graded import Graded
from verifiers.rubrics.rubric import Rubric


class ChoiceRubric(Rubric):
    r"""Rewards the right option: 1.0 or 0.0, as the metric `correct_choice`.

    `info["options"]` holds the options in the order shown (`vf.shuffle_options` writes them), `answer` the letter or
    the text of the right one. The reply's choice is its last `\boxed{…}`, else its last "Answer: X" or "the answer is
    X", else the reply is an option's text. A letter that merely stands somewhere is no answer, and two are none.

    With a parser of one's own, what it finds is the answer, as if boxed: `vf.XMLParser(["answer"])`; and
    `vf.MaybeThinkParser()` for replies of one letter.

    >>> rubric, info = ChoiceRubric(), {"options": ["Rome", "Paris"]}
    >>> rubric.correct_choice(rubric.parser, "The answer is (B).", "B", info)
    1.0
    """

    def __init__(
        self,
        funcs: Sequence[Callable[..., Any]] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(funcs=funcs, weights=weights, parser=parser or MaybeThinkParser(), **attributes)
        self.is_marked_by_parser = parser is not None
        self.add_reward_func(self.correct_choice)

    def correct_choice(self, parser: Parser, completion: Any, answer: Any, info: Any, prompt: Any = None) -> float:
        """Raises RewardFault for a row without options, or whose answer is none of them."""
        options = read_options(info)
        right = gold_letter(answer, options)
        texts = parser.assistant_texts(completion)
        if not texts:
            return Graded(0.0, "the model wrote nothing")
        if is_reasoning_unfinished(texts[-1]):
            return Graded(0.0, "reasoning not finished")
        if _is_echo(texts[-1], prompt):
            return Graded(0.0, "the reply repeats the prompt")
        found = parser.parse_answer(completion)
        if found is None:
            return Graded(0.0, NOT_MARKED.reason)
        chosen = marked_choice(str(found), options) if self.is_marked_by_parser else NOT_MARKED
        if chosen.letter is None:
            chosen = choice_in(str(found), options)
        if chosen.letter is None:
            return Graded(0.0, chosen.reason)
        return 1.0 if chosen.letter == right else 0.0


def _is_echo(reply: str, prompt: Any) -> bool:
    """Whether the reply is the prompt's last message again: examples in it may look like answers."""
    messages = [prompt] if isinstance(prompt, str) else list(prompt or ())
    last = messages[-1] if messages else ""
    asked = last if isinstance(last, str) else content_text(message_field(last, "content"))
    return bool(asked.strip()) and reply.split() == asked.split()
