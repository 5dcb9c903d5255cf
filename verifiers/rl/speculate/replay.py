"""`replay`: saved rollouts once more through a simulated engine that drafts: what would speculation have given?

Speculative decoding changes no output, so the tokens are those that were saved, and a draft is accepted as far as it
agrees with them. That is what an engine does, also when it samples: it accepts a token of a draft without probabilities
as often as it would have drawn that token itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from verifiers.records import RolloutRecord
from verifiers.rl.speculate.budgets import Budget
from verifiers.rl.speculate.drafter import Drafting, SuffixDrafter
from verifiers.rl.speculate.lengths import LengthPredictor


@dataclass(frozen=True, slots=True)
class Trace:
    """One generation: the tokens of a turn, and the problem that it belongs to."""

    problem: str
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class Engine:
    """How long a step of a simulated engine takes: `step_s` whatever it does, and `token_s` for each token in it.

    Decoding is bound by reading the weights, so that the first is large and the second small until the batch is. The
    figures here are of the order of an 8B model on one H100; give your own.
    """

    slots: int = 64  # rollouts in a batch
    step_s: float = 0.010
    token_s: float = 0.000_02


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of it. Times are simulated seconds."""

    generations: int = 0
    tokens: int = 0
    forwards: int = 0  # of one rollout each: `tokens` without speculation
    drafted: int = 0
    accepted: int = 0
    makespan_s: float = 0.0  # of all epochs, one after the other
    longest_tail_s: float = 0.0  # time for which an epoch had fewer rollouts left than half its slots, at most

    @property
    def tokens_per_step(self) -> float:
        """Tokens that one forward pass of a rollout yields: 1.0 without speculation."""
        return self.tokens / self.forwards if self.forwards else 0.0

    @property
    def acceptance(self) -> float:
        """Share of the drafted tokens that were right."""
        return self.accepted / self.drafted if self.drafted else 0.0


def traces_of(records: Iterable[RolloutRecord]) -> list[Trace]:
    """The turns that have token ids (`vf-eval --save-tokens`)."""
    return [
        Trace(f"{record.env.name}/{record.example_id}", turn.tokens.completion_ids)
        for record in records
        for turn in record.turns
        if turn.tokens is not None and turn.tokens.completion_buffer
    ]


def replay(
    epochs: Sequence[Sequence[Trace]],
    budget: Budget,
    *,
    engine: Engine | None = None,
    drafter: SuffixDrafter | None = None,
    lengths: LengthPredictor | None = None,
    long_first: bool = False,
) -> Replay:
    """The epochs in turn; each begins when the last has ended, and knows what was generated up to then.

    `lengths` is the predictor that `budget` and `long_first` read; it learns as rollouts end.
    """
    run = _Run(budget, engine or Engine(), drafter or SuffixDrafter(), lengths or LengthPredictor())
    for traces in epochs:
        ordered = sorted(traces, key=lambda trace: run.lengths.priority(trace.problem)) if long_first else traces
        run.epoch(list(ordered))
    return run.found


@dataclass(slots=True)
class _Active:
    trace: Trace
    drafting: Drafting
    done: int = 0


class _Run:
    def __init__(self, budget: Budget, engine: Engine, drafter: SuffixDrafter, lengths: LengthPredictor) -> None:
        self.budget, self.engine, self.drafter, self.lengths = budget, engine, drafter, lengths
        self.found = Replay()

    def epoch(self, waiting: list[Trace]) -> None:
        waiting = [trace for trace in reversed(waiting) if len(trace.tokens)]
        active: list[_Active] = []
        tail_s = 0.0
        while waiting or active:
            while waiting and len(active) < self.engine.slots:
                trace = waiting.pop()
                active.append(_Active(trace, self.drafter.begin(trace.problem)))
            taken_s = self._step(active)
            tail_s += taken_s if len(active) < self.engine.slots / 2 else 0.0
            active = [one for one in active if not self._ended(one)]
        self.found = replace(self.found, longest_tail_s=max(self.found.longest_tail_s, tail_s))

    def _step(self, active: list[_Active]) -> float:
        """One forward pass over the batch; its time."""
        accepted = drafted = tokens = 0
        for one in active:
            left = one.trace.tokens[one.done :]
            # The pass yields one token more than it accepts, so the last token is never drafted.
            limit = min(self.budget.tokens(one.trace.problem, one.done), len(left) - 1)
            draft = one.drafting.draft(limit)
            right = _agreeing(draft, left)
            one.drafting.extend(left[: right + 1])
            one.done += right + 1
            accepted, drafted, tokens = accepted + right, drafted + len(draft), tokens + right + 1
        taken_s = self.engine.step_s + self.engine.token_s * (len(active) + drafted)
        before = self.found
        self.found = replace(
            before,
            tokens=before.tokens + tokens,
            forwards=before.forwards + len(active),
            drafted=before.drafted + drafted,
            accepted=before.accepted + accepted,
            makespan_s=before.makespan_s + taken_s,
        )
        return taken_s

    def _ended(self, one: _Active) -> bool:
        if one.done < len(one.trace.tokens):
            return False
        self.drafter.observe(one.trace.problem, one.trace.tokens)
        self.lengths.observe(one.trace.problem, len(one.trace.tokens))
        self.found = replace(self.found, generations=self.found.generations + 1)
        return True


def _agreeing(draft: Sequence[int], tokens: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(draft, tokens)) if a != b), min(len(draft), len(tokens)))
