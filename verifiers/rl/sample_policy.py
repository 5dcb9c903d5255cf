"""`SamplePolicy`: what becomes of rollouts that are not as one would wish, as data.

There is one mask. A policy decides whether tokens are in it; nothing downstream masks rollouts once more.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from verifiers.errors import ConfigError
from verifiers.rl.advantage import Baseline

Truncated = Literal[
    "keep",  # as any other rollout
    "zero",  # with a reward of 0.0
    "mask",  # its reward counts in the group's mean, its tokens are not trained
    "drop",  # as if it had not been
]
Overlong = Literal["drop", "cut"]
OnBadTokens = Literal["drop", "raise"]


class SamplePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How groups become samples. Raises ConfigError naming the field and what it may be."""

    seq_len: int | None = None  # most tokens of a sample; None: any number
    overlong: Overlong = "drop"  # a longer sample is left out, or cut to its first `seq_len` tokens
    truncated: Truncated = "keep"  # a rollout or reply that a limit cut short
    bad_tokens: OnBadTokens = "drop"  # a rollout without usable ids and log-probabilities, or BadTokens
    min_group: int = 2  # fewest rollouts with a reward that a group is trained with
    skip_trivial: bool = True  # a group whose rewards are all equal gives no samples
    baseline: Baseline = "mean"
    turn_reward_weight: float = 0.0  # of the advantages of rewards for single turns, added to the rollout's
    actors: tuple[str, ...] = ("assistant",)  # whose turns are trained; others may be other models

    def __post_init__(self) -> None:
        for name, choices in (
            ("overlong", Overlong),
            ("truncated", Truncated),
            ("bad_tokens", OnBadTokens),
            ("baseline", Baseline),
        ):
            if (value := getattr(self, name)) not in get_args(choices):
                raise ConfigError(f"{name} = {value!r} is none of: {', '.join(get_args(choices))}")
        if self.min_group < 1:
            raise ConfigError(f"min_group = {self.min_group}: a group has at least 1 rollout")
        if self.seq_len is not None and self.seq_len < 2:
            raise ConfigError(f"seq_len = {self.seq_len}: the shortest sample has 2 tokens")
        if not self.actors:
            raise ConfigError("actors is empty: name those to train, as ['assistant']")


DEFAULT_POLICY = SamplePolicy()
