"""Rubrics: weighted reward functions over a finished rollout. Those with much behind them are loaded on first touch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from verifiers.rubrics.graded import Graded
from verifiers.rubrics.rubric import GroupRewardFunc, RewardFunc, Rubric
from verifiers.rubrics.rubric_group import RubricGroup

if TYPE_CHECKING:
    from verifiers.rubrics.judge_rubric import JudgeRubric, read_verdict
    from verifiers.rubrics.math_rubric import MathRubric

__all__ = [
    "Graded",
    "GroupRewardFunc",
    "JudgeRubric",
    "MathRubric",
    "RewardFunc",
    "Rubric",
    "RubricGroup",
    "read_verdict",
]

_HOME_OF = {
    "JudgeRubric": "verifiers.rubrics.judge_rubric",
    "read_verdict": "verifiers.rubrics.judge_rubric",
    "MathRubric": "verifiers.rubrics.math_rubric",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'verifiers.rubrics' has no name '{name}'")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
