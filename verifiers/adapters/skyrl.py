"""SkyRL: an environment as a generator, returned from `get_generator` of the experiment.

>>> class Experiment(BasePPOExp):
...     def get_generator(self, cfg, tokenizer, inference_engine_client):
...         rollouts = EnvRollouts("reverse-letters")
...         return EnvironmentGenerator(rollouts, inference_engine_client, tokenizer, cfg.generator)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

from verifiers.errors import SetupError
from verifiers.records import RolloutRecord
from verifiers.rl.chat_tokenizer import HuggingFaceChat
from verifiers.rl.render import TemplateRenderer
from verifiers.rl.rollouts import EnvRollouts
from verifiers.rl.token_client import Sampled, TokenClient
from verifiers.rl.token_rollout import mean_where_none, token_rollout


class EnvironmentGenerator:
    """Has the `generate` of SkyRL's `GeneratorInterface`, one sequence for each prompt, in their order.

    `generator_cfg.sampling_params` hold what training samples with; evaluation says its own. `evaluation` has the rows
    that are evaluated on. A rollout without a reward has an empty mask, and the mean of its group's rewards, so that
    the others' advantages are as without it. `context`: most tokens of a whole rollout; None: the longest prompt and
    reply of the configuration.
    """

    def __init__(
        self,
        rollouts: EnvRollouts,
        inference_engine_client: Any,
        tokenizer: Any,
        generator_cfg: Any,
        *,
        evaluation: EnvRollouts | None = None,
        model: str | None = None,
        context: int | None = None,
    ) -> None:
        self.rollouts, self.engine, self.tokenizer, self.model = rollouts, inference_engine_client, tokenizer, model
        self.evaluation = evaluation or rollouts
        self.sampling = _mapping(generator_cfg.sampling_params)
        self.context = context or generator_cfg.max_input_length + self.sampling["max_generate_length"]

    async def generate(self, input_batch: Mapping[str, Any]) -> dict[str, Any]:
        """A `GeneratorOutput` of a `GeneratorInput`. Raises SetupError when not one rollout has a reward."""
        chat = HuggingFaceChat(self.tokenizer)
        phase = getattr(input_batch.get("batch_metadata"), "training_phase", "train")
        rollouts = self.evaluation if phase == "eval" else self.rollouts
        sampling = {**_engine_names(self.sampling), **_engine_names(input_batch.get("sampling_params") or {})}
        sampling["logprobs"] = 1
        client = TokenClient(_Engine(self.engine, self.model, sampling), chat, context=self.context)
        rows = [rollouts.row_of([dict(message) for message in prompt]) for prompt in input_batch["prompts"]]
        records = await rollouts.run(rows, client)
        renderer = TemplateRenderer(chat)
        made = [
            token_rollout(record).padded(
                renderer.prompt(cast(Any, row["prompt"])) if not record.turns else [], self.tokenizer.eos_token_id
            )
            for record, row in zip(records, rows, strict=True)
        ]
        if all(one.reward is None for one in made):
            raise SetupError(f"not one of {len(made)} rollouts of {rollouts.name} has a reward: {made[0].problem}")
        return {
            "prompt_token_ids": [one.prompt_ids for one in made],
            "response_ids": [one.completion_ids for one in made],
            "rewards": _rewards([one.reward for one in made], records),
            "loss_masks": [one.mask for one in made],
            "stop_reasons": ["length" if one.is_truncated else "stop" for one in made],
            "rollout_metrics": _metrics(records, sum(one.reward is None for one in made)),
            "rollout_logprobs": [one.logprobs for one in made],
            "trajectory_ids": input_batch.get("trajectory_ids"),
            "trajectory_generation_times": [record.timing.total_s for record in records],
            "rollout_expert_indices": None,
            "is_last_step": None,
            "env_metrics": [dict(record.metrics) for record in records],
            "pixel_values": None,
            "image_grid_thw": None,
        }


def rows(rollouts: EnvRollouts) -> list[dict[str, Any]]:
    """The environment's rows in the shape of SkyRL's dataset: write them with `Dataset.from_list(…).to_parquet(…)`."""
    return [{"prompt": row["prompt"], "env_class": rollouts.name} for row in rollouts.prompts()]


def _rewards(rewards: Sequence[float | None], records: Sequence[RolloutRecord]) -> list[float]:
    groups: dict[int, list[int]] = defaultdict(list)
    for place, record in enumerate(records):
        groups[record.example_id].append(place)
    found = [0.0] * len(rewards)
    for places in groups.values():
        for place, reward in zip(places, mean_where_none([rewards[place] for place in places]), strict=True):
            found[place] = reward
    return found


def _metrics(records: Sequence[RolloutRecord], unscored: int) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for name, value in record.metrics.items():
            if value is not None:
                found[name].append(value)
    means = {f"environment/{name}": math.fsum(values) / len(values) for name, values in found.items()}
    return {**means, "environment/unscored": float(unscored)}


def _mapping(params: Any) -> dict[str, Any]:
    """Of a dataclass, or of a mapping of the configuration's library."""
    names: Any = [one.name for one in fields(params)] if is_dataclass(params) else params
    return {name: getattr(params, name) if is_dataclass(params) else params[name] for name in names}


def _engine_names(params: Any) -> dict[str, Any]:
    given = _mapping(params)
    limit = given.pop("max_generate_length", None)
    extra = given.pop("additional_kwargs", None) or {}
    given = {name: value for name, value in {**given, **extra}.items() if value is not None}
    return given if limit is None else {"max_tokens": limit, **given}


class _Engine:
    """A `Sampler` over SkyRL's inference client. Turns of one rollout are one session."""

    def __init__(self, engine: Any, model: str | None, sampling: Mapping[str, Any]) -> None:
        self._engine, self._model, self._sampling = engine, model, sampling

    async def __call__(self, prompt_ids: list[int], sampling: dict[str, Any], affinity: str) -> Sampled:
        limit = min(sampling["max_tokens"], self._sampling.get("max_tokens", sampling["max_tokens"]))
        version = getattr(self._engine, "weight_version", None)  # None: the engine does not count
        asked = {
            "prompts": None,
            "prompt_token_ids": [prompt_ids],
            "sampling_params": {**self._sampling, "max_tokens": limit},
            "session_ids": [affinity],
            # keys and values that older weights computed are not used again
            "cache_salt": None if version is None else f"{self._model}@{version}",
        }
        made = await self._engine.generate(asked, model=self._model)
        reason = made["stop_reasons"][0]
        finish = reason if reason in ("length", "abort") else "stop"
        return Sampled(made["response_ids"][0], (made["response_logprobs"] or [()])[0], finish)
