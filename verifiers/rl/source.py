"""`Source`: an environment to train or evaluate on: how to make it, its rows, and how they are rolled out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from verifiers.clients import Endpoint
from verifiers.errors import ConfigError
from verifiers.executor.request import EnvSpec, GroupRequest
from verifiers.rl.curriculum import Share
from verifiers.rl.pools import PoolSettings


@dataclass(frozen=True)
class Source:
    """One environment's part of a training run. Raises ConfigError that names the field.

    `rows` are formatted rows of the environment (`RolloutInput`), each with its `example_id`.
    """

    name: str
    spec: EnvSpec
    rows: Sequence[Mapping[str, Any]]
    model: str
    tries: int = 8  # of an example: the size of a group
    # Whether a reward function compares the tries of an example (`rubric.needs_group`). If none does, say False: a
    # try's place is then given on when the try has ended, and not when the longest of its group has.
    scored_together: bool = True
    weight: float = 1.0  # its part of all groups
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_retries: int = 0  # of a whole rollout, by whoever runs it
    rollout_timeout_s: float | None = None
    pools: PoolSettings = field(default_factory=PoolSettings)
    pass_rates: Mapping[int, float] = field(default_factory=dict[int, float])  # of an earlier model, by example

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ConfigError(f"tries of {self.name!r} is 1 or more; got {self.tries}")
        if not all(isinstance(row.get("example_id"), int) for row in self.rows):
            raise ConfigError(f"every row of {self.name!r} needs a whole number as its example_id")

    @property
    def share(self) -> Share:
        return Share([row["example_id"] for row in self.rows], self.weight, self.pools, self.pass_rates)

    @cached_property
    def _row_of(self) -> dict[int, Mapping[str, Any]]:
        return {row["example_id"]: row for row in self.rows}

    def has(self, example_id: int) -> bool:
        return example_id in self._row_of

    def problem(self, example_id: int) -> str:
        """The name of an example among all environments; rollouts of equal problems may share a server."""
        return f"{self.name}/{example_id}"

    def request(
        self, example_id: int, group_id: str, *, endpoint: Endpoint, sampling: Mapping[str, Any], seed: int
    ) -> GroupRequest:
        """The group of an example. A try's own seed follows from `seed`, the row and the number of the try."""
        return GroupRequest(
            spec=self.spec,
            row=dict(self._row_of[example_id]),
            group_id=group_id,
            tries=self.tries,
            endpoint=endpoint,
            model=self.model,
            sampling=dict(sampling),
            seed=seed,
            max_retries=self.max_retries,
            rollout_timeout_s=self.rollout_timeout_s,
        )


def by_name(sources: Iterable[Source]) -> dict[str, Source]:
    """Raises ConfigError for two of one name: figures, draws and saved states are by name."""
    found: dict[str, Source] = {}
    for source in sources:
        if found.setdefault(source.name, source) is not source:
            raise ConfigError(f"two environments are called {source.name!r}: give one of them another name")
    return found
