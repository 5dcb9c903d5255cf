"""`EnvGroup`: several environments as one; each row goes to its own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from verifiers.compat import signatures
from verifiers.compat.scores import is_asked_as_of_old, score_as_of_old
from verifiers.envs.environment import Environment
from verifiers.records import Score
from verifiers.rubrics import Rubric
from verifiers.rubrics.rubric import write_advantages, write_scores
from verifiers.rubrics.rubric_group import group_scores_of, scores_of
from verifiers.types import RolloutInput, SamplingArgs, State


class EnvGroup(Environment):
    """Rows carry the name of their environment in `task`; a member of a nested group is called `outer/inner`.

    The member sees the `task` its own rows had. Metrics are the union of the members'; one that a member does not
    have is absent from its rollouts, not 0.
    """

    def __init__(self, envs: Sequence[Environment], env_names: Sequence[str] | None = None, **kwargs: Any) -> None:
        if not envs:
            raise ValueError("EnvGroup needs at least one environment")
        names = list(env_names) if env_names else [env.env_id or f"env_{i}" for i, env in enumerate(envs)]
        if len(names) != len(envs):
            raise ValueError(f"{len(envs)} environments but {len(names)} names; give one name for each")
        if len(set(names)) != len(names):
            raise ValueError(f"two environments of a group have the same name: {names}")
        self.envs, self.env_names = list(envs), names
        self.env_map = dict(zip(names, envs, strict=True))
        self.leaves = _leaves(self.env_map)
        kwargs.pop("rubric", None)
        super().__init__(
            dataset=(lambda: self._joined("train")) if _any(envs, "train") else None,
            eval_dataset=(lambda: self._joined("eval")) if _any(envs, "eval") else None,
            rubric=EnvGroupRubric(self.leaves),
            **kwargs,
        )

    def _joined(self, kind: str) -> list[RolloutInput]:
        """Every leaf's formatted rows, renumbered. A leaf without this split contributes the one it has."""
        joined: list[RolloutInput] = []
        for route, env in self.leaves.items():
            for row in env.row_splits.rows(kind, env.row_format()):
                row = {**row, "src_task": row.get("task"), "src_example_id": row["example_id"], "task": route}
                row["example_id"] = len(joined)
                joined.append(row)
        return joined

    def get_env_for_task(self, task: str) -> Environment:
        """The member that a row's `task` names. Raises LookupError for a name that no member has."""
        env = self.leaves.get(task) or self.env_map.get(task)
        if env is None:
            raise LookupError(f"no environment '{task}' in this group (it has: {', '.join(self.leaves)})")
        return env

    async def rollout(
        self,
        input: RolloutInput | Any = None,
        client: Any = None,
        model: Any = None,
        sampling_args: SamplingArgs | Any = None,
        *of_old: Any,
        **named: Any,
    ) -> Any:
        if not isinstance(input, Mapping):
            given = (input, client, model, sampling_args, *of_old)
            return await signatures.rollout_as_of_old(partial(EnvGroup.rollout, self), given, named)
        route = str(input.get("task"))
        env = self.get_env_for_task(route)
        own = dict(input)
        if "src_task" in own:
            own["task"] = own["src_task"]
        state = await signatures.roll_out(env, own, client, model, sampling_args)
        state.route = route
        return state

    def set_max_seq_len(self, max_seq_len: int | None) -> None:
        super().set_max_seq_len(max_seq_len)
        for env in self.envs:
            env.set_max_seq_len(max_seq_len)

    def set_score_rollouts(self, score_rollouts: bool) -> None:
        super().set_score_rollouts(score_rollouts)
        for env in self.envs:
            env.set_score_rollouts(score_rollouts)

    async def teardown(self) -> None:
        for env in self.envs:
            await env.teardown()
        await super().teardown()


def _any(envs: Sequence[Environment], kind: str) -> bool:
    return any(env.row_splits.has(kind) for env in envs)


def _leaves(env_map: dict[str, Environment]) -> dict[str, Environment]:
    """Every environment that is no group, by its path of names."""
    leaves: dict[str, Environment] = {}
    for name, env in env_map.items():
        if isinstance(env, EnvGroup) and type(env).rollout is EnvGroup.rollout:
            leaves.update({f"{name}/{inner}": leaf for inner, leaf in env.leaves.items()})
        else:
            leaves[name] = env
    return leaves


class EnvGroupRubric(Rubric):
    """Scores each rollout by the rubric of the environment that made it."""

    def __init__(self, envs: dict[str, Environment]) -> None:
        self.envs = envs
        super().__init__()

    @property
    def env_map(self) -> dict[str, Environment]:
        """`envs`, as the classic API calls it."""
        return self.envs

    @property
    def all_reward_names(self) -> list[str]:
        return self._get_reward_func_names()

    def _rubric(self, state: State) -> Rubric:
        return self.envs[state.route if state.route is not None else state["task"]].rubric

    @property
    def needs_group(self) -> bool:
        return any(env.rubric.needs_group for env in self.envs.values())

    async def check_setup(self) -> None:
        for env in self.envs.values():
            await env.rubric.check_setup()

    def weight_of(self, name: str) -> float:
        return next((w for env in self.envs.values() if (w := env.rubric.weight_of(name))), 0.0)

    async def score_rollout(self, state: State | Any = None, *of_old: Any, **named: Any) -> Any:
        if (named or type(state) is not State) and is_asked_as_of_old(state, named):
            return await score_as_of_old(partial(EnvGroupRubric.score_rollout, self), (state, *of_old), named)
        began = time.perf_counter()
        scores = await scores_of(self._rubric(state), state)
        write_scores(state, scores, time.perf_counter() - began)

    async def score_group(self, states: list[State]) -> None:
        """The states of one example have one environment; those of several are scored apart."""
        began = time.perf_counter()
        by_rubric: dict[int, tuple[Rubric, list[State]]] = {}
        for state in states:
            rubric = self._rubric(state)
            by_rubric.setdefault(id(rubric), (rubric, []))[1].append(state)
        for rubric, members in by_rubric.values():
            rows: list[list[Score]] = await group_scores_of(rubric, members)
            for state, scores in zip(members, rows, strict=True):
                write_scores(state, scores, time.perf_counter() - began)
        write_advantages(states)

    async def cleanup(self, state: State) -> None:
        await self._rubric(state).cleanup(state)

    def _get_reward_func_names(self) -> list[str]:
        names = [name for env in self.envs.values() for name in env.rubric._get_reward_func_names()]
        return list(dict.fromkeys(names))
