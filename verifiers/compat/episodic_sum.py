"""`EpisodicSumRubric`: the reward of a rollout is the sum of what its turns earned."""

from __future__ import annotations

from typing import Any

from verifiers.rubrics import Rubric
from verifiers.types import State


def sum_step_rewards(state: State, **_: Any) -> float:
    return float(sum(step.get("reward") or 0.0 for step in state["trajectory"]))


class EpisodicSumRubric(Rubric):
    def __init__(self, weight: float = 1.0, **kwargs: Any) -> None:
        super().__init__(funcs=[sum_step_rewards], weights=[weight], **kwargs)
