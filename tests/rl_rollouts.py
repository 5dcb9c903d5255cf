"""Rollouts with token traces, made of numbers: what a model was shown and what it sampled, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from verifiers.records import EnvInfo, ModelInfo, RolloutRecord, TokenTrace, Turn, VersionSpan
from verifiers.rl.types import PolicyRollout, RolloutGroup


@dataclass
class Said:
    """One turn: all ids of its prompt, the sampled ids and their log-probabilities."""

    prompt: list[int]
    completion: list[int]
    logprobs: list[float] | None = None  # None: -0.5 for each
    actor: str = "assistant"
    finish_reason: str = "stop"
    reward: float | None = None
    versions: list[VersionSpan] = field(default_factory=list)

    @property
    def whole(self) -> list[int]:
        return self.prompt + self.completion


def trace(ids: Sequence[int], completion: Sequence[int], logprobs: Sequence[float] | None = None) -> TokenTrace:
    return TokenTrace.of(ids, completion, [-0.5] * len(completion) if logprobs is None else logprobs)


def turns_of(said: Sequence[Said]) -> list[Turn]:
    """As the rollout loop records them: each turn's tokens told as a continuation of the turn before."""
    turns, before = [], b""
    for one in said:
        whole = trace(one.prompt, one.completion, one.logprobs)
        told = whole.after(before)
        before = whole.prompt_buffer + whole.completion_buffer if whole.completion_buffer else b""
        turns.append(
            Turn(
                start=0,
                end=0,
                actor=one.actor,
                finish_reason=one.finish_reason,
                tokens=told,
                reward=one.reward,
                versions=one.versions,
            )
        )
    return turns


def rollout(said: Sequence[Said] = (), reward: float | None = 1.0, *, name: str = "r0", **fields) -> PolicyRollout:
    fields = {"status": "fault" if reward is None else "scored", "turns": turns_of(said), **fields}
    record = RolloutRecord(
        env=EnvInfo(name="sums"),
        example_id=7,
        rollout_index=0,
        model=ModelInfo(name="m"),
        prompt=[],
        messages=[],
        reward=reward,
        **fields,
    )
    return PolicyRollout(record=record, rollout_id=name, dispatched_version=3, finished_version=5)


def group(rollouts: Sequence[PolicyRollout]) -> RolloutGroup:
    return RolloutGroup(env="sums", example_id=7, group_id="g", rollouts=list(rollouts))
