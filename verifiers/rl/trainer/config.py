"""`TrainerConfig`: everything that a trainer is told. Plain data: loads no torch, maps onto a TOML table.

Values out of range are refused when the config is built, with the field's name and what would be right.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from verifiers.errors import ConfigError

Precision = Literal["float32", "bfloat16"]


def _at_least(table: str, config: msgspec.Struct, **lowest: float) -> None:
    for name, low in lowest.items():
        value = getattr(config, name)
        if not low <= value < math.inf:
            raise ConfigError(f"{table}.{name}: {value}; should be a finite number of at least {low}")


class MaskedImportanceSampling(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="masked_importance_sampling"
):
    """Token-level importance sampling that leaves out what the two engines disagree on (arXiv 2512.16144).

    A token counts while its ratio trainer / inference is in [low, high]; a rollout is dropped whole when the ratio of
    any of its tokens is below `drop_below`.
    """

    low: float = 0.5
    high: float = 5.0
    drop_below: float = 1e-5

    def __post_init__(self) -> None:
        if not 0 < self.drop_below <= self.low <= 1 <= self.high < math.inf:
            raise ConfigError(
                f"loss.drop_below, low, high: {self.drop_below}, {self.low}, {self.high}; "
                "should be 0 < drop_below <= low <= 1 <= high"
            )


class SequencePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="gspo"):
    """GSPO (arXiv 2507.18071): one ratio a sequence, the geometric mean of those of its tokens, clipped as in PPO."""

    clip_low: float = 3e-4
    clip_high: float = 4e-4
    max_ratio: float = 10.0  # a sequence beyond it no longer pushes: a bad one would without bound

    def __post_init__(self) -> None:
        if not (0 <= self.clip_low < 1 and self.clip_high >= 0 and 1 + self.clip_high <= self.max_ratio < math.inf):
            raise ConfigError(
                f"loss.clip_low, clip_high, max_ratio: {self.clip_low}, {self.clip_high}, {self.max_ratio}; "
                "should be 0 <= clip_low < 1, 0 <= clip_high, 1 + clip_high <= max_ratio"
            )


class CrossEntropy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="cross_entropy"):
    """The supervised loss: minus the mean log-probability of the trained tokens. Advantages are not looked at."""


LossConfig = MaskedImportanceSampling | SequencePolicy | CrossEntropy


class OptimConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Muon for the matrices inside the layers, AdamW for embeddings, head, norms and biases; one learning rate."""

    lr: float = 1e-6
    weight_decay: float = 0.01  # decoupled; not of norms and biases
    muon: bool = True  # False: AdamW for all
    momentum: float = 0.95  # of Muon
    betas: tuple[float, float] = (0.9, 0.95)  # of AdamW
    eps: float = 1e-8
    max_grad_norm: float = 1.0  # over all parameters together; 0: no clipping
    warmup_steps: int = 0  # the learning rate rises linearly over the first so many steps
    decay: Literal["constant", "linear", "cosine"] = "constant"
    decay_steps: int = 0  # steps from the end of the warm-up to the lowest learning rate
    min_factor: float = 0.0  # of `lr`, at the end of the decay and after it

    def __post_init__(self) -> None:
        _at_least("optim", self, lr=0, weight_decay=0, max_grad_norm=0, warmup_steps=0, decay_steps=0, min_factor=0)
        for name, value in (("momentum", self.momentum), ("betas", max(self.betas)), ("betas", min(self.betas))):
            if not 0 <= value < 1:
                raise ConfigError(f"optim.{name}: {value}; should be at least 0 and below 1")
        if self.decay != "constant" and self.decay_steps < 1:
            raise ConfigError(f"optim.decay_steps: {self.decay_steps}; a {self.decay} decay needs at least 1")

    def factor(self, step: int) -> float:
        """What the learning rate is multiplied by in `step`, counted from 0. Nothing but the step goes in."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.decay == "constant":
            return 1.0
        done = min(1.0, (step - self.warmup_steps) / self.decay_steps)
        left = 1.0 - done if self.decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.min_factor + (1.0 - self.min_factor) * left


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model, and how it is computed. Weights and optimiser state are kept in float32 whatever `compute` says."""

    path: str  # a folder in Hugging Face's layout
    compute: Precision = "float32"  # of the passes through the layers
    fp32_head: bool = True  # embedding, last norm and output layer in float32, where `compute` is less
    activation_checkpointing: bool = False  # keep each layer's input only, and compute the layer again going back
    offload_activations: bool = False  # and keep those inputs in the host's memory: for the longest sequences
    logit_chunk: int = 1024  # tokens whose logits exist at one time

    def __post_init__(self) -> None:
        _at_least("model", self, logit_chunk=1)
        if self.offload_activations and not self.activation_checkpointing:
            raise ConfigError("model.offload_activations: true; should be false, or activation_checkpointing true too")


class TrainerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: ModelConfig
    loss: LossConfig = MaskedImportanceSampling()
    optim: OptimConfig = OptimConfig()
    seed: int = 0
    # Checkpoints kept in a folder; older ones go once a newer one is complete.
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        _at_least("trainer", self, keep_checkpoints=1)
