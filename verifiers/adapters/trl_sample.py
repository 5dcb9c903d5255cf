"""`RolloutSample`: what TRL's `AsyncGRPOTrainer` reads off the queue of its rollout worker, made of our samples."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verifiers.records import RolloutRecord
from verifiers.rl.samples import SampleSet
from verifiers.rl.types import TrainSample


@dataclass(frozen=True)
class RolloutSample:
    """Has the fields of TRL's class of that name, T tokens long."""

    prompt: Any
    completion: Any
    input_ids: np.ndarray[Any, Any]  # [T]
    completion_mask: np.ndarray[Any, Any]  # [T]; 1: sampled by the policy
    old_log_probs: np.ndarray[Any, Any]  # [T]
    advantage: float  # one for all that is trained
    model_version: int  # counts the trainer's updates; it drops what is over `max_staleness` behind
    group_id: int
    metrics: dict[str, float]
    enqueued_at: float  # seconds since 1970


def rollout_samples(
    made: SampleSet, records_G: Sequence[RolloutRecord], *, group_id: int, model_version: int
) -> list[RolloutSample]:
    """The samples of a group's records, whose `rollout_id` is the number of the try."""
    return [_handed_on(one, records_G[int(one.rollout_id)], group_id, model_version) for one in made.samples]


def _handed_on(sample: TrainSample, record: RolloutRecord, group_id: int, model_version: int) -> RolloutSample:
    mask = np.frombuffer(sample.mask_buffer, np.uint8).astype(np.int64)
    return RolloutSample(
        prompt=record.prompt,
        completion=record.messages,
        input_ids=np.frombuffer(sample.token_buffer, np.int32).astype(np.int64),
        completion_mask=mask,
        old_log_probs=np.frombuffer(sample.logprob_buffer, np.float32),
        advantage=sample.advantages[int(mask.argmax())],
        model_version=model_version,
        group_id=group_id,
        metrics={},  # told by `group_metrics`, for groups that are not trained too
        enqueued_at=time.time(),
    )


def group_metrics(made: SampleSet, records_G: Sequence[RolloutRecord]) -> dict[str, Any]:
    """For the trainer's log: sums with the numbers of values, which it divides, and counts, which it adds up."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for record in records_G:
        named = {f"environment/{name}": value for name, value in record.metrics.items()}
        for name, value in {"reward": record.reward, **named}.items():
            if value is not None:
                found[name].append(value)
    means = {name: (math.fsum(values), len(values)) for name, values in found.items()}
    return {**means, **{f"{name}_total": count for name, count in made.counts.metrics().items()}}
