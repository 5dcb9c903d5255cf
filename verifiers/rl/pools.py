"""`Pools`: the examples of one environment by how hard they are now, and which of them comes next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from verifiers.errors import ConfigError

DRAWN = ("easy", "normal", "hard")
RETIRED = "retired"  # solved in every try: there is nothing to learn
SET_ASIDE = "set_aside"  # came back without a usable group too often


def _shares() -> dict[str, float]:
    return {"easy": 0.1, "normal": 0.8, "hard": 0.1}


@dataclass(frozen=True)
class PoolSettings:
    """Where an example belongs by the pass rate of its last group, and how often each pool is drawn from.

    A try passes with a reward of `pass_at` or more: set that for rewards that are not 0 or 1.
    Raises ConfigError that names the field.
    """

    shares: Mapping[str, float] = field(default_factory=_shares)
    pass_at: float = 1.0
    easy_from: float = 0.75
    hard_below: float = 0.25
    retire_from: float | None = 1.0  # None: nothing is ever retired
    max_returns: int = 3  # in a row, of an example without a usable group; then it is set aside

    def __post_init__(self) -> None:
        if set(self.shares) != set(DRAWN) or min(self.shares.values()) < 0 or not sum(self.shares.values()) > 0:
            raise ConfigError(
                f"shares gives each of {', '.join(DRAWN)} a number of 0 or more, not all 0; got {dict(self.shares)}"
            )
        if not 0 <= self.hard_below <= self.easy_from <= 1:
            raise ConfigError(
                f"0 <= hard_below <= easy_from <= 1 must hold; got {self.hard_below} and {self.easy_from}"
            )
        if self.retire_from is not None and not self.easy_from <= self.retire_from <= 1:
            raise ConfigError(f"retire_from lies between easy_from and 1, or is none; got {self.retire_from}")
        if self.max_returns < 0:
            raise ConfigError(f"max_returns is 0 or more; got {self.max_returns}")

    def pool_for(self, pass_rate: float) -> str:
        if self.retire_from is not None and pass_rate >= self.retire_from:
            return RETIRED
        if pass_rate >= self.easy_from:
            return "easy"
        return "hard" if pass_rate < self.hard_below else "normal"


class PoolsState(msgspec.Struct, frozen=True, kw_only=True):
    """`Pools` as saved."""

    pool_of: dict[int, str]
    decks: dict[str, list[int]]
    returns: dict[int, int]


class Pools:
    """Draws from a pool by its share, and within a pool every example once before any comes again.

    A pool without examples gives its share to the others, so that a draw fails only when nothing is left at all.
    """

    def __init__(
        self,
        example_ids: Sequence[int],
        settings: PoolSettings,
        random: Random,
        pass_rates: Mapping[int, float] | None = None,
    ) -> None:
        if len(set(example_ids)) != len(example_ids):
            raise ConfigError("example ids of a training environment must differ")
        self.settings, self._random = settings, random
        self._pool_of = dict.fromkeys(example_ids, "normal")
        self._members: dict[str, set[int]] = {name: set() for name in (*DRAWN, RETIRED, SET_ASIDE)}
        self._members["normal"] = set(example_ids)
        self._decks: dict[str, list[int]] = {name: [] for name in DRAWN}  # what is left of a round, the next one last
        self._returns: dict[int, int] = {}
        for example_id, rate in (pass_rates or {}).items():
            if not 0 <= rate <= 1:
                raise ConfigError(f"the pass rate of example {example_id} lies between 0 and 1; got {rate}")
            if example_id in self._pool_of:
                self._move(example_id, settings.pool_for(rate))

    @property
    def sizes(self) -> dict[str, int]:
        return {name: len(members) for name, members in self._members.items()}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(self._members[name] for name in DRAWN)

    def draw(self) -> int | None:
        """The next example; None when all are retired or set aside."""
        names = [name for name in DRAWN if self._members[name]]
        if not names:
            return None
        shares = [self.settings.shares[name] for name in names]
        (name,) = self._random.choices(names, shares if any(shares) else None)
        while True:
            deck = self._decks[name] or self._new_round(name)
            example_id = deck.pop()
            if self._pool_of[example_id] == name:  # one that moved away meanwhile waits in its new pool
                return example_id

    def settle(self, example_id: int, rewards: Sequence[float]) -> None:
        """Moves an example to where the rewards of its last group put it."""
        self._returns.pop(example_id, None)
        if rewards and example_id in self._pool_of:
            passed = sum(reward >= self.settings.pass_at for reward in rewards)
            self._move(example_id, self.settings.pool_for(passed / len(rewards)))

    def give_back(self, example_id: int, *, this_round: bool = True, counts: bool = True) -> bool:
        """An example that came to nothing may be drawn again: among the rest of this round, or not before the next.

        Never as the next one: what failed or took too long would fail or take too long again at once. True: it came
        to nothing too often in a row, and is now set aside. What it cannot be blamed for does not count.
        """
        if self._pool_of.get(example_id, SET_ASIDE) == SET_ASIDE:
            return False
        returns = self._returns[example_id] = self._returns.get(example_id, 0) + counts
        if returns > self.settings.max_returns:
            self._move(example_id, SET_ASIDE)
            return True
        deck = self._decks.get(self._pool_of[example_id])
        if this_round and deck:  # the last of the deck is the next one
            deck.insert(self._random.randrange(len(deck)), example_id)
        return False

    def state(self) -> PoolsState:
        decks = {name: deck[:] for name, deck in self._decks.items()}
        return PoolsState(pool_of=dict(self._pool_of), decks=decks, returns=dict(self._returns))

    def restore(self, state: PoolsState) -> None:
        """Goes on where `state` was saved. Examples that have come since keep the pool they have here, and join in the
        next round; those that have gone are forgotten."""
        known = self._pool_of.keys()
        for example_id in _in_both(state.pool_of, known):
            self._move(example_id, state.pool_of[example_id])
        self._decks = {name: list(_in_both(state.decks.get(name, []), known)) for name in DRAWN}
        self._returns = {example_id: state.returns[example_id] for example_id in _in_both(state.returns, known)}

    def _new_round(self, name: str) -> list[int]:
        deck = sorted(self._members[name])  # a set has no order to rely on
        self._random.shuffle(deck)
        self._decks[name] = deck
        return deck

    def _move(self, example_id: int, name: str) -> None:
        self._members[self._pool_of[example_id]].discard(example_id)
        self._members[name].add(example_id)
        self._pool_of[example_id] = name


def _in_both(ids: Iterable[int], known: Iterable[int]) -> list[int]:
    there = set(known)
    return [example_id for example_id in ids if example_id in there]
