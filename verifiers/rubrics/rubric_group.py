"""`RubricGroup`: several rubrics over the same rollout; their rewards add up, each keeps its own parser."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from msgspec.structs import replace

from verifiers.compat.scores import is_asked_as_of_old, score_all_by_override, score_as_of_old, score_by_override
from verifiers.compat.signatures import is_of_old
from verifiers.records import Score
from verifiers.rubrics.rubric import RewardCall, Rubric, total, write_advantages, write_scores
from verifiers.types import State

logger = logging.getLogger("verifiers")


class RubricGroup(Rubric):
    """>>> group = RubricGroup([Rubric(funcs=[len]), Rubric(funcs=[sum], weights=[0.5])])
    >>> group.weights
    [1.0, 0.5]
    """

    def __init__(self, rubrics: Sequence[Rubric] | None = None, **attributes: Any) -> None:
        if not rubrics:
            raise ValueError("RubricGroup needs at least one rubric")
        self.rubrics = list(rubrics)
        super().__init__(parser=self.rubrics[0].parser, **attributes)

    @property
    def reward_calls(self) -> list[RewardCall]:
        """The members own the functions."""
        return [call for rubric in self.rubrics for call in rubric.reward_calls]

    @property
    def funcs(self) -> list[Callable[..., Any]]:
        return [call.func for call in self.reward_calls]

    @funcs.setter
    def funcs(self, value: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """`Rubric.__init__` starts with none."""

    @property
    def weights(self) -> list[float]:
        return [call.weight for call in self.reward_calls]

    @weights.setter
    def weights(self, value: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As for `funcs`."""

    @property
    def needs_group(self) -> bool:
        return any(rubric.needs_group for rubric in self.rubrics)

    def add_reward_func(self, func: Callable[..., Any], weight: float = 1.0) -> None:
        logger.warning("RubricGroup.add_reward_func: %s goes to the first rubric", getattr(func, "__name__", func))
        self.rubrics[0].add_reward_func(func, weight)

    def add_class_object(self, name: str, obj: Any) -> None:
        for rubric in self.rubrics:
            rubric.add_class_object(name, obj)

    async def score_rollout(self, state: State | Any = None, *of_old: Any, **named: Any) -> Any:
        if (named or type(state) is not State) and is_asked_as_of_old(state, named):
            return await score_as_of_old(partial(RubricGroup.score_rollout, self), (state, *of_old), named)
        began = time.perf_counter()
        scores: list[Score] = []
        for rubric in self.rubrics:
            scores += await scores_of(rubric, state)
        write_scores(state, scores, time.perf_counter() - began)

    async def score_group(self, states: list[State]) -> None:
        began = time.perf_counter()
        rows: list[list[Score]] = [[] for _ in states]
        for rubric in self.rubrics:
            for row, scores in zip(rows, await group_scores_of(rubric, states), strict=True):
                row += scores
        for state, row in zip(states, rows, strict=True):
            write_scores(state, row, time.perf_counter() - began)
        write_advantages(states)

    async def cleanup(self, state: State) -> None:
        for rubric in self.rubrics:
            await rubric.cleanup(state)

    async def check_setup(self) -> None:
        for rubric in self.rubrics:
            await rubric.check_setup()

    async def teardown(self) -> None:
        for rubric in self.rubrics:
            await rubric.teardown()


def as_of_today(rubric: Rubric) -> Rubric:
    """The rubric, or a group of it alone when it overrides what was called up to 0.1.7: a group knows how."""
    return RubricGroup([rubric]) if _is_of_old(type(rubric)) else rubric


@lru_cache(256)
def _is_of_old(kind: type[Rubric]) -> bool:
    method: Any = kind.score_rollout
    return kind.score_rollouts is not Rubric.score_rollouts or is_of_old(partial(method, None), "state")


async def scores_of(rubric: Rubric, state: State) -> list[Score]:
    """A member's scores. One that overrides `score_rollout` is run as it is and its results are read back."""
    if type(rubric).score_rollout is Rubric.score_rollout:
        if type(rubric).score_rollouts is Rubric.score_rollouts:
            return await rubric.individual_scores(state)
        return (await group_scores_of(rubric, [state]))[0]
    _forget_scores(state)
    if is_of_old(rubric.score_rollout, "state"):
        await score_by_override(rubric, state)
    else:
        await rubric.score_rollout(state)
    return scores_in(state)


async def group_scores_of(rubric: Rubric, states: list[State]) -> list[list[Score]]:
    own_group = type(rubric).score_group is not Rubric.score_group
    if not own_group and type(rubric).score_rollouts is not Rubric.score_rollouts:
        await score_all_by_override(rubric, states)
        return [scores_in(state) for state in states]
    if not own_group and type(rubric).score_rollout is Rubric.score_rollout:
        return await rubric.group_scores(states)
    if own_group:
        for state in states:
            _forget_scores(state)
        await rubric.score_group(states)
        return [scores_in(state) for state in states]
    return [await scores_of(rubric, state) for state in states]


def _forget_scores(state: State) -> None:
    """What another member of the group wrote must not be read as this one's."""
    state["scores"] = state["metrics"] = state["reward"] = None


def scores_in(state: State) -> list[Score]:
    """The scores that a rubric has just written, made up from `metrics` and `reward` if it wrote only these.

    A reward that is not what its scores give (an author clipped it, say) is a score of its own.
    """
    scores: list[Score] | None = state.get("scores")
    reward, metrics = state.get("reward"), state.get("metrics") or {}
    state["scores"] = None
    if scores is not None and total(scores) == reward:
        return scores
    known = {score.name: score for score in scores or ()}
    made = [_metric(name, value, known.get(name)) for name, value in metrics.items()]
    return [*made, _written("reward", 1.0, reward)]


def _metric(name: str, value: float | None, known: Score | None) -> Score:
    if known is not None and known.value == value:
        return replace(known, weight=0.0)
    return _written(name, 0.0, value)


def _written(name: str, weight: float, value: Any) -> Score:
    """The score of a number that a rubric wrote itself."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isfinite(number):
        return Score(name=name, weight=weight, value=number)
    reason = f"the rubric wrote {str(value)[:60]!r}, not a finite number"
    return Score(name=name, weight=weight, value=None, status="fault", reason=reason, side="reward")
