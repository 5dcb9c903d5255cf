"""How far a rollout is from the policy that trains on it: one count, for every place that asks."""

from __future__ import annotations


def off_policy_steps(step: int, version: int) -> int:
    """Weight updates between the policy that began a rollout and the policy that trains on it.

    Versions count weight updates from 0 and trainer step `step` (from 0 too) trains weights of that version, so the
    answer is the same whether a rollout was slow, waited in a queue, or both. `step` is the step whose batch it would
    be part of, never the newest version that happens to be served: that one may lag, and the queue would be left out.
    Raises ValueError for a rollout of weights that do not exist yet at that step.
    """
    if version > step:
        raise ValueError(f"a rollout of policy version {version} in the batch of step {step}, which comes before it")
    return step - version
