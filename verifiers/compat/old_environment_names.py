"""`OldEnvironmentNames`: what authors and trainers of the classic API call on an environment by other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.calls import AuthorCall
from verifiers.compat.formatting import format_dataset
from verifiers.dataset import RowFormat, as_table
from verifiers.types import Message, State, as_messages


class OldEnvironmentNames:
    rubric: Any
    system_prompt: str | None
    few_shot: list[Message]
    interleaved_rollouts = False

    def build_dataset(self: Any) -> Any:
        """The training rows, built if they have not been yet."""
        return self.dataset

    def build_eval_dataset(self: Any) -> Any:
        return self.eval_dataset

    def format_prompt(
        self, prompt_str: Any, system_prompt: str | None = None, few_shot: Sequence[Any] | None = None
    ) -> list[Message]:
        """The messages that ask one question."""
        form = RowFormat(system_prompt, as_messages(few_shot) if few_shot else [])
        return form.row({"question": prompt_str}, 0)["prompt"]

    def format_dataset(
        self,
        dataset: Any,
        system_prompt: str | None = None,
        few_shot: Sequence[Any] | None = None,
        question_key: str = "question",
        answer_key: str = "answer",
        map_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return format_dataset(dataset, system_prompt, few_shot, question_key, answer_key, map_kwargs)

    @property
    def _stop_conditions(self: Any) -> list[Callable[..., Any]]:
        """The stop conditions in their order. Authors take one of the framework's out of the list and assign it."""
        return [call.func for call in self._stop_calls]

    @_stop_conditions.setter
    def _stop_conditions(self: Any, methods: Sequence[Callable[..., Any]]) -> None:
        for name in ("_loop_stop_calls", "_urgent_stop_calls"):
            self.__dict__.pop(name, None)
        self._stop_calls = [AuthorCall(method) for method in methods]

    def increment_state_usage(self, state: State, input_tokens: float = 0, output_tokens: float = 0) -> None:
        """Counts tokens of calls that the rollout loop does not see."""
        usage = state.get("usage") or {"input_tokens": 0, "output_tokens": 0, "reasoning_tokens": None}
        usage["input_tokens"] += input_tokens
        usage["output_tokens"] += output_tokens
        state["usage"] = usage

    def increment_state_usage_from_response(self, state: State, response: Any) -> None:
        usage = getattr(response, "usage", None)
        if usage is not None:
            counts = [_count(usage, name) for name in ("prompt_tokens", "completion_tokens")]
            self.increment_state_usage(state, *counts)

    def get_state_usage(self, state: State) -> Any:
        return state.get("usage")

    def _as_the_author_formats(self, dataset: Any) -> Any:
        """The dataset through an override of `format_dataset`, which the constructor called up to 0.1.8."""
        if dataset is None or type(self).format_dataset is OldEnvironmentNames.format_dataset:
            return dataset
        if callable(dataset):
            return lambda: self._as_the_author_formats(dataset())
        return self.format_dataset(as_table(dataset), self.system_prompt, self.few_shot)

    def get_reward_funcs(self) -> list[Callable[..., Any]]:
        return self.rubric.get_reward_funcs()

    def get_reward_weights(self) -> list[float]:
        return self.rubric.get_reward_weights()


def _count(usage: Any, name: str) -> int:
    return (usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)) or 0
