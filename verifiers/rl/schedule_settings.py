"""`ScheduleSettings`: how many groups run, how old they may become, and when a run is given up."""

from __future__ import annotations

from dataclasses import dataclass

from verifiers.errors import ConfigError

_MORE_THAN_0 = (
    "groups_per_step",
    "max_in_flight",
    "group_timeout_s",
    "cancel_grace_s",
    "no_progress_batches",
    "max_outage_s",
)
_0_OR_MORE = ("max_off_policy_steps", "max_async_level")


@dataclass(frozen=True)
class ScheduleSettings:
    """Raises ConfigError that names the field."""

    groups_per_step: int  # of a trainer step's batch
    max_in_flight: int  # rollouts at the same time; more than a batch holds is oversampling
    max_off_policy_steps: int = 8  # weight updates that a rollout may be behind the policy that trains on it
    max_async_level: int = 1  # steps whose batch is shipped ahead of the trainer's newest weights
    group_timeout_s: float | None = 3600.0  # wall clock, clean-up and scoring included; None: no limit
    cancel_grace_s: float = 60.0  # for the clean-up of a cancelled group; after that its place is given away
    no_progress_batches: float = 10.0  # as many batches' groups in a row that give nothing end the run
    max_outage_s: float = 1800.0  # of servers, sandboxes or judges, in which no group gets through; then the run ends
    seed: int = 0

    def __post_init__(self) -> None:
        for name in _MORE_THAN_0:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} must be more than 0; got {value}")
        for name in _0_OR_MORE:
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 or more; got {getattr(self, name)}")
        if self.max_async_level > self.max_off_policy_steps:
            raise ConfigError(
                f"max_async_level {self.max_async_level} is more than max_off_policy_steps "
                f"{self.max_off_policy_steps}: every batch shipped so far ahead would be too old"
            )
