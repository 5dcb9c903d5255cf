"""`ResearchRubric`: right or wrong, by rule, and by a judge where there is one; and what the research took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import verifiers as vf
from deep_research.answers import FinalAnswer, finished_with, is_same
from deep_research.session import Research
from verifiers.rubrics.graded import RESCUED


class ResearchRubric(vf.JudgeRubric):
    """`correct_answer` is 1.0 for an answer that is the reference by rule, or that the judge accepts.

    Without `asks_judge` the rule alone decides. A judge that fails is a fault of the judge, never a 0.0.
    """

    def __init__(self, asks_judge: bool, **judge: Any) -> None:
        super().__init__(parser=FinalAnswer(), **judge)
        self.asks_judge = asks_judge
        self.add_reward_func(self.correct_answer)
        for metric in (finished, provider_faults, page_errors):
            self.add_metric(metric)

    async def correct_answer(
        self, prompt: Any, completion: Any, answer: str, info: Mapping[str, Any], state: vf.State
    ) -> float:
        """Raises JudgeError when the judge failed, Undecided when it could not tell."""
        if not str(answer).strip():
            raise vf.RewardFault("the row has no reference answer")
        found = self.parser.parse_answer(completion)
        if is_same(found, [answer, *(info.get("aliases") or ())]):
            return 1.0
        if not self.asks_judge:
            return vf.Graded(0.0, "not the reference" if found else "no answer")
        verdict = await self.verdict(prompt, completion, answer, state)
        return vf.Graded(1.0, RESCUED) if verdict else verdict


def finished(completion: Any) -> float:
    """1 when the answer was given by `finish`."""
    messages: Any = () if isinstance(completion, str) else completion
    return float(any(finished_with(message) is not None for message in messages))


def provider_faults(state: vf.State) -> float:
    return float(_research(state).faults)


def page_errors(state: vf.State) -> float:
    return float(_research(state).page_errors)


def _research(state: vf.State) -> Research:
    if "research" not in state:
        raise vf.Undecided("counted while the rollout runs; a saved one does not have it")
    return state["research"]
