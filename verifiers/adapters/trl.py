"""TRL: an environment as the `rollout_func` of a `GRPOTrainer`, or as a reward function for single turns.

>>> rollouts = EnvRollouts("reverse-letters")
>>> GRPOTrainer(model, train_dataset=rollouts.dataset(), reward_funcs=environment_reward,
...             rollout_func=rollout_func(rollouts))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from verifiers.adapters.trl_engine import BackgroundLoop, TrainersEngine
from verifiers.clients.scripted import ScriptedClient
from verifiers.errors import ConfigError
from verifiers.rl.chat_tokenizer import HuggingFaceChat
from verifiers.rl.render import ChatTokenizer, TemplateRenderer
from verifiers.rl.rollouts import EnvRollouts
from verifiers.rl.sampling import training_sampling
from verifiers.rl.token_client import TokenClient
from verifiers.rl.token_rollout import token_rollout
from verifiers.types import RolloutInput

RolloutFunc = Callable[[list[Any], Any], dict[str, Any]]
RewardFunc = Callable[..., list[float | None]]

_loop = BackgroundLoop()


def rollout_func(
    rollouts: EnvRollouts,
    *,
    evaluation: EnvRollouts | None = None,
    endpoint: Any = None,
    model: str = "policy",
    sampling: Mapping[str, Any] | None = None,
    context: int | None = None,
) -> RolloutFunc:
    """What `GRPOTrainer(rollout_func=…)` takes. Give it `environment_reward` as its reward function too.

    Turns are sampled by the trainer's own engine (transformers, or vLLM beside one trainer process), with the
    trainer's sampling and `max_completion_length` for each turn; `context` limits the tokens of all turns together.
    With an `endpoint` they are asked of a server whose weights the trainer keeps up to date, under the name `model`
    with `sampling`; then any number of trainer processes may ask. `evaluation` has the rows of its `eval_dataset`.
    """

    def roll_out(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        source = rollouts if evaluation is None or trainer.model.training else evaluation
        rows = [source.row_of(prompt) for prompt in prompts]
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        chat = HuggingFaceChat(tokenizer)
        if endpoint is not None:
            asked = training_sampling(sampling or {}, trainer.state.global_step)
            records = _loop.submit(source.run(rows, endpoint, model=model, sampling=asked)).result()
            has_logprobs = True
        else:
            engine = TrainersEngine(trainer, tokenizer)
            client = TokenClient(engine, chat, context=context)
            records = engine.serve(_loop.submit(source.run(rows, client, model=model)))
            has_logprobs = engine.has_logprobs
        made = [
            token_rollout(record).padded(_prompt_ids(chat, row["prompt"]), tokenizer.pad_token_id)
            for record, row in zip(records, rows, strict=True)
        ]
        return {
            "prompt_ids": [one.prompt_ids for one in made],
            "completion_ids": [one.completion_ids for one in made],
            "logprobs": [one.logprobs for one in made] if has_logprobs else None,
            "env_mask": [one.mask for one in made],
            "environment_reward": [one.reward for one in made],
            "environment_problem": [one.problem for one in made],
        }

    return roll_out


def environment_reward(*, environment_reward: list[float | None], **_: Any) -> list[float | None]:
    """The rewards that the environment gave. None has no part in its group's baseline, and no advantage."""
    return environment_reward


def reward_function(rollouts: EnvRollouts) -> RewardFunc:
    """A reward function that scores the trainer's own single-turn completions with the environment's rubric.

    Raises ConfigError in training for an environment that answers: it needs `rollout_func`.
    """

    def environment_reward(*, prompts: list[Any], completions: list[Any], **_: Any) -> list[float | None]:
        return _loop.submit(_score(rollouts, prompts, [_reply(completion) for completion in completions])).result()

    return environment_reward


async def _score(rollouts: EnvRollouts, prompts: list[Any], replies: list[Any]) -> list[float | None]:
    rows = [rollouts.row_of(prompt) for prompt in prompts]
    together: dict[int, list[int]] = {}  # places of what is scored together
    for place, row in enumerate(rows):
        together.setdefault(row["example_id"] if rollouts.env.rubric.needs_group else place, []).append(place)
    rewards: list[float | None] = [None] * len(prompts)

    async def score(places: list[int]) -> None:
        given = [replies[place] for place in places]
        for place, reward in zip(places, await _rewards(rollouts, rows[places[0]], given), strict=True):
            rewards[place] = reward

    try:
        async with asyncio.TaskGroup() as tasks:
            for places in together.values():
                tasks.create_task(score(places))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # what concerns one concerns all
    return rewards


async def _rewards(rollouts: EnvRollouts, row: RolloutInput, replies: list[Any]) -> list[float | None]:
    """Of the tries of one row, with the model's reply to each."""
    client = ScriptedClient(replies)
    # one after the other and each once, so that every try has its own reply; they are still scored as a group
    records = await rollouts.run([row] * len(replies), client, max_concurrent=1, max_retries=0)
    if len(client.requests) > len(replies):
        raise ConfigError(f"{rollouts.name} takes several turns: train it with rollout_func")
    if len(client.requests) < len(replies):  # a try broke off before its reply, and the others moved up
        return [None] * len(replies)
    return [record.reward for record in records]


def _reply(completion: Any) -> Any:
    return completion if isinstance(completion, str) else dict(completion[-1])


def _prompt_ids(chat: ChatTokenizer, prompt: Any) -> list[int]:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return TemplateRenderer(chat).prompt(messages)
