"""Scoring with the parameters of before 0.1.8: prompt, completion, answer and state apart, and the scores returned."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from verifiers.calls import AuthorCall
from verifiers.types import Attributed, State

_NAMES = ("prompt", "completion", "answer", "state", "task", "info")


class RolloutScore(Attributed):
    """What `score_rollout` returned for one rollout. A reward that could not be had is `None`."""

    __slots__ = ()
    fields = frozenset({"reward", "metrics"})


class RolloutScores(RolloutScore):
    """The same for several: a list of rewards, and one of each metric."""

    __slots__ = ()


def is_asked_as_of_old(state: Any, named: Mapping[str, Any]) -> bool:
    return not isinstance(state, Mapping) or "completion" in named


async def score_as_of_old(score: Any, positional: tuple[Any, ...], named: Mapping[str, Any]) -> RolloutScore:
    """`score_rollout(prompt, completion, answer, state, task, info)` by `score`, which takes the state alone."""
    if "completion" in named:  # by name; today's first parameter has the name of one of them
        given = {**named, "state": positional[0]}
    else:
        given = {**dict(zip(_NAMES, positional, strict=False)), **named}
    state = given.get("state")
    if not isinstance(state, State):
        state = State({"trajectory": [], **(state or {})})
    for name in ("prompt", "completion", "answer", "task", "info"):
        if given.get(name) is not None:
            state[name] = given[name]
    await score(state)
    if isinstance(given.get("state"), dict) and given["state"] is not state:
        given["state"].update(state)  # what reward functions wrote
    return RolloutScore(reward=state["reward"], metrics=dict(state["metrics"] or {}))


async def score_all(
    rubric: Any, prompts: Sequence[Any], completions: Sequence[Any], answers: Any, states: Any, tasks: Any, infos: Any
) -> RolloutScores:
    """`score_rollouts` of before 0.1.8, each rollout by itself."""
    columns = (prompts, completions, *(repeat(None) if c is None else c for c in (answers, states, tasks, infos)))
    rows = zip(*columns, strict=False)
    scores = await asyncio.gather(*[rubric.score_rollout(*row) for row in rows])
    names = dict.fromkeys(name for score in scores for name in score["metrics"])
    return RolloutScores(
        reward=[score["reward"] for score in scores],
        metrics={name: [score["metrics"].get(name) for score in scores] for name in names},
    )


async def score_all_by_override(rubric: Any, states: Sequence[State]) -> None:
    """Scores by an author's `score_rollouts`: of each rollout its own number is written into its state."""
    offered = {
        "prompts": [s.get("prompt") for s in states], "completions": [s.get("completion") for s in states],
        "answers": [s.get("answer", "") for s in states], "states": list(states),
        "tasks": [s.get("task") for s in states], "infos": [s.get("info") or {} for s in states],
    }  # fmt: skip
    returned = await AuthorCall(rubric.score_rollouts)(offered)
    if not isinstance(returned, Mapping):
        metrics = getattr(returned, "metrics", None)
        returned = {"reward": getattr(returned, "reward", returned), "metrics": metrics}
    rewards, metrics = list(returned["reward"]), returned.get("metrics") or {}
    if len(rewards) != len(states):
        raise ValueError(f"score_rollouts returned {len(rewards)} rewards for {len(states)} rollouts")
    for number, (state, reward) in enumerate(zip(states, rewards, strict=True)):
        state["reward"] = reward
        state["metrics"] = {name: values[number] for name, values in metrics.items() if len(values) == len(states)}
        state["scores"] = None


async def score_by_override(rubric: Any, state: State) -> None:
    """Scores by an author's `score_rollout` of the old kind, which returns the scores; they are written into the state.

    It returns an object or dict with `reward` and `metrics`, or the reward alone.
    """
    offered = {
        "prompt": state.get("prompt"), "completion": state.get("completion"), "answer": state.get("answer", ""),
        "state": state, "task": state.get("task"), "info": state.get("info") or {},
    }  # fmt: skip
    returned = await AuthorCall(rubric.score_rollout)(offered)
    if isinstance(returned, Mapping):
        state["reward"], state["metrics"] = returned.get("reward"), dict(returned.get("metrics") or {})
    elif hasattr(returned, "reward"):
        state["reward"], state["metrics"] = returned.reward, dict(getattr(returned, "metrics", None) or {})
    else:
        state["reward"], state["metrics"] = returned, {}
