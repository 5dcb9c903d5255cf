"""`Rubric`: weighted reward functions over a finished rollout.

A reward function returns a finite number, or raises `vf.Undecided(reason)`. Whatever else it raises or returns is a
fault of the reward, and its score is `None`: a broken grader must not look like a wrong answer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from verifiers.calls import AuthorCall, maybe_await, parameters_of
from verifiers.compat.old_rubric_names import OldRubricNames
from verifiers.compat.scores import is_asked_as_of_old, score_all, score_as_of_old
from verifiers.decorators import marked_names
from verifiers.errors import Undecided, one_line, side_of
from verifiers.parsers import Parser
from verifiers.records import JudgeInfo, Score
from verifiers.rubrics.graded import asked_judges
from verifiers.types import State

logger = logging.getLogger("verifiers")

RewardFunc = Callable[..., float | Awaitable[float]]
GroupRewardFunc = Callable[..., list[float] | Awaitable[list[float]]]

_GROUP_NAMES = frozenset({"prompts", "completions", "answers", "states", "tasks", "infos"})


class RewardCall(AuthorCall):
    """A reward function with its weight. A *group* function scores all tries of one example at once."""

    __slots__ = ("is_group", "weight")

    def __init__(self, func: Callable[..., Any], weight: float) -> None:
        super().__init__(func)
        self.weight = float(weight)
        self.is_group = is_group_func(func)


def is_group_func(func: Callable[..., Any]) -> bool:
    """A function is a group function if a plural name is a parameter or it is annotated to return a list."""
    if any(p.name in _GROUP_NAMES for p in parameters_of(func)):
        return True
    returns = getattr(func, "__annotations__", {}).get("return")
    if isinstance(returns, str):  # `from __future__ import annotations`
        return re.match(r"(\w+\.)?[Ll]ist\b", returns) is not None
    return returns is list or getattr(returns, "__origin__", None) is list


class Rubric(OldRubricNames):
    """Reward functions, their weights, and what they may ask for by name.

    Functions get those of these that they name: `prompt`, `completion`, `answer`, `state`, `task`, `info`, `parser`
    and whatever `add_class_object` offers; group functions get the plural forms. The reward is the weighted sum.

    >>> import asyncio
    >>> rubric = Rubric(funcs=[lambda completion, answer: float(completion == answer)])
    >>> state = State(input={"prompt": "2 + 2", "answer": "4"}, completion="4", trajectory=[])
    >>> asyncio.run(rubric.score_rollout(state)); state["reward"]
    1.0
    """

    funcs: list[Callable[..., Any]]
    weights: list[float]
    needs_only_state = True  # true of the framework's own metrics, which are most of the calls
    _calls: list[RewardCall] = []
    _called_funcs: list[Callable[..., Any]] = []
    _called_weights: list[float] = []

    def __init__(
        self,
        funcs: Sequence[Callable[..., Any]] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
        timeout_s: float | None = None,
        **attributes: Any,
    ) -> None:
        """`timeout_s` bounds each call of a reward function; a call that takes longer is a fault, not a 0.0."""
        funcs = list(funcs or ())
        given = [1.0] * len(funcs) if weights is None else list(weights)
        if len(given) != len(funcs):
            raise ValueError(f"{len(funcs)} reward functions but {len(given)} weights; give one weight for each")
        self.parser = parser if parser is not None else Parser()
        self.timeout_s = timeout_s
        self.class_objects: dict[str, Any] = {"parser": self.parser}
        self.funcs = []
        self.weights = []
        for func, weight in zip(funcs, given, strict=True):
            self.add_reward_func(func, weight)
        for name, value in attributes.items():  # classic rubrics take anything
            setattr(self, name, value)

    def add_reward_func(self, func: Callable[..., Any], weight: float = 1.0) -> None:
        self.funcs.append(func)
        self.weights.append(float(weight))

    def add_metric(self, func: Callable[..., Any], weight: float = 0.0) -> None:
        """A reward function that is only reported, unless given a weight."""
        self.add_reward_func(func, weight)

    def add_class_object(self, name: str, obj: Any) -> None:
        """Offers `obj` to reward functions that name it."""
        self.class_objects[name] = obj

    @property
    def reward_calls(self) -> list[RewardCall]:
        """The functions as they are called. Authors change `funcs` and `weights` in place; then they are made anew."""
        if self._called_funcs != self.funcs or self._called_weights != self.weights:
            weights = itertools.chain(self.weights, itertools.repeat(1.0))
            self._calls = [RewardCall(func, weight) for func, weight in zip(self.funcs, weights, strict=False)]
            self._called_funcs, self._called_weights = list(self.funcs), list(self.weights)
            self.needs_only_state = all(not c.takes_all and c.names <= {"state"} for c in self._calls)
        return self._calls

    @property
    def needs_group(self) -> bool:
        """Whether scoring must wait for all rollouts of an example."""
        kind = type(self)
        has_own = kind.score_group is not Rubric.score_group or kind.score_rollouts is not Rubric.score_rollouts
        return has_own or any(c.is_group for c in self.reward_calls)

    def weight_of(self, name: str) -> float:
        return sum(call.weight for call in self.reward_calls if call.name == name)

    async def score_rollout(self, state: State | Any = None, *of_old: Any, **named: Any) -> Any:
        """Scores one rollout; writes `scores`, `metrics` and `reward` into the state.

        Called as before 0.1.8, `(prompt, completion, answer, state, task, info)`, it returns reward and metrics.
        Raises TypeError for a rubric with group functions: these need `score_group`.
        """
        if (named or type(state) is not State) and is_asked_as_of_old(state, named):
            return await score_as_of_old(partial(Rubric.score_rollout, self), (state, *of_old), named)
        began = time.perf_counter()
        scores = await self.individual_scores(state)
        write_scores(state, scores, time.perf_counter() - began)

    async def score_group(self, states: list[State]) -> None:
        """Scores all rollouts of one example, function by function: later ones see what earlier ones wrote."""
        began = time.perf_counter()
        rows = await self.group_scores(states)
        for state, scores in zip(states, rows, strict=True):
            write_scores(state, scores, time.perf_counter() - began)
        write_advantages(states)

    async def score_rollouts(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        answers: Sequence[Any] | None = None,
        states: Sequence[Any] | None = None,
        tasks: Sequence[Any] | None = None,
        infos: Sequence[Any] | None = None,
        **_: Any,
    ) -> Any:
        """Rewards and metrics of many rollouts, each scored by itself, as before 0.1.8."""
        return await score_all(self, prompts, completions, answers, states, tasks, infos)

    async def individual_scores(self, state: State) -> list[Score]:
        calls = self.reward_calls
        if any(call.is_group for call in calls):
            names = ", ".join(call.name for call in calls if call.is_group)
            raise TypeError(f"{names}: group reward functions score all tries of an example; use score_group(states)")
        offered = self._offered(state)
        return [await self._score(call, offered) for call in calls]

    async def group_scores(self, states: list[State]) -> list[list[Score]]:
        """One list of scores a state, in the order of the functions."""
        rows: list[list[Score]] = [[] for _ in states]
        calls = self.reward_calls
        offered = [self._offered(state) for state in states]
        for call in calls:
            if call.is_group:
                scores = await self._score_together(call, states)
            else:
                scores = await asyncio.gather(*[self._score(call, names) for names in offered])
            for row, score in zip(rows, scores, strict=True):
                row.append(score)
        return rows

    def _offered(self, state: State) -> dict[str, Any]:
        if self.needs_only_state:
            return {"state": state}
        get = state.get
        return {
            **self.class_objects,
            "prompt": get("prompt"),
            "completion": get("completion"),
            "answer": get("answer", ""),
            "state": state,
            "task": get("task"),
            "info": get("info") or {},
        }

    async def _score(self, call: RewardCall, offered: dict[str, Any]) -> Score:
        asked: list[JudgeInfo] = []
        token = asked_judges.set(asked)
        try:
            value = await call(offered, self.timeout_s)
        except Exception as error:
            return failed_score(call, error, asked[-1] if asked else None)
        finally:
            asked_judges.reset(token)
        return as_score(call, value, asked[-1] if asked else None)

    async def _score_together(self, call: RewardCall, states: list[State]) -> list[Score]:
        offered: dict[str, Any] = {
            **self.class_objects,
            "prompts": [s.get("prompt") for s in states],
            "completions": [s.get("completion") for s in states],
            "answers": [s.get("answer", "") for s in states],
            "states": states,
            "tasks": [s.get("task") for s in states],
            "infos": [s.get("info") or {} for s in states],
        }
        try:
            values = await call(offered, self.timeout_s)
        except Exception as error:
            return [failed_score(call, error)] * len(states)
        if hasattr(values, "tolist"):  # an array
            values = values.tolist()
        if not isinstance(values, (list, tuple)):
            reason = f"returned {type(values).__name__}; a group function returns one number a rollout"
        elif len(values) != len(states):
            reason = f"returned {len(values)} scores for {len(states)} rollouts"
        else:
            return [as_score(call, value) for value in values]
        return [fault(call, reason)] * len(states)

    async def cleanup(self, state: State) -> None:
        """Called once a rollout has been scored; runs the `@vf.cleanup` methods. For what is held per rollout."""
        for name in marked_names(type(self), "cleanup"):
            await maybe_await(getattr(self, name), state)

    async def check_setup(self) -> None:
        """Called before a run asks its model anything. Raises SetupError for what scoring needs and has not got."""

    async def teardown(self) -> None:
        """Called when the environment is closed; runs the `@vf.teardown` methods."""
        for name in marked_names(type(self), "teardown"):
            await maybe_await(getattr(self, name))

    def _get_reward_func_names(self) -> list[str]:
        return [call.name for call in self.reward_calls]

    def _is_group_func(self, func: Callable[..., Any]) -> bool:
        return is_group_func(func)


def as_score(call: RewardCall, value: Any, judge: JudgeInfo | None = None) -> Score:
    """The score of what a function returned: a finite number (a `Graded` brings its reason), or a fault."""
    reason = None
    if type(value) is not float:
        reason = getattr(value, "reason", None)
        if value is None or isinstance(value, (str, bytes)):
            return fault(call, f"returned {'None' if value is None else f'text {value[:60]!r}'}, not a number")
        try:
            value = float(value)
        except Exception:
            return fault(call, f"returned {type(value).__name__}, not a number")
    if not math.isfinite(value):
        return fault(call, f"returned {value}, not a finite number")
    return Score(name=call.name, weight=call.weight, value=value, reason=reason, judge=judge)


def fault(call: RewardCall, reason: str, side: Any = "reward") -> Score:
    logger.warning("reward function %s %s: the rollout is unscored", call.name, reason)
    return Score(name=call.name, weight=call.weight, value=None, status="fault", reason=reason, side=side)


def failed_score(call: RewardCall, error: Exception, judge: JudgeInfo | None = None) -> Score:
    if isinstance(error, Undecided):
        return Score(
            name=call.name, weight=call.weight, value=None, status="undecided", reason=error.reason, side=error.side,
            judge=judge,
        )  # fmt: skip
    side = "judge" if side_of(error) in ("model", "judge") else "sandbox" if side_of(error) == "sandbox" else "reward"
    return fault(call, f"raised {one_line(error)}", side)


def total(scores: Sequence[Score]) -> float | None:
    """The weighted sum; `None` if a score of non-zero weight is missing."""
    reward = 0.0
    for score in scores:
        if score.weight:
            if score.value is None:
                return None
            reward += score.weight * score.value
    return reward


def write_scores(state: State, scores: list[Score], seconds: float) -> None:
    """Puts scores, metrics, reward and scoring time where authors and trainers look for them."""
    metrics: dict[str, float | None] = {}
    for score in scores:  # equal names add up
        value = score.value
        if value is not None and score.name in metrics:
            before = metrics[score.name]
            value = None if before is None else before + value
        metrics[score.name] = value
    state["scores"], state["metrics"], state["reward"] = scores, metrics, total(scores)
    timing = state.get("timing")
    if timing is not None:
        timing["scoring_ms"] = timing.get("scoring_ms", 0.0) + 1000 * seconds
        timing["total_ms"] = timing.get("generation_ms", 0.0) + timing["scoring_ms"]


def write_advantages(states: list[State]) -> None:
    """`advantage` = reward less the mean of the group's scored rollouts; `None` where there is no reward."""
    rewards = [s["reward"] for s in states if s.get("reward") is not None]
    mean = sum(rewards) / len(rewards) if rewards else 0.0
    for state in states:
        reward = state.get("reward")
        state["advantage"] = None if reward is None else reward - mean
        for step in state.get("trajectory") or ():
            if step.get("reward") is None:
                step["reward"] = reward
            if step.get("advantage") is None:
                step["advantage"] = state["advantage"]
