"""`Curriculum`: which example of which environment is rolled out next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from verifiers.errors import ConfigError
from verifiers.rl.pools import Pools, PoolSettings, PoolsState


class Draw(msgspec.Struct, frozen=True):
    """One example, drawn to be rolled out as a group. Draws of a run are numbered from 0."""

    number: int
    env: str
    example_id: int

    @property
    def group_id(self) -> str:
        return f"group-{self.number}"


@dataclass(frozen=True)
class Share:
    """An environment's examples and its part of all draws.

    `pass_rates` say how hard examples were for an earlier model, by example id: `pass_rate` of a hub's
    `pass-rates`, for instance. An example without one begins as normal.
    """

    example_ids: Sequence[int]
    weight: float = 1.0
    pools: PoolSettings = field(default_factory=PoolSettings)
    pass_rates: Mapping[int, float] = field(default_factory=dict[int, float])


class CurriculumState(msgspec.Struct, frozen=True, kw_only=True):
    """`Curriculum` as saved."""

    drawn: int
    due: dict[str, float]
    pools: dict[str, PoolsState]
    random: list[Any]


class Curriculum:
    """Draws examples of several environments in the ratio of their weights.

    The order depends on the seed and on what was told by `settle` and `give_back`, on nothing else.

    >>> curriculum = Curriculum({"sums": Share([0, 1, 2], weight=3), "words": Share([0, 1])}, seed=1)
    >>> [curriculum.draw().env for _ in range(8)]
    ['sums', 'sums', 'words', 'sums', 'sums', 'sums', 'words', 'sums']
    """

    def __init__(self, shares: Mapping[str, Share], *, seed: int = 0) -> None:
        for name, share in shares.items():
            if not share.weight > 0:
                raise ConfigError(f"weight of environment {name!r} must be more than 0; got {share.weight}")
            if not share.example_ids:
                raise ConfigError(f"environment {name!r} has no examples to train on")
        if not shares:
            raise ConfigError("no environment to train on: name at least one")
        self._random = Random(seed)
        self._weights = {name: share.weight for name, share in shares.items()}
        # Each draw puts an environment's next one off by 1/weight; the one that is due first is drawn.
        self._due = {name: 0.5 / weight for name, weight in self._weights.items()}
        self._pools = {
            name: Pools(share.example_ids, share.pools, self._random, share.pass_rates)
            for name, share in shares.items()
        }
        self._drawn = 0

    def draw(self) -> Draw | None:
        """None when every example of every environment is retired or set aside."""
        names = [name for name, pools in self._pools.items() if not pools.is_empty]
        if not names:
            return None
        name = min(names, key=self._due.__getitem__)
        example_id = self._pools[name].draw()
        assert example_id is not None, "pools that are not empty have something to draw"
        self._due[name] += 1 / self._weights[name]
        draw = Draw(self._drawn, name, example_id)
        self._drawn += 1
        return draw

    def settle(self, draw: Draw, rewards: Sequence[float]) -> None:
        """The group of `draw` ended with these rewards: its example moves to the pool that they tell."""
        self._pools[draw.env].settle(draw.example_id, rewards)

    def give_back(self, draw: Draw, *, this_round: bool = True, counts: bool = True) -> bool:
        """The group of `draw` came to nothing. True: too often in a row, and its example is drawn no more.

        `counts` is whether that is held against the example, `this_round` whether it may come again before all others
        of its pool have.
        """
        return self._pools[draw.env].give_back(draw.example_id, this_round=this_round, counts=counts)

    def sizes(self) -> dict[str, dict[str, int]]:
        """How many examples each pool of each environment has."""
        return {name: pools.sizes for name, pools in self._pools.items()}

    def state(self) -> CurriculumState:
        version, numbers, gauss = self._random.getstate()
        pools = {name: pools.state() for name, pools in self._pools.items()}
        return CurriculumState(
            drawn=self._drawn, due=dict(self._due), pools=pools, random=[version, list(numbers), gauss]
        )

    def restore(self, state: CurriculumState) -> None:
        """Goes on where `state` was saved, also with environments and examples added, removed or weighted anew."""
        version, numbers, gauss = state.random
        self._random.setstate((version, tuple(numbers), gauss))
        self._drawn = state.drawn
        begun = [due for name, due in state.due.items() if name in self._pools]
        # A new environment has not been waiting since the start of the run: it is due with the first of the others.
        self._due = {name: state.due.get(name, min(begun, default=0.0)) for name in self._pools}
        for name, pools in self._pools.items():
            if name in state.pools:
                pools.restore(state.pools[name])
