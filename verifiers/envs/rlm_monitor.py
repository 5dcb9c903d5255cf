"""`RLMMonitorRubric`: the metrics of `RLMEnv`, and the counts in the state that they are read from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verifiers.rubrics import Rubric
from verifiers.types import Response, State, TrajectoryStep

COUNTS: dict[str, Any] = {
    "root_llm_turns": 0,
    "root_llm_prompt_tokens": 0,
    "root_llm_completion_tokens": 0,
    "sub_llm_call_count": 0,
    "sub_llm_total_turns": 0,
    "sub_llm_prompt_tokens": 0,
    "sub_llm_completion_tokens": 0,
    "sub_llm_total_tool_calls": 0,
    "sub_llm_batch_count": 0,
    "sub_llm_max_batch_size": 0,
    "sub_llm_mean_batch_size": 0.0,
    "sub_llm_max_turns_reached_frac": 0.0,
    "repl_call_count": 0,
    "repl_total_time_seconds": 0.0,
    "repl_mean_time_seconds": 0.0,
    "root_tool_call_count": 0,
    "llm_batch_mean_time_seconds": 0.0,
    "root_tool_non_llm_mean_time_seconds": 0.0,
    "max_turns_in_context_stopped": False,
}


class RLMMonitorRubric(Rubric):
    """Metrics only: one for each of `COUNTS`, and calls and seconds of each tool of the interpreter."""

    def __init__(self, root_tool_names: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for key in COUNTS:
            self.add_metric(_Count(key, key))
        for name in root_tool_names:
            self.add_metric(_Count(f"{name}_root_calls", "root_tool_calls", name))
            self.add_metric(_Count(f"{name}_root_time_seconds", "root_tool_times", name))


class _Count:
    """The metric of one number in the state, or in a mapping there."""

    def __init__(self, metric: str, key: str, item: str | None = None) -> None:
        self.__name__ = metric
        self.key, self.item = key, item

    def __call__(self, state: State) -> float:
        value = state.get(self.key) or 0
        return float(value if self.item is None else (value or {}).get(self.item, 0))


class RunningCounts:
    """Keeps `COUNTS` of one rollout's state up to date."""

    def __init__(self, state: State) -> None:
        for key, value in {**COUNTS, "root_tool_calls": {}, "root_tool_times": {}}.items():
            state.setdefault(key, value)
        self.state = state
        self._batches: dict[str, set[str]] = {}  # requests that have had a turn, by batch
        self._requests = self._used_up = 0

    def step(self, step: TrajectoryStep) -> None:
        state, extras = self.state, step.get("extras") or {}
        prompt, completion = tokens_of(step.get("response"))
        who = "sub_llm" if extras.get("is_sub_llm_call") else "root_llm"
        state[f"{who}_prompt_tokens"] += prompt
        state[f"{who}_completion_tokens"] += completion
        if who == "root_llm":
            state["root_llm_turns"] += 1
            for name in ("turns", "prompt_tokens", "completion_tokens"):  # as they were called at first
                state[f"main_rlm_{name}"] = state[f"root_llm_{name}"]
            return
        state["sub_llm_total_turns"] += 1
        state["sub_llm_total_tool_calls"] += int(extras.get("tool_call_count") or 0)
        self._batches.setdefault(str(extras.get("batch_id")), set()).add(str(extras.get("request_id")))
        sizes = [len(requests) for requests in self._batches.values()]
        state["sub_llm_call_count"] = sum(sizes)
        state["sub_llm_batch_count"], state["sub_llm_max_batch_size"] = len(sizes), max(sizes)
        state["sub_llm_mean_batch_size"] = sum(sizes) / len(sizes)

    def request(self, is_used_up: bool) -> None:
        """One request to a sub-model has ended, or its turns have."""
        self._requests += 1
        self._used_up += is_used_up
        self.state["sub_llm_max_turns_reached_frac"] = self._used_up / self._requests

    def execution(self, seconds: float) -> None:
        state = self.state
        state["repl_call_count"] += 1
        state["repl_total_time_seconds"] += seconds
        state["repl_mean_time_seconds"] = state["repl_total_time_seconds"] / state["repl_call_count"]

    def tool(self, name: str, seconds: float) -> None:
        state = self.state
        calls, times = state["root_tool_calls"], state["root_tool_times"]
        state["root_tool_call_count"] += 1
        calls[name] = calls.get(name, 0) + 1
        times[name] = times.get(name, 0.0) + seconds
        others = state["root_tool_call_count"] - calls.get("llm_batch", 0)
        if name == "llm_batch":
            state["llm_batch_mean_time_seconds"] = times[name] / calls[name]
        else:
            spent = sum(times.values()) - times.get("llm_batch", 0.0)
            state["root_tool_non_llm_mean_time_seconds"] = spent / others


def tokens_of(response: Response | Any) -> tuple[int, int]:
    """Tokens of prompt and reply, as the server counted them; 0 where it did not."""
    usage = getattr(response, "usage", None) or {}
    return int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
