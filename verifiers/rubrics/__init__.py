"""Rubrics: weighted reward functions over a finished rollout. Those with much behind them are loaded on first touch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from verifiers.rubrics.graded import Graded
from verifiers.rubrics.rubric import GroupRewardFunc, RewardFunc, Rubric
from verifiers.rubrics.rubric_group import RubricGroup

if TYPE_CHECKING:
    from verifiers.rubrics.hybrid_math_rubric import HybridMathRubric
    from verifiers.rubrics.judge_rubric import JudgeRubric, read_verdict
    from verifiers.rubrics.math_rubric import MathRubric
    from verifiers.rubrics.tool_rubric import ToolRubric

__all__ = [
    "Graded",
    "GroupRewardFunc",
    "HybridMathRubric",
    "JudgeRubric",
    "MathRubric",
    "RewardFunc",
    "Rubric",
    "RubricGroup",
    "ToolRubric",
    "read_verdict",
]

_HOME_OF = {
    "HybridMathRubric": "verifiers.rubrics.hybrid_math_rubric",
    "JudgeRubric": "verifiers.rubrics.judge_rubric",
    "read_verdict": "verifiers.rubrics.judge_rubric",
    "MathRubric": "verifiers.rubrics.math_rubric",
    "ToolRubric": "verifiers.rubrics.tool_rubric",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'verifiers.rubrics' has no name '{name}'")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
