#!/usr/bin/env python3
"""The trainer on one GPU: tokens a second, peak memory, and that its loss is the one a CPU computes.

    python benchmarks/train_gpu.py            # a random model of Qwen's shape with 0.5 billion parameters, in bfloat16
    python benchmarks/train_gpu.py --tiny     # seconds on a CPU: that the script itself works

One JSON line. A step is forward, backward, clipping and Muon with AdamW, over packs of 4,096 and of 16,384 tokens made
of sequences of mixed lengths, as rollouts have; the first steps are not counted. The loss is compared on a short pack:
float32 on the CPU against bfloat16 on the GPU, the same weights. Exit status 1: they differ by more than bfloat16 may.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
from array import array
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from verifiers.rl.pack import pack
from verifiers.rl.trainer.config import ModelConfig, OptimConfig, TrainerConfig
from verifiers.rl.trainer.trainer import Trainer
from verifiers.rl.types import RankBatch, TrainSample

HALF_BILLION = {  # Qwen3-0.6B's shape: 0.44 billion parameters in the layers, 0.16 billion in the embedding
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}
TINY = HALF_BILLION | {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
# A token's log-probability is a sum of products rounded to 8 bits; over hundreds of tokens the errors average out.
LOSS_TOLERANCE = 0.02
LOGPROB_TOLERANCE = 0.05  # mean over tokens


def samples_of(tokens: int, longest: int, vocabulary: int, seed: int) -> list[TrainSample]:
    """Sequences that fill a pack of `tokens`, a quarter of each its prompt, as if sampled by random weights."""
    rng = random.Random(seed)
    found: list[TrainSample] = []
    left = tokens
    while left >= 8:
        length = min(left, max(8, int(longest * rng.random() ** 2)))
        left -= length
        prompt = length // 4
        trained = length - prompt
        chosen = [rng.gauss(-math.log(vocabulary), 0.1) for _ in range(trained)]
        found.append(
            TrainSample(
                env="benchmark",
                example_id=0,
                group_id="g",
                rollout_id=f"r{len(found)}",
                token_buffer=array("i", [rng.randrange(vocabulary) for _ in range(length)]).tobytes(),
                mask_buffer=bytes(prompt) + bytes([1]) * trained,
                logprob_buffer=array("f", [0.0] * prompt + chosen).tobytes(),
                advantage_buffer=array("f", [0.0] * prompt + [rng.choice([-0.5, 0.5])] * trained).tobytes(),
                version_min=0,
                version_max=0,
            )
        )
    return found


def trainer_on(device: str, folder: Path, compute: str, checkpointing: bool) -> Trainer:
    model = ModelConfig(
        path=str(folder),
        compute="bfloat16" if compute == "bfloat16" else "float32",
        activation_checkpointing=checkpointing,
    )
    return Trainer.start(TrainerConfig(model=model, optim=OptimConfig(lr=1e-6)), device=device)


def speed(trainer: Trainer, batches: list[RankBatch], warm_up: int) -> dict[str, float]:
    told = [trainer.step(batch) for batch in batches][warm_up:]
    seconds = sum(metrics["step_s"] for metrics in told)
    tokens = sum(metrics["step_s"] * metrics["tokens_per_s"] for metrics in told)
    peak = max(metrics.get("peak_memory_bytes", 0.0) for metrics in told)
    return {
        "tokens_per_s": round(tokens / seconds),
        "step_s": round(seconds / len(told), 4),
        "peak_gib": round(peak / 2**30, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a tiny model and short packs, for a CPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=6)
    given = parser.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(1)
        if not given.tiny:
            parser.error("there is no GPU here: --tiny shows that the script works")
    shape, packs = (TINY, {"4k": 256, "16k": 512}) if given.tiny else (HALF_BILLION, {"4k": 4096, "16k": 16384})
    vocabulary = shape["vocab_size"]
    report: dict[str, object] = {"device": given.device, "torch": torch.__version__, "tiny": given.tiny}
    if given.device == "cuda":
        report["gpu"] = torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        causal = AutoModelForCausalLM.from_config(Qwen3Config(**shape))
        report["parameters"] = sum(parameter.numel() for parameter in causal.parameters())
        causal.save_pretrained(folder)
        del causal
        probe = pack(samples_of(256, 128, vocabulary, seed=1), 256, 1, 0)[0]
        exact = trainer_on("cpu", folder, "float32", checkpointing=False)
        expected = torch.tensor(exact.logprobs(probe.micro_batches[0]))
        expected_loss = exact.step(probe)["loss"]
        del exact
        for checkpointing in (False, True):
            trainer = trainer_on(given.device, folder, "bfloat16", checkpointing)
            if not checkpointing:
                found = torch.tensor(trainer.logprobs(probe.micro_batches[0]))
                report["logprob_difference"] = (found - expected).abs().sum().item() / int((expected != 0).sum())
                loss = trainer.step(probe)["loss"]
                report["loss"], report["loss_of_cpu"] = loss, expected_loss
            for label, tokens in packs.items():
                first = trainer.next_step
                batches = [
                    pack(samples_of(tokens, tokens // 2, vocabulary, seed=step), tokens, 1, step)[0]
                    for step in range(first, first + given.steps)
                ]
                report[label + (" checkpointed" if checkpointing else "")] = speed(trainer, batches, warm_up=2)
            del trainer
            if given.device == "cuda":
                torch.cuda.empty_cache()
    agrees = (
        abs(float(str(report["loss"])) - expected_loss) < LOSS_TOLERANCE
        and float(str(report["logprob_difference"])) < LOGPROB_TOLERANCE
    )
    print(json.dumps(report | {"agrees": agrees}))
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
