"""`IFEvalRubric`: strict and loose, for whole prompts and for single instructions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import verifiers as vf


class IFEvalRubric(vf.InstructionRubric):
    """`follows_all` is the reward: every instruction followed, to the letter.

    *Loose* asks whether an instruction is followed by the reply, or by what is left of it without its first line, its
    last line, both, or asterisks: an opener ("Sure, here it is:") or a bold mark then does no harm. `instructions`,
    `followed` and `followed_loosely` are counts, from which accuracy over instructions is made: a mean of shares
    would weigh an instruction by the company it keeps.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for metric in (self.follows_all_loosely, self.instructions_asked, self.followed, self.followed_loosely):
            self.add_metric(metric)

    def follows_all_loosely(self, completion: Any, info: Mapping[str, Any]) -> float:
        return float(self.followed_loosely(completion, info) == self.instructions_asked(info))

    def instructions_asked(self, info: Mapping[str, Any]) -> float:
        return float(len(info["instruction_id_list"]))

    def followed(self, completion: Any, info: Mapping[str, Any]) -> float:
        return float(sum(self._follows(completion, name, given) for name, given in _pairs(info)))

    def followed_loosely(self, completion: Any, info: Mapping[str, Any]) -> float:
        texts = variants(str(self.parser.parse_answer(completion) or ""))
        return float(sum(any(self._follows(text, *pair) for text in texts) for pair in _pairs(info)))

    def _follows(self, completion: Any, name: str, given: Any) -> bool:
        return bool(self.follows_all(self.parser, completion, {}, {"instruction_id_list": [name], "kwargs": [given]}))


def _pairs(info: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(zip(info["instruction_id_list"], info["kwargs"], strict=True))


def variants(reply: str) -> list[str]:
    """The reply and what it is without its first line, its last line, both, and without asterisks; none is empty.

    >>> variants("Sure:\\n*So* it is")
    ['Sure:\\n*So* it is', '*So* it is', 'Sure:', 'Sure:\\nSo it is', 'So it is']
    """
    lines = reply.strip().split("\n")
    cut = ["\n".join(part).strip() for part in (lines, lines[1:], lines[:-1], lines[1:-1])]
    texts = [*cut, *(text.replace("*", "").strip() for text in cut)]
    return [text for text in dict.fromkeys(texts) if text]
