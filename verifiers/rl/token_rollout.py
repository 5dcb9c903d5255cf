"""`TokenRollout`: a finished rollout as the one token sequence that trainers take which know no branches."""

from __future__ import annotations

import logging
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from verifiers.records import RolloutRecord
from verifiers.rl.branches import BadTokens, branches_of
from verifiers.rl.samples import is_truncated

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenRollout:
    """A prompt of P tokens and a completion of T; what the environment wrote is in the completion, with a mask of 0.

    `reward` is None where there is none to train on, and `problem` then says why; the mask is all 0.
    """

    prompt_ids: list[int]  # [P]; empty where the model was never asked
    completion_ids: list[int]  # [T]
    mask: list[int]  # [T]; 1: sampled by the policy
    logprobs: list[float]  # [T]; 0.0 where the mask is 0
    reward: float | None
    is_truncated: bool = False
    problem: str | None = None
    forks: int = 0  # branches of the rollout that are not in the sequence

    def padded(self, prompt_ids: Sequence[int], token_id: int) -> TokenRollout:
        """Itself; where it has no token, one that is not trained on: batches have a place for every rollout."""
        if self.completion_ids:
            return self
        prompt = self.prompt_ids or list(prompt_ids)
        return TokenRollout(prompt, [token_id], [0], [0.0], None, self.is_truncated, self.problem or "no tokens")

    def cut(self, most: int | None) -> TokenRollout:
        """With the first `most` tokens of the completion. Nothing is hidden: a shorter one counts as truncated."""
        if most is None or len(self.completion_ids) <= most:
            return self
        return TokenRollout(
            self.prompt_ids,
            self.completion_ids[:most],
            self.mask[:most],
            self.logprobs[:most],
            self.reward,
            True,
            self.problem,
            self.forks,
        )


def token_rollout(record: RolloutRecord, actor: str = "assistant") -> TokenRollout:
    """The branch that holds the actor's last turn.

    A context that was rewritten on the way has left other branches behind; they are counted in `forks`, and not
    trained. A trainer that takes `TrainSample`s trains them all.
    """
    problem = _problem(record)
    try:
        branches = branches_of(record.turns, [actor])
    except BadTokens as error:
        logger.warning("%s, example %d: %s", record.env.name, record.example_id, error)
        return TokenRollout([], [], [], [], None, is_truncated(record), str(error))
    if not branches:
        return TokenRollout([], [], [], [], None, is_truncated(record), problem or "no turn has tokens")
    branch = max(branches, key=lambda branch: branch.sampled[-1].turn)
    ids, logprobs = array("i", bytes(branch.ids)), array("f", bytes(branch.logprobs))
    start = branch.sampled[0].start
    mask = [0] * (len(ids) - start)
    if problem is None:
        for span in branch.sampled:
            mask[span.start - start : span.end - start] = [1] * (span.end - span.start)
    return TokenRollout(
        prompt_ids=ids[:start].tolist(),
        completion_ids=ids[start:].tolist(),
        mask=mask,
        logprobs=logprobs[start:].tolist(),
        reward=record.reward if problem is None else None,
        is_truncated=is_truncated(record),
        problem=problem,
        forks=len(branches) - 1,
    )


def mean_where_none(rewards_G: Sequence[float | None]) -> list[float]:
    """The rewards of a group's tries, with the mean of the others where there is none.

    For trainers that must have a number: such a try then changes neither the others' advantages over the mean nor has
    one. With no reward at all the group is all 0.0, and none has an advantage.
    """
    known = [reward for reward in rewards_G if reward is not None]
    mean = math.fsum(known) / len(known) if known else 0.0
    return [mean if reward is None else reward for reward in rewards_G]


def _problem(record: RolloutRecord) -> str | None:
    if record.reward is None or not math.isfinite(record.reward):
        told = [f"{error.type}: {error.message}" for error in record.errors]
        told += [f"{score.name}: {score.reason or score.status}" for score in record.scores if score.value is None]
        return f"{record.status}: {'; '.join(told) or 'no reward'}"
    if any(turn.finish_reason == "abort" for turn in record.turns):
        return "the server ended a reply before the model did"
    return None
