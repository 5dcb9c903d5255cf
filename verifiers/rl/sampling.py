"""`training_sampling`: how to sample what is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verifiers.errors import ConfigError


def training_sampling(given: Mapping[str, Any], version: int) -> dict[str, Any]:
    """`given`, with all that a trainer depends on said aloud, and prefix caches of other weights shut out.

    Nothing is left to the defaults of a server or of the model's files. Raises ConfigError for what makes the
    log-probabilities of a server others than those that a trainer computes.

    >>> training_sampling({"max_tokens": 512}, version=3)["extra_body"]["cache_salt"]
    '3'
    """
    sampling = dict(given)
    extra = dict(sampling.pop("extra_body", None) or {})
    for name, neutral in _NEUTRAL.items():
        found = extra.get(name, sampling.get(name))
        if found is not None and found != neutral:
            raise ConfigError(
                f"sampling.{name} = {found!r}: a trainer computes log-probabilities over all tokens, which "
                f"this changes; leave it out ({name} = {neutral!r})"
            )
    sampling = {name: value for name, value in sampling.items() if name not in _NEUTRAL}
    sampling |= {"top_p": 1.0, "logprobs": True}
    sampling.setdefault("temperature", 1.0)
    neutral = {name: value for name, value in _NEUTRAL.items() if name in _SAID}
    # a salt of its own for each version: keys and values that older weights computed are not used again
    extra |= neutral | {"return_token_ids": True, "cache_salt": str(version)}
    return sampling | {"extra_body": extra}


_NEUTRAL: dict[str, Any] = {
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_tokens": 0,
    "logit_bias": None,
    "allowed_token_ids": None,
    "bad_words": None,
    "structured_outputs": None,
}
_SAID = ("top_k", "min_p", "repetition_penalty")  # what a model's generation_config.json may hold
