"""Reinforcement learning in one process: the reward rises, and does not when advantages are dealt out at random."""

import random

import pytest
from rl_policies import SMALL, batch_of, sample, torch, transformers, write_model

from verifiers.rl.trainer.config import (
    MaskedImportanceSampling,
    ModelConfig,
    OptimConfig,
    SequencePolicy,
    TrainerConfig,
)
from verifiers.rl.trainer.trainer import Trainer

GROUPS, TRIES, LENGTH, VOCABULARY = 4, 8, 4, 16
STEPS = 24


def sampled(trainer, prompts, generator):
    """One answer of LENGTH tokens a prompt, and the log-probability of each token: [prompts][1 + LENGTH]."""
    base, head = trainer.model.causal.base_model, trainer.model.head
    ids = torch.tensor(prompts)[:, None]
    logprobs = torch.zeros(len(prompts), 1)
    for length in range(1, LENGTH + 1):
        positions = torch.arange(length).repeat(len(prompts))
        with torch.no_grad():
            hidden = base(
                input_ids=ids.reshape(1, -1),
                position_ids=positions[None],
                use_cache=False,
                sequence_lengths=[length] * len(prompts),
            ).last_hidden_state[0]
        choices = (hidden[length - 1 :: length] @ head.T).log_softmax(1)
        chosen = torch.multinomial(choices.exp(), 1, generator=generator)
        ids = torch.cat([ids, chosen], 1)
        logprobs = torch.cat([logprobs, choices.gather(1, chosen)], 1)
    return ids.tolist(), logprobs.tolist()


def reward_of(ids):
    """The share of even tokens in the answer: a half by chance."""
    return sum(token % 2 == 0 for token in ids[1:]) / LENGTH


def rewards_of_training(folder, loss, *, dealer=None):
    """The mean reward of each step. What is trained on was sampled with weights that are up to two updates old.

    A `dealer` permutes the advantages of a step.
    """
    optim = OptimConfig(lr=0.02, warmup_steps=2)
    trainer = Trainer.start(TrainerConfig(model=ModelConfig(path=str(folder)), loss=loss, optim=optim), device="cpu")
    generator = torch.Generator().manual_seed(7)
    means, waiting = [], []
    for step in range(STEPS):
        if not waiting:  # three batches of one version
            for _ in range(3):
                prompts = [group for group in range(GROUPS) for _ in range(TRIES)]
                waiting.append(sampled(trainer, prompts, generator))
        answers, logprobs = waiting.pop(0)
        rewards = [reward_of(ids) for ids in answers]
        means.append(sum(rewards) / len(rewards))
        advantages = []
        for group in range(GROUPS):
            own = rewards[group * TRIES : (group + 1) * TRIES]
            advantages += [reward - sum(own) / TRIES for reward in own]
        if dealer is not None:
            dealer.shuffle(advantages)
        samples = [
            sample(ids, own, advantage=advantage, rollout=f"r{number}")
            for number, (ids, own, advantage) in enumerate(zip(answers, logprobs, advantages, strict=True))
        ]
        trainer.step(batch_of(samples, step=step, seq_len=256))
    return means


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = transformers.Qwen3Config(**SMALL | {"vocab_size": VOCABULARY}, head_dim=8, tie_word_embeddings=True)
    return write_model(tmp_path_factory.mktemp("model"), config)


def mean(values):
    return sum(values) / len(values)


@pytest.mark.parametrize("loss", [MaskedImportanceSampling(), SequencePolicy(clip_low=0.2, clip_high=0.2)], ids=str)
def test_the_reward_rises(loss, folder):
    rewards = rewards_of_training(folder, loss)
    assert mean(rewards[:3]) < 0.6
    assert mean(rewards[-6:]) > 0.9


def test_the_reward_does_not_rise_when_advantages_are_dealt_out_at_random(folder):
    """Such a policy wanders, so it is the mean over several deals that stays where it began."""
    runs = [rewards_of_training(folder, MaskedImportanceSampling(), dealer=random.Random(seed)) for seed in range(4)]
    assert mean([mean(rewards[-6:]) for rewards in runs]) < mean(runs[0][:3]) + 0.1
