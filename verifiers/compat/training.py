"""`process_env_results_vllm`: rollouts as token lists with masks, as trainers of 0.1.3-0.1.7 asked for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.errors import ResultsError


def processed_outputs(
    states: Sequence[Mapping[str, Any]],
    rewards: Sequence[float | None],
    *,
    max_seq_len: int = -1,
    mask_env_responses: bool = False,
    mask_truncated_completions: bool = False,
    zero_truncated_completions: bool = False,
) -> Any:
    """One entry a rollout: the first prompt's tokens, and all after them with a mask and log-probabilities.

    The tokens are those that the server returned; nothing is tokenised here. `max_seq_len` cuts, and what was cut may
    be masked or have its reward set to zero. Raises ResultsError for a rollout whose tokens are not known.
    """
    from verifiers.compat.classic_types import ProcessedOutputs

    made = ProcessedOutputs()
    for number, (state, reward) in enumerate(zip(states, rewards, strict=True)):
        prompt, completion, mask, logprobs = _tokens_of(state, mask_env_responses, number)
        is_cut = 0 < max_seq_len < len(prompt) + len(completion)
        if is_cut:
            prompt = prompt[:max_seq_len]
            room = max_seq_len - len(prompt)
            completion, mask, logprobs = completion[:room], mask[:room], logprobs[:room]
            mask = [0] * len(mask) if mask_truncated_completions else mask
        made.prompt_ids.append(prompt)
        made.prompt_mask.append([0] * len(prompt))
        made.completion_ids.append(completion)
        made.completion_mask.append(mask)
        made.completion_logprobs.append(logprobs)
        made.rewards.append(0.0 if is_cut and zero_truncated_completions else reward)  # type: ignore[arg-type]
        made.is_truncated.append(is_cut)
    return made


def _tokens_of(
    state: Mapping[str, Any], mask_env: bool, number: int
) -> tuple[list[int], list[int], list[int], list[float]]:
    prompt: list[int] | None = None
    completion: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for turn, step in enumerate(state.get("trajectory") or ()):
        tokens = step["tokens"]
        if tokens is None:
            raise ResultsError(
                f"rollout {number} has no token ids in turn {turn}: the server must return them. "
                "Use the client type 'openai_chat_completions_token', or ask for return_token_ids in extra_body"
            )
        asked: list[int] = list(tokens["prompt_ids"])
        if prompt is None:
            prompt = asked
        so_far = prompt + completion
        if asked[: len(so_far)] != so_far:
            raise ResultsError(
                f"rollout {number} does not continue its own tokens in turn {turn}, so it is no single sequence; "
                "train on its turns (state['trajectory']) instead"
            )
        added = asked[len(so_far) :]  # the environment wrote these
        completion += added + tokens["completion_ids"]
        mask += [0 if mask_env else 1] * len(added) + [1] * len(tokens["completion_ids"])
        logprobs += [0.0] * len(added) + list(tokens["completion_logprobs"])
    return prompt or [], completion, mask, logprobs
