"""Suffix decoding of vLLM: how to switch it on, and what it has done."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from verifiers.errors import ConfigError

FIRST_VERSION = (0, 12)  # of vLLM that has the method

_SAMPLE = re.compile(
    r"^vllm:spec_decode_num_(?P<name>drafts|draft_tokens|accepted_tokens)(?:_total)?(?:\{[^}]*\})? (?P<value>\S+)$",
    re.M,
)


def speculative_config(
    version: str,
    *,
    num_speculative_tokens: int = 16,
    max_tree_depth: int = 24,
    max_cached_requests: int = 10_000,
    max_spec_factor: float = 1.0,
    min_token_probability: float = 0.1,
) -> dict[str, object]:
    """vLLM's `speculative_config` for suffix decoding. 10,000 cached requests are 78 problems of 128 rollouts.

    Raises ConfigError for a vLLM that does not have it. Its older model runner needs `arctic-inference` installed too.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < FIRST_VERSION:
        raise ConfigError(
            f"vLLM {version} has no suffix decoding; it needs {FIRST_VERSION[0]}.{FIRST_VERSION[1]} or newer"
        )
    return {
        "method": "suffix",
        "num_speculative_tokens": num_speculative_tokens,
        "suffix_decoding_max_tree_depth": max_tree_depth,
        "suffix_decoding_max_cached_requests": max_cached_requests,
        "suffix_decoding_max_spec_factor": max_spec_factor,
        "suffix_decoding_min_token_prob": min_token_probability,
    }


def launch_arguments(version: str, **settings: float) -> list[str]:
    """The same for the command line of a server, with the scheduling that obeys `LengthPredictor.priority`."""
    config = speculative_config(version, **settings)  # pyright: ignore[reportArgumentType]
    return ["--speculative-config", json.dumps(config), "--scheduling-policy", "priority"]


@dataclass(frozen=True, slots=True)
class SpeculationCounts:
    """What a server has drafted since it was started, over all its engines."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0

    @classmethod
    def of_metrics(cls, text: str) -> SpeculationCounts | None:
        """Read from the text of `/metrics`; `None` when the server does not speculate."""
        totals = {"drafts": 0.0, "draft_tokens": 0.0, "accepted_tokens": 0.0}
        samples = list(_SAMPLE.finditer(text))
        for sample in samples:
            totals[sample["name"]] += float(sample["value"])
        return cls(**{name: int(value) for name, value in totals.items()}) if samples else None

    def since(self, before: SpeculationCounts) -> SpeculationCounts:
        """What was done between two readings. A server that was started anew counts from its start."""
        if self.drafts < before.drafts:
            return self
        return SpeculationCounts(
            self.drafts - before.drafts,
            self.draft_tokens - before.draft_tokens,
            self.accepted_tokens - before.accepted_tokens,
        )

    @property
    def acceptance(self) -> float:
        """Share of the drafted tokens that were right; 0.0 of none."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else 0.0

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a pass with a draft yields, its own token counted."""
        return 1.0 + self.accepted_tokens / self.drafts if self.drafts else 1.0
