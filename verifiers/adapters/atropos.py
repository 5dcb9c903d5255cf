"""Atropos: groups of rollouts pushed to its API server, from which a trainer takes its batches.

>>> source = AtroposSource("http://127.0.0.1:8000", EnvRollouts("gsm8k"), "http://127.0.0.1:9001/v1", "policy")
>>> await source.run()
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.adapters.atropos_server import POLL_S, AtroposServer
from verifiers.errors import SetupError
from verifiers.records import RolloutRecord
from verifiers.rl.advantage import advantages, is_trivial
from verifiers.rl.rollouts import EnvRollouts
from verifiers.rl.sampling import training_sampling
from verifiers.rl.token_rollout import TokenRollout, mean_where_none, token_rollout

MASKED = -100  # in `masks`, where a trained token has its own id
NO_LOGPROB = 1.0  # in `inference_logprobs`, for a token that was not sampled
IN_VAIN = 10  # batches' worth of groups without one to push, after which it gives up


def scored_data(records_G: Sequence[RolloutRecord], *, max_tokens: int | None = None) -> dict[str, Any] | None:
    """The tries of one example as the body of `/scored_data`: one sequence for each, so that batches come out even.

    A try without a reward is there with an empty mask, and its score is the mean of the others. A completion ends
    where the sequence has `max_tokens`. None for a group that teaches nothing, or has no two rewards to compare.
    """
    made_G = [_fitted(token_rollout(record), max_tokens) for record in records_G]
    rewards = [one.reward for one in made_G if one.reward is not None]
    prompt = next((one.prompt_ids for one in made_G if one.prompt_ids), None)
    if len(rewards) < 2 or is_trivial(rewards) or prompt is None:
        return None
    made_G = [one.padded(prompt, 0) for one in made_G]
    scores_G = mean_where_none([one.reward for one in made_G])
    advantages_G = advantages(scores_G)
    sampling = records_G[0].sampling
    return {
        "tokens": [one.prompt_ids + one.completion_ids for one in made_G],
        "masks": [_per_token(one, MASKED, one.completion_ids) for one in made_G],
        "scores": scores_G,
        "advantages": [_per_token(one, 0.0, [a] * len(one.mask)) for one, a in zip(made_G, advantages_G, strict=True)],
        "inference_logprobs": [_per_token(one, NO_LOGPROB, one.logprobs) for one in made_G],
        "generation_params": {"temperature": sampling.get("temperature", 1.0)},
    }


def _per_token(one: TokenRollout, filler: Any, values: Sequence[Any]) -> list[Any]:
    trained = [value if is_trained else filler for value, is_trained in zip(values, one.mask, strict=True)]
    return [filler] * len(one.prompt_ids) + trained


def _fitted(one: TokenRollout, max_tokens: int | None) -> TokenRollout:
    return one if max_tokens is None else one.cut(max(max_tokens - len(one.prompt_ids), 0))


class AtroposSource:
    """Registers an environment at an Atropos server, and pushes groups while its queue is short.

    `endpoint` and `model` are the server that samples, whose weights the trainer keeps up to date. Atropos makes
    batches of groups whose sizes are powers of two that divide its batch: so must `group_size`. `ahead`: batches in
    the server's queue at which it waits, which bounds how old a rollout may be; groups in flight come on top.
    """

    def __init__(
        self,
        url: str,
        rollouts: EnvRollouts,
        endpoint: Any,
        model: str,
        *,
        group_size: int = 8,
        max_tokens: int = 4096,
        weight: float = 1.0,
        sampling: Mapping[str, Any] | None = None,
        groups_in_flight: int = 4,
        ahead: int = 3,
    ) -> None:
        if group_size < 2 or group_size & (group_size - 1):
            raise SetupError(f"group_size = {group_size}: Atropos fills its batches with powers of two; try 8")
        self.server, self.rollouts, self.endpoint, self.model = AtroposServer(url), rollouts, endpoint, model
        self.group_size, self.max_tokens, self.weight = group_size, max_tokens, weight
        self.sampling, self.groups_in_flight, self.ahead = dict(sampling or {}), groups_in_flight, ahead
        self.env_id: int | None = None  # None: not registered
        self.pushed = self.skipped = 0  # groups
        self._in_vain = 0  # groups since the last that was pushed

    async def register(self) -> dict[str, Any]:
        """Waits for a trainer to ask for its first batch, as the server wants it. Returns the server's answer."""
        size, name = self.group_size, self.rollouts.name
        asked = {"desired_name": name, "group_size": size, "max_token_length": self.max_tokens, "weight": self.weight}
        while (answer := await self.server.ask("POST", "/register-env", asked)).get("status") != "success":
            await asyncio.sleep(POLL_S)
        self.env_id = answer["env_id"]
        return answer

    async def run(self) -> None:
        """Pushes groups, row after row and again from the first, until the trainer has taken all its steps.

        Raises what concerns every rollout, and SetupError when group after group has nothing to teach.
        """
        registered = await self.register()
        batch_size = (await self.server.ask("GET", "/info"))["batch_size"]
        steps = registered["num_steps"]
        last_step = registered["starting_step"] + steps if steps > 0 else math.inf
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._push_groups(tasks, batch_size, last_step)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            with contextlib.suppress(SetupError):  # it is gone, and what was raised before says more
                await asyncio.shield(self.server.ask("POST", "/disconnect-env", {"env_id": self.env_id}))

    async def _push_groups(self, tasks: asyncio.TaskGroup, batch_size: int, last_step: float) -> None:
        places = asyncio.Semaphore(self.groups_in_flight)
        number = 0
        while self._in_vain * self.group_size < IN_VAIN * batch_size:
            await places.acquire()
            status = await self.server.ask("GET", "/status-env", {"env_id": self.env_id})
            if status["current_step"] >= last_step:
                return
            if status["queue_size"] * self.group_size > self.ahead * batch_size:
                places.release()
                await asyncio.sleep(POLL_S)
                continue
            tasks.create_task(self._group(number, status["current_step"])).add_done_callback(lambda _: places.release())
            number += 1
        raise SetupError(
            f"the last {self._in_vain} groups of {self.rollouts.name} taught nothing: all tries of each earned the "
            "same, or had no reward. Look at some with vf-eval"
        )

    async def _group(self, number: int, step: int) -> None:
        row = self.rollouts.rows[number % len(self.rollouts.rows)]
        sampling = training_sampling(self.sampling, step)
        records_G = await self.rollouts.run([row] * self.group_size, self.endpoint, model=self.model, sampling=sampling)
        data = scored_data(records_G, max_tokens=self.max_tokens)
        if data is None:
            self.skipped += 1
            self._in_vain += 1
            return
        self._in_vain = 0
        await self.server.ask("POST", "/scored_data", {**data, "env_id": self.env_id})
        self.pushed += 1
