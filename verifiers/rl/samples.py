"""`SampleSet`: the training samples of finished rollouts, made by a stated policy, and counts of what was left out.

A group's rewards become advantages, and each rollout's branches become samples that carry them. A rollout that is not
scored is left out of its group, never given a reward; tokens that cannot be trained on are never guessed.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import pack

import msgspec

from verifiers.errors import ConfigError
from verifiers.records import RolloutRecord, Turn
from verifiers.rl.advantage import advantages, is_trivial, turn_advantages
from verifiers.rl.branches import BadTokens, Branch, Sampled, branches_of
from verifiers.rl.sample_policy import DEFAULT_POLICY, SamplePolicy
from verifiers.rl.types import PolicyRollout, RolloutGroup, TrainSample

logger = logging.getLogger(__name__)


class SampleCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What went in and what became of it. Counts add up: `a + b`, or `SampleCounts.sum(all)`."""

    groups: int = 0
    short_groups: int = 0  # fewer than `min_group` rollouts had a reward
    trivial_groups: int = 0
    rollouts: int = 0  # = trained + masked + left out, where the group was trained
    undecided: int = 0  # left out: no reward, by the record's status
    fault: int = 0
    failed: int = 0
    unscored: int = 0
    aborted: int = 0  # left out: the server ended a reply before the model did
    truncated: int = 0  # of these, whatever became of them
    truncated_dropped: int = 0
    bad_tokens: int = 0  # left out: see `SampleSet.problems`
    masked: int = 0  # counted in the mean, gave no samples
    trained: int = 0  # gave at least one sample
    samples: int = 0
    forks: int = 0  # samples beyond the first of a rollout's actor
    tokens: int = 0
    trained_tokens: int = 0
    overlong_dropped: int = 0  # samples
    overlong_cut: int = 0
    tokens_lost: int = 0  # sampled tokens of overlong samples that are not trained
    other_turns: int = 0  # of actors that are not trained

    def __add__(self, other: SampleCounts) -> SampleCounts:
        return SampleCounts.sum((self, other))

    @classmethod
    def sum(cls, counts: Sequence[SampleCounts]) -> SampleCounts:
        names = cls.__struct_fields__
        return cls(**{name: sum(getattr(one, name) for one in counts) for name in names})

    def metrics(self) -> dict[str, float]:
        """Every count by name, for a trainer's log."""
        return {f"samples/{name}": float(getattr(self, name)) for name in self.__struct_fields__}


@dataclass(frozen=True, slots=True)
class SampleSet:
    samples: list[TrainSample] = field(default_factory=list[TrainSample])
    counts: SampleCounts = field(default_factory=SampleCounts)
    problems: list[str] = field(default_factory=list[str])  # one line for each rollout of bad tokens

    def by_actor(self) -> dict[str, list[TrainSample]]:
        found: dict[str, list[TrainSample]] = {}
        for sample in self.samples:
            found.setdefault(sample.actor, []).append(sample)
        return found


def samples_of_group(group: RolloutGroup, policy: SamplePolicy = DEFAULT_POLICY) -> SampleSet:
    """The samples of a group's rollouts, with their advantages.

    Raises BadTokens if the policy says so, and ConfigError for rollouts that were sampled at temperature 0.
    """
    maker = _Maker(policy, group.env, group.group_id)
    maker.tally["groups"] = 1
    kept = [kept for rollout in group.rollouts if (kept := maker.kept(rollout)) is not None]
    rewards_G = [one.reward for one in kept]
    if len(kept) < policy.min_group:
        maker.tally["short_groups"] = 1
    elif policy.skip_trivial and is_trivial(rewards_G) and not _turns_differ(kept, policy):
        maker.tally["trivial_groups"] = 1
    else:
        lengths_G = [sum(s.end - s.start for branch in one.branches for s in branch.sampled) for one in kept]
        of_turns = _turn_advantages(kept, policy)
        for number, advantage in enumerate(advantages(rewards_G, baseline=policy.baseline, lengths_G=lengths_G)):
            maker.add(kept[number], advantage, of_turns[number])
    return maker.set()


def samples_of(
    rollout: PolicyRollout,
    advantage: float = 0.0,
    *,
    policy: SamplePolicy = DEFAULT_POLICY,
    group_id: str = "",
    turn_advantages: Mapping[int, float] | None = None,
) -> SampleSet:
    """The samples of one rollout whose advantage is known, scored or not: one for each branch of its turns.

    `turn_advantages` are added to it, by the number of the turn among the record's turns.
    """
    maker = _Maker(policy, rollout.record.env.name, group_id)
    branches = maker.branches(rollout)
    if branches is not None:
        maker.tally["rollouts"] = 1
        maker.add(_Kept(rollout, rollout.record.reward or 0.0, branches, False), advantage, turn_advantages or {})
    return maker.set()


@dataclass(frozen=True, slots=True)
class _Kept:
    """A rollout whose reward counts in its group."""

    rollout: PolicyRollout
    reward: float
    branches: list[Branch]
    is_masked: bool


class _Maker:
    """Makes the samples of one group, and counts."""

    def __init__(self, policy: SamplePolicy, env: str, group_id: str) -> None:
        self.policy, self.env, self.group_id = policy, env, group_id
        self.tally: Counter[str] = Counter()
        self.samples: list[TrainSample] = []
        self.problems: list[str] = []

    def set(self) -> SampleSet:
        return SampleSet(self.samples, SampleCounts(**self.tally), self.problems)

    def kept(self, rollout: PolicyRollout) -> _Kept | None:
        record, truncated = rollout.record, self.policy.truncated
        self.tally["rollouts"] += 1
        reward = record.reward
        if reward is None or not math.isfinite(reward):
            self.tally[_no_reward(record)] += 1
            return None
        if any(turn.finish_reason == "abort" for turn in record.turns):
            self.tally["aborted"] += 1
            return None
        is_masked = False
        if is_truncated(record):
            self.tally["truncated"] += 1
            if truncated == "drop":
                self.tally["truncated_dropped"] += 1
                return None
            reward = 0.0 if truncated == "zero" else reward
            is_masked = truncated == "mask"
        branches = self.branches(rollout)
        return None if branches is None else _Kept(rollout, reward, branches, is_masked)

    def branches(self, rollout: PolicyRollout) -> list[Branch] | None:
        record = rollout.record
        try:
            found = branches_of(record.turns, self.policy.actors)
        except BadTokens as error:
            problem = f"rollout {rollout.rollout_id} ({record.env.name}, example {record.example_id}): {error}"
            if self.policy.bad_tokens == "raise":
                raise BadTokens(problem) from error
            logger.warning("not trained: %s", problem)
            self.problems.append(problem)
            self.tally["bad_tokens"] += 1
            return None
        self.tally["other_turns"] += sum(turn.actor not in self.policy.actors for turn in record.turns)
        return found

    def add(self, kept: _Kept, advantage: float, of_turns: Mapping[int, float]) -> None:
        if kept.is_masked:
            self.tally["masked"] += 1
            return
        numbers: Counter[str] = Counter()
        before = len(self.samples)
        for branch in kept.branches:
            self.tally["forks"] += numbers[branch.actor] > 0
            numbers[branch.actor] += 1
            sampled = self._within(branch)
            if sampled:
                number = len(self.samples) - before
                self.samples.append(self._sample(kept, branch, sampled, number, advantage, of_turns))
        made = self.samples[before:]
        self.tally["samples"] += len(made)
        self.tally["trained" if made else "masked"] += 1
        self.tally["tokens"] += sum(sample.num_tokens for sample in made)
        self.tally["trained_tokens"] += sum(sample.num_trained for sample in made)

    def _within(self, branch: Branch) -> list[Sampled]:
        """What the branch has sampled within `seq_len` tokens; nothing where a longer one is left out."""
        longest = self.policy.seq_len
        if longest is None or len(branch) <= longest:
            return branch.sampled
        all_tokens = sum(s.end - s.start for s in branch.sampled)
        kept: list[Sampled] = []
        if self.policy.overlong == "cut":
            kept = [Sampled(s.start, min(s.end, longest), s.turn) for s in branch.sampled if s.start < longest]
        self.tally["overlong_cut" if kept else "overlong_dropped"] += 1
        self.tally["tokens_lost"] += all_tokens - sum(s.end - s.start for s in kept)
        return kept

    def _sample(
        self,
        kept: _Kept,
        branch: Branch,
        sampled: list[Sampled],
        number: int,
        advantage: float,
        of_turns: Mapping[int, float],
    ) -> TrainSample:
        rollout, record = kept.rollout, kept.rollout.record
        length = min(len(branch), self.policy.seq_len or len(branch))
        mask: list[bytes] = []
        advantage_pieces: list[bytes] = []
        at = 0
        for start, end, turn in sampled:
            # the environment wrote what lies between; training on it would teach the model to play the user
            mask += (bytes(start - at), b"\x01" * (end - start))
            value = pack("<f", advantage + of_turns.get(turn, 0.0))
            advantage_pieces += (bytes(4 * (start - at)), value * (end - start))
            at = end
        mask.append(bytes(length - at))
        advantage_pieces.append(bytes(4 * (length - at)))
        version_min, version_max = _versions(rollout, record.turns, sampled)
        return TrainSample(
            env=self.env,
            example_id=record.example_id,
            group_id=self.group_id,
            rollout_id=rollout.rollout_id,
            token_buffer=bytes(branch.ids[: 4 * length]),
            mask_buffer=b"".join(mask),
            logprob_buffer=bytes(branch.logprobs[: 4 * length]),
            advantage_buffer=b"".join(advantage_pieces),
            version_min=version_min,
            version_max=version_max,
            branch=number,
            actor=branch.actor,
            temperature=_temperature(record),
            reward=record.reward,
        )


def is_truncated(record: RolloutRecord) -> bool:
    """Whether a limit cut the rollout or one of its replies short."""
    return record.is_truncated or any(turn.finish_reason == "length" for turn in record.turns)


def _no_reward(record: RolloutRecord) -> str:
    if record.status in ("undecided", "fault", "failed"):
        return record.status
    return "fault" if record.status == "scored" else "unscored"  # a reward that is no finite number is a fault


def _versions(rollout: PolicyRollout, turns: Sequence[Turn], sampled: Sequence[Sampled]) -> tuple[int, int]:
    """The oldest and the newest policy version of what was sampled.

    Where the server did not say, or named its weights in another way than by a number, it may be any version from
    the request's departure to the rollout's end.
    """
    found: list[int] = []
    for start, end, number in sampled:
        length, known = end - start, 0
        for span in turns[number].versions:
            within = min(span.end, length) - span.start
            if within > 0 and span.version.isdecimal():
                found.append(int(span.version))
                known += within
        if known < length:
            found += (rollout.dispatched_version, rollout.finished_version)
    return min(found), max(found)


def _temperature(record: RolloutRecord) -> float:
    temperature = record.sampling.get("temperature")
    if temperature is None:
        return 1.0  # what servers sample with when they are not told
    if not temperature > 0:
        raise ConfigError(
            f"rollouts of {record.env.name} were sampled at temperature {temperature}: their tokens have no "
            "probability to compare with; sample at a temperature above 0"
        )
    return float(temperature)


def _turn_advantages(kept: Sequence[_Kept], policy: SamplePolicy) -> list[dict[int, float]]:
    """For each rollout: what the rewards of its single turns add to their advantages, by the turn's number."""
    if not policy.turn_reward_weight:
        return [{} for _ in kept]
    turns_G = [_trained_turns(one, policy) for one in kept]
    rewards_GT = [[one.rollout.record.turns[n].reward for n in numbers] for one, numbers in zip(kept, turns_G)]
    return [
        {number: policy.turn_reward_weight * value for number, value in zip(numbers, values_T)}
        for numbers, values_T in zip(turns_G, turn_advantages(rewards_GT))
    ]


def _trained_turns(kept: _Kept, policy: SamplePolicy) -> list[int]:
    return [number for number, turn in enumerate(kept.rollout.record.turns) if turn.actor in policy.actors]


def _turns_differ(kept: Sequence[_Kept], policy: SamplePolicy) -> bool:
    return any(any(of_turns.values()) for of_turns in _turn_advantages(kept, policy))
