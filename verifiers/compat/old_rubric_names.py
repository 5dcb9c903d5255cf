"""`OldRubricNames`: what authors and trainers of the classic API read and call on a rubric by other names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.calls import AuthorCall
from verifiers.types import State


class OldRubricNames:
    logger = logging.getLogger("verifiers")
    parallelize_scoring: Any = False
    funcs: list[Callable[..., Any]]
    weights: list[float]
    class_objects: dict[str, Any]

    @property
    def reward_funcs(self) -> list[Callable[..., Any]]:
        """`funcs`, as they were called up to 0.1.7."""
        return self.funcs

    @reward_funcs.setter
    def reward_funcs(self, funcs: list[Callable[..., Any]]) -> None:
        self.funcs = funcs

    @property
    def reward_weights(self) -> list[float]:
        return self.weights

    @reward_weights.setter
    def reward_weights(self, weights: list[float]) -> None:
        self.weights = weights

    def get_reward_func_names(self) -> list[str]:
        return self._get_reward_func_names()

    def get_reward_funcs(self) -> list[Callable[..., Any]]:
        return self._get_reward_funcs()

    def get_reward_weights(self) -> list[float]:
        return self._get_reward_weights()

    def _get_reward_func_names(self) -> list[str]:
        raise NotImplementedError

    def _get_reward_funcs(self) -> list[Callable[..., Any]]:
        return self.funcs

    def _get_reward_weights(self) -> list[float]:
        return self.weights

    async def call_reward_func(
        self,
        func: Callable[..., Any],
        prompt: Any = None,
        completion: Any = None,
        answer: Any = "",
        state: Any = None,
        task: Any = "default",
        info: Any = None,
        **named: Any,
    ) -> Any:
        """What one function returns for these values. Raises what the function raises."""
        offered = {
            **self.class_objects, "prompt": prompt, "completion": completion, "answer": answer,
            "state": {} if state is None else state, "task": task, "info": info or {}, **named,
        }  # fmt: skip
        return await AuthorCall(func)(offered)

    async def _call_individual_reward_func(self, func: Callable[..., Any], state: Mapping[str, Any]) -> Any:
        values = {name: state.get(name) for name in ("prompt", "completion", "answer", "task", "info")}
        return await self.call_reward_func(func, state=state, **values)

    async def dummy_score_rollout(self, state: State) -> None:
        """Leaves a rollout unscored: no metrics, and no reward rather than a 0.0."""
        state["reward"], state["metrics"] = None, {}

    async def dummy_score_group(self, states: Sequence[State]) -> None:
        for state in states:
            await self.dummy_score_rollout(state)
