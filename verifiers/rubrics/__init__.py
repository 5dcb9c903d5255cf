"""Rubrics: weighted reward functions over a finished rollout."""

from verifiers.rubrics.rubric import GroupRewardFunc, RewardFunc, Rubric
from verifiers.rubrics.rubric_group import RubricGroup

__all__ = ["GroupRewardFunc", "RewardFunc", "Rubric", "RubricGroup"]
