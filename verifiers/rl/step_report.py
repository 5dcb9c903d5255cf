"""`step_metrics`: the figures of one step of an orchestrator, by name."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from verifiers.rl.samples import SampleCounts
from verifiers.rl.scheduler import ReadyGroup, Scheduler
from verifiers.rl.staleness import off_policy_steps
from verifiers.rl.tally import End


def step_metrics(step: int, batch: Sequence[ReadyGroup], scheduler: Scheduler) -> dict[str, float]:
    """Of the batch of `step` what it holds, and of the run what has become of all its groups up to now.

    Names that end in `_s` are seconds; `run/…` counts since the run began.
    """
    return {**_of_batch(step, batch), **_of_run(scheduler)}


def _of_batch(step: int, batch: Sequence[ReadyGroup]) -> dict[str, float]:
    rewards = [reward for group in batch for reward in group.rewards]
    ages = [off_policy_steps(step, group.version) for group in batch]
    counts = SampleCounts.sum([group.counts for group in batch])
    found = {
        "reward/mean": fmean(rewards),
        "off_policy/min": float(min(ages)),
        "off_policy/mean": fmean(ages),
        "off_policy/max": float(max(ages)),
        "batch/groups": float(len(batch)),
        "batch/rollouts": float(sum(group.tries for group in batch)),
        "batch/truncated": sum(group.truncated for group in batch) / sum(group.tries for group in batch),
        "batch/group_s": fmean(group.seconds for group in batch),
        "batch/trained_tokens_per_rollout": counts.trained_tokens / max(1, counts.trained),
        **counts.metrics(),
    }
    for env in sorted({group.draw.env for group in batch}):
        of_env = [group for group in batch if group.draw.env == env]
        found[f"reward/{env}"] = fmean(reward for group in of_env for reward in group.rewards)
        found[f"batch/groups/{env}"] = float(len(of_env))
    return found


def _of_run(scheduler: Scheduler) -> dict[str, float]:
    tally = scheduler.tally
    found = {f"run/{end}": float(n) for end, n in tally.ended.items()}
    found |= {
        "run/started": float(tally.started),
        "run/shipped": float(tally.shipped),
        "run/expired": float(tally.expired),
        "run/returned": float(tally.returned),
        "run/set_aside": float(tally.set_aside),
        "run/abandoned": float(scheduler.flights.abandoned),
        "run/in_flight": float(scheduler.flights.rollouts),
        "run/ready_groups": float(len(scheduler.ready)),
        # What is dropped for its age is what took long; these tell how much shorter the rest is for it.
        "length/shipped_tokens_per_group": tally.shipped_tokens / max(1, tally.shipped),
        "length/expired_tokens_per_group": tally.expired_tokens / max(1, tally.expired),
        "length/kept_s": tally.mean_seconds(End.KEPT),
        "length/stale_s": tally.mean_seconds(End.STALE),
        "length/stalled_s": tally.mean_seconds(End.STALLED),
    }
    for env, sizes in scheduler.curriculum.sizes().items():
        found |= {f"pool/{env}/{name}": float(size) for name, size in sizes.items()}
    return found
