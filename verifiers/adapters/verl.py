"""verl: an environment as an agent loop. Named in the file that `agent_loop_config_path` points at, as

- name: reverse_letters
  _target_: verifiers.adapters.verl.EnvironmentAgentLoop
  env: reverse-letters
  env_args: {letters: 5}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from verifiers.errors import ConfigError, EnvironmentFault
from verifiers.records import RolloutRecord, content_hash
from verifiers.rl.chat_tokenizer import HuggingFaceChat
from verifiers.rl.rollouts import EnvRollouts
from verifiers.rl.token_client import Sampled, TokenClient
from verifiers.rl.token_rollout import token_rollout

_loaded: dict[str, EnvRollouts] = {}  # verl makes a loop for every rollout; the environment is loaded once a worker


class EnvironmentAgentLoop:
    """Has the constructor and the `run` of verl's `AgentLoopBase`, without importing verl and its engines for it.

    A rollout without a reward is tried again `max_retries` times. verl averages over a group that one loop does not
    see, so that a number must be given then: `unscored_reward`, with an empty mask; None raises instead.
    """

    def __init__(
        self,
        trainer_config: Any,
        server_manager: Any,
        tokenizer: Any,
        *,
        env: str,
        env_args: Mapping[str, Any] | None = None,
        split: Any = "train",
        max_retries: int = 2,
        unscored_reward: float | None = None,
        **_: Any,  # processor, dataset_cls, data_config, tools …: an environment brings its own
    ) -> None:
        rollout = trainer_config.config.actor_rollout_ref.rollout
        self.prompt_length, self.response_length = int(rollout.prompt_length), int(rollout.response_length)
        self.server_manager, self.tokenizer = server_manager, tokenizer
        self.unscored_reward = unscored_reward
        args: dict[str, Any] = _plain(env_args or {})
        key = content_hash([env, args, split, max_retries])
        if key not in _loaded:
            _loaded[key] = EnvRollouts(env, env_args=args, split=split, max_retries=max_retries)
        self.rollouts = _loaded[key]

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """`kwargs` are the fields of the dataset's row; its `raw_prompt` names the environment's row."""
        from verl.experimental.agent_loop.agent_loop import AgentLoopOutput  # pyright: ignore[reportMissingImports]

        return AgentLoopOutput(**await self.output(sampling_params, kwargs["raw_prompt"]))

    async def output(self, sampling_params: dict[str, Any], raw_prompt: Any) -> dict[str, Any]:
        """The fields of an `AgentLoopOutput`. Raises EnvironmentFault where there is no reward, see the class."""
        prompt = [dict(message) for message in raw_prompt]
        client = TokenClient(
            _Engine(self.server_manager, sampling_params, self.tokenizer.eos_token_id),
            HuggingFaceChat(self.tokenizer),
            context=self.prompt_length + self.response_length,
        )
        (record,) = await self.rollouts.run([self.rollouts.row_of(prompt)], client)
        return self._fields(record)

    def _fields(self, record: RolloutRecord) -> dict[str, Any]:
        made = token_rollout(record).cut(self.response_length)
        if len(made.prompt_ids) > self.prompt_length:
            raise ConfigError(
                f"example {record.example_id} has a prompt of {len(made.prompt_ids)} tokens, over "
                f"rollout.prompt_length = {self.prompt_length}; raise it, or set data.filter_overlong_prompts"
            )
        reward = made.reward if made.reward is not None else self.unscored_reward
        if reward is None or not made.completion_ids:
            raise EnvironmentFault(
                f"example {record.example_id} of {record.env.name} cannot be trained: {made.problem}"
            )
        metrics = {name: math.nan if value is None else value for name, value in record.metrics.items()}
        return {
            "prompt_ids": made.prompt_ids,
            "response_ids": made.completion_ids,
            "response_mask": made.mask,
            "response_logprobs": made.logprobs,
            "reward_score": reward,
            "num_turns": len(record.prompt) + len(record.messages),
            "metrics": {
                "generate_sequences": record.timing.model_s,
                "tool_calls": record.timing.tool_s,
                "compute_score": record.timing.score_s,
            },
            "extra_fields": {"turn_scores": [], "tool_rewards": [], "reward_extra_info": metrics},
        }


def rows(rollouts: EnvRollouts, agent_name: str) -> list[dict[str, Any]]:
    """The environment's rows in the shape of verl's dataset: write them with `Dataset.from_list(…).to_parquet(…)`."""
    return [
        {
            "prompt": row["prompt"],
            "agent_name": agent_name,
            "data_source": rollouts.name,
            "reward_model": {"style": "rule", "ground_truth": ""},  # read by none: the environment scores
            "extra_info": {"index": row["example_id"]},
        }
        for row in rollouts.prompts()
    ]


def _plain(value: Any) -> Any:
    """Without the mappings and lists of the configuration's own library."""
    if isinstance(value, Mapping):
        found = cast(Mapping[str, Any], value)
        return {name: _plain(found[name]) for name in found}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in cast(Sequence[Any], value)]
    return value


class _Engine:
    """A `Sampler` over verl's server manager. Turns of one rollout go to the server that has its prefix."""

    def __init__(self, server_manager: Any, sampling_params: Mapping[str, Any], end_id: int) -> None:
        self._server_manager, self._end_id = server_manager, end_id
        self._sampling = {**sampling_params, "logprobs": True}

    async def __call__(self, prompt_ids: list[int], sampling: dict[str, Any], affinity: str) -> Sampled:
        given = {**self._sampling, "max_tokens": sampling["max_tokens"]}
        made = await self._server_manager.generate(
            request_id=affinity or uuid4().hex, prompt_ids=prompt_ids, sampling_params=given
        )
        if made.stop_reason == "aborted":
            return Sampled(made.token_ids, (), "abort")
        was_cut = len(made.token_ids) >= given["max_tokens"] and made.token_ids[-1] != self._end_id
        return Sampled(made.token_ids, made.log_probs or (), "length" if was_cut else "stop")
