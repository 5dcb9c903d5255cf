"""Rubrics: weighted reward functions over a finished rollout. Those with much behind them are loaded on first touch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from verifiers.rubrics.graded import Graded
from verifiers.rubrics.rubric import GroupRewardFunc, RewardFunc, Rubric
from verifiers.rubrics.rubric_group import RubricGroup

if TYPE_CHECKING:
    from verifiers.rubrics.choice_options import shuffle_options
    from verifiers.rubrics.choice_rubric import ChoiceRubric
    from verifiers.rubrics.code_rubric import CodeRubric
    from verifiers.rubrics.hybrid_math_rubric import HybridMathRubric
    from verifiers.rubrics.instruction_rubric import InstructionRubric
    from verifiers.rubrics.judge_canaries import Canary
    from verifiers.rubrics.judge_prompt import LETTER_JUDGE_PROMPT, REASONING_JUDGE_PROMPT
    from verifiers.rubrics.judge_rubric import JudgeRubric
    from verifiers.rubrics.judge_verdict import read_verdict
    from verifiers.rubrics.logic_rubric import LOGIC_TASKS, LogicRubric
    from verifiers.rubrics.logic_task import LogicTask, WrongAnswer
    from verifiers.rubrics.math_rubric import MathRubric
    from verifiers.rubrics.similarity import (
        edit_similarity,
        exact_match,
        numeric_closeness,
        numeric_match,
        rouge_l,
        token_f1,
    )
    from verifiers.rubrics.tool_rubric import ToolRubric

__all__ = [
    "LETTER_JUDGE_PROMPT",
    "LOGIC_TASKS",
    "REASONING_JUDGE_PROMPT",
    "Canary",
    "ChoiceRubric",
    "CodeRubric",
    "Graded",
    "GroupRewardFunc",
    "HybridMathRubric",
    "InstructionRubric",
    "JudgeRubric",
    "LogicRubric",
    "LogicTask",
    "MathRubric",
    "RewardFunc",
    "Rubric",
    "RubricGroup",
    "ToolRubric",
    "WrongAnswer",
    "edit_similarity",
    "exact_match",
    "numeric_closeness",
    "numeric_match",
    "read_verdict",
    "rouge_l",
    "shuffle_options",
    "token_f1",
]

_HOME_OF = {
    "ChoiceRubric": "verifiers.rubrics.choice_rubric",
    "CodeRubric": "verifiers.rubrics.code_rubric",
    "shuffle_options": "verifiers.rubrics.choice_options",
    "HybridMathRubric": "verifiers.rubrics.hybrid_math_rubric",
    "InstructionRubric": "verifiers.rubrics.instruction_rubric",
    "JudgeRubric": "verifiers.rubrics.judge_rubric",
    "Canary": "verifiers.rubrics.judge_canaries",
    "LETTER_JUDGE_PROMPT": "verifiers.rubrics.judge_prompt",
    "REASONING_JUDGE_PROMPT": "verifiers.rubrics.judge_prompt",
    "read_verdict": "verifiers.rubrics.judge_verdict",
    "LOGIC_TASKS": "verifiers.rubrics.logic_rubric",
    "LogicRubric": "verifiers.rubrics.logic_rubric",
    "LogicTask": "verifiers.rubrics.logic_task",
    "WrongAnswer": "verifiers.rubrics.logic_task",
    "MathRubric": "verifiers.rubrics.math_rubric",
    "edit_similarity": "verifiers.rubrics.similarity",
    "exact_match": "verifiers.rubrics.similarity",
    "numeric_closeness": "verifiers.rubrics.similarity",
    "numeric_match": "verifiers.rubrics.similarity",
    "rouge_l": "verifiers.rubrics.similarity",
    "token_f1": "verifiers.rubrics.similarity",
    "ToolRubric": "verifiers.rubrics.tool_rubric",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'verifiers.rubrics' has no name '{name}'")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
