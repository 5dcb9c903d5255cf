"""Tiny models, samples and batches for the trainer's tests. Without torch, importing it skips the test module."""

from __future__ import annotations

import random
from array import array
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="the trainer is tested where torch is: sh scripts/setup_train.sh")
transformers: Any = pytest.importorskip("transformers", reason="as above")

from verifiers.rl.pack import pack  # noqa: E402
from verifiers.rl.types import RankBatch, TrainSample  # noqa: E402

torch.set_num_threads(1)  # two on a busy machine wait for each other at every product
VOCABULARY = 97
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_model(folder: Path, config: Any = None, *, seed: int = 0) -> Path:
    """A model with random weights; a Qwen3 whose embedding is also its head when no other config is given."""
    if config is None:
        config = transformers.Qwen3Config(**SMALL, head_dim=8, tie_word_embeddings=True)
    torch.manual_seed(seed)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def sample(
    token_ids: list[int],
    logprobs: list[float] | None = None,
    *,
    advantage: float = 1.0,
    prompt: int = 1,
    rollout: str = "r0",
    branch: int = 0,
    temperature: float = 1.0,
) -> TrainSample:
    """All after the first `prompt` tokens is trained on. `logprobs` has one number a token (None: all 0)."""
    trained = [0] * prompt + [1] * (len(token_ids) - prompt)
    given = [0.0] * len(token_ids) if logprobs is None else logprobs
    return TrainSample(
        env="test",
        example_id=0,
        group_id="g0",
        rollout_id=rollout,
        token_buffer=array("i", token_ids).tobytes(),
        mask_buffer=bytes(trained),
        logprob_buffer=array("f", [own * of for own, of in zip(given, trained)]).tobytes(),
        advantage_buffer=array("f", [advantage * of for of in trained]).tobytes(),
        version_min=0,
        version_max=0,
        branch=branch,
        temperature=temperature,
    )


def some_samples(count: int, *, seed: int = 0, vocabulary: int = VOCABULARY) -> list[TrainSample]:
    """Of 3 to 20 tokens, half of them with a prompt of 2; sampled from about what random weights give."""
    rng = random.Random(seed)
    found: list[TrainSample] = []
    for number in range(count):
        ids = [rng.randrange(3, vocabulary) for _ in range(rng.randrange(3, 21))]
        logprobs = [rng.gauss(-4.57, 0.3) for _ in ids]
        advantage, temperature = rng.choice([-1.0, -0.5, 0.5, 1.0]), rng.choice([1.0, 0.8])
        found.append(
            sample(
                ids,
                logprobs,
                advantage=advantage,
                prompt=1 + number % 2,
                rollout=f"r{number}",
                temperature=temperature,
            )
        )
    return found


def batch_of(samples: list[TrainSample], *, step: int = 0, seq_len: int = 64) -> RankBatch:
    """The whole step for one rank."""
    return pack(samples, seq_len, 1, step)[0]
