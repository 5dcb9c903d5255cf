"""`Branch`: one token sequence of a rollout, grown turn by turn.

A turn whose prompt begins with all that a branch holds continues it; every other turn begins a new branch. Nothing is
tokenised again and nothing is compared as text, so what is trained on is what was sampled. A completion is sampled in
the one branch that its turn continues or begins; where a later branch repeats it, it is prompt, and not trained again.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Sequence
from typing import NamedTuple

from verifiers.records import TokenTrace, Turn

LOWEST_LOGPROB = -9999.0  # servers write this where they have none (JSON has no infinity): no token is so unlikely
HIGHEST_LOGPROB = 1e-3  # above 0 by rounding alone


class BadTokens(ValueError):
    """A turn's tokens cannot be trained on. The message names the turn, by its place among the record's turns."""


class Sampled(NamedTuple):
    """Tokens [start, end) of a branch are the completion of the record's turn number `turn`."""

    start: int
    end: int
    turn: int


class Branch:
    """Tokens of one actor: int32 ids, float32 log-probabilities (0.0 where not sampled) and what was sampled."""

    __slots__ = ("actor", "ids", "logprobs", "sampled")

    def __init__(self, actor: str) -> None:
        self.actor = actor
        self.ids = bytearray()
        self.logprobs = bytearray()
        self.sampled: list[Sampled] = []

    def add(self, prompt: bytes | bytearray, completion: bytes, logprobs: bytes, turn: int) -> None:
        """One turn's new tokens. `logprobs` are empty for an actor that is not trained."""
        self.ids += prompt
        start = len(self.ids) // 4
        self.ids += completion
        self.logprobs += bytes(len(prompt))
        self.logprobs += logprobs or bytes(len(completion))
        self.sampled.append(Sampled(start, len(self.ids) // 4, turn))

    def __len__(self) -> int:
        return len(self.ids) // 4


def branches_of(turns: Sequence[Turn], actors: Collection[str]) -> list[Branch]:
    """The branches of `actors`, in the order in which they began.

    Raises BadTokens where one of their turns has no token ids, no log-probability for each, or one that is none.
    Other actors' turns are read only as far as later prompts refer to them.
    """
    branches: list[Branch] = []
    before: Branch | None = None  # ends with the turn before; None: that turn has no tokens
    for number, turn in enumerate(turns):
        is_trained = turn.actor in actors
        if is_trained:
            _check(turn.tokens, number)
        trace = turn.tokens
        if trace is None or not trace.completion_buffer:
            before = None
            continue
        branch, prompt = _home(branches, before, turn.actor, trace, number)
        branch.add(prompt, trace.completion_buffer, trace.logprob_buffer if is_trained else b"", number)
        before = branch
    return [branch for branch in branches if branch.actor in actors]


def _home(
    branches: list[Branch], before: Branch | None, actor: str, trace: TokenTrace, number: int
) -> tuple[Branch, bytes | bytearray]:
    """The branch that the turn continues, and what its prompt adds there. A new one is put into `branches`."""
    shared = 4 * trace.prefix_length
    if shared > (0 if before is None else len(before.ids)):
        raise BadTokens(f"turn {number} begins with {trace.prefix_length} tokens of a turn before it that has fewer")
    if before is not None and before.actor == actor and shared == len(before.ids):
        return before, trace.prompt_buffer  # the common case, without looking at a token
    prompt = trace.prompt_buffer if before is None or not shared else before.ids[:shared] + trace.prompt_buffer
    home = None
    for branch in branches:
        longer = home is None or len(branch.ids) > len(home.ids)
        if longer and branch.actor == actor and prompt.startswith(branch.ids):
            home = branch
    if home is None:
        home = Branch(actor)
        branches.append(home)
    return home, prompt[len(home.ids) :]


def _check(trace: TokenTrace | None, number: int) -> None:
    if trace is None:
        raise BadTokens(f"turn {number} has no token ids: the server must return them (`return_token_ids`)")
    ids, logprobs = len(trace.completion_buffer), len(trace.logprob_buffer)
    if ids % 4 or logprobs % 4 or len(trace.prompt_buffer) % 4:
        raise BadTokens(f"turn {number} has a torn token buffer")
    if ids != logprobs:
        raise BadTokens(f"turn {number} has {ids // 4} sampled tokens, but {logprobs // 4} log-probabilities")
    if not logprobs:
        return  # the model said nothing at all
    if not trace.prefix_length and not trace.prompt_buffer:
        raise BadTokens(f"turn {number} has no prompt ids: what it was sampled after is not known")
    values = array("f")
    values.frombytes(trace.logprob_buffer)
    if not math.isfinite(sum(values)):  # which one NaN or infinity makes so, and float32 cannot otherwise
        raise BadTokens(f"turn {number} has a log-probability that is not finite")
    if min(values) <= LOWEST_LOGPROB or max(values) > HIGHEST_LOGPROB:
        raise BadTokens(f"turn {number} has log-probabilities of {min(values):g} to {max(values):g}: some are fillers")
