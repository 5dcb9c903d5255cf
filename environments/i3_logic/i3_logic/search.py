"""`Search`: all ways to give numbers to variables so that every rule holds, found within a bounded number of steps.

It serves the makers of puzzles: they draw a solution, and give away parts of it until this search proves that no other
is left. Steps are counted and not timed, so that the same seed gives the same puzzle on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

Values = Sequence[int | None]  # `None`: not chosen yet
Rule = Callable[[Values], bool]  # whether the values of its variables can still be completed

STEPS = 12_000


class TooManySteps(Exception):
    """The search was given up; nothing is known about what it had not looked at."""


class Search:
    """Depth first, the variable with the fewest values left before others; every choice thins out what it touches.

    >>> search = Search([range(3)] * 2)
    >>> search.different([0, 1])
    >>> search.rule([0, 1], lambda values: None in values or sum(values) == 1)
    >>> search.solutions(limit=9)
    [[0, 1], [1, 0]]
    """

    def __init__(self, domains: Iterable[Iterable[int]]) -> None:
        self.domains = [list(values) for values in domains]
        self.peers: list[list[int]] = [[] for _ in self.domains]
        self.rules: list[list[tuple[tuple[int, ...], Rule]]] = [[] for _ in self.domains]
        self._left = 0

    def different(self, variables: Iterable[int]) -> None:
        variables = list(variables)
        for one in variables:
            self.peers[one] += [other for other in variables if other != one and other not in self.peers[one]]

    def rule(self, variables: Iterable[int], may_hold: Rule) -> None:
        """`may_hold` is asked with the values in the order of `variables`."""
        entry = (tuple(variables), may_hold)
        for variable in entry[0]:
            self.rules[variable].append(entry)

    def solutions(self, limit: int, given: Mapping[int, int] | None = None, steps: int = STEPS) -> list[list[int]]:
        """At most `limit` of them. Raises TooManySteps after so many questions to rules."""
        self._left = steps
        domains = [list(domain) for domain in self.domains]
        values: list[int | None] = [None] * len(domains)
        found: list[list[int]] = []
        if all(self._choose(domains, values, variable, value) for variable, value in (given or {}).items()):
            self._descend(domains, values, limit, found)
        return found

    def _descend(self, domains: list[list[int]], values: list[int | None], limit: int, found: list[list[int]]) -> None:
        open_ones = [variable for variable, value in enumerate(values) if value is None]
        if not open_ones:
            found.append([value for value in values if value is not None])
            return
        variable = min(open_ones, key=lambda one: len(domains[one]))
        for value in domains[variable]:
            below, chosen = list(domains), list(values)
            if self._choose(below, chosen, variable, value):
                self._descend(below, chosen, limit, found)
            if len(found) >= limit:
                return

    def _choose(self, domains: list[list[int]], values: list[int | None], variable: int, value: int) -> bool:
        """Sets the value and all that follow from it; False when something cannot hold any more."""
        queue = [(variable, value)]
        while queue:
            one, chosen = queue.pop()
            if values[one] is not None:
                if values[one] != chosen:
                    return False
                continue
            if chosen not in domains[one]:
                return False
            values[one], domains[one] = chosen, [chosen]
            thinned = self._thinned_by_peers(domains, values, one, chosen)
            for variables, may_hold in self.rules[one]:
                if thinned is None:
                    return False
                more = self._thinned_by_rule(domains, values, variables, may_hold)
                thinned = None if more is None else thinned + more
            if thinned is None:
                return False
            queue += [(other, domains[other][0]) for other in thinned if len(domains[other]) == 1]
        return True

    def _thinned_by_peers(
        self, domains: list[list[int]], values: list[int | None], one: int, chosen: int
    ) -> list[int] | None:
        """The variables that lost a value; None when one has none left."""
        thinned: list[int] = []
        for other in self.peers[one]:
            if values[other] == chosen:
                return None
            if values[other] is None and chosen in domains[other]:
                domains[other] = [value for value in domains[other] if value != chosen]
                thinned.append(other)
        return thinned if all(domains[other] for other in thinned) else None

    def _thinned_by_rule(
        self, domains: list[list[int]], values: list[int | None], variables: tuple[int, ...], may_hold: Rule
    ) -> list[int] | None:
        line = [values[variable] for variable in variables]
        self._count(1)
        if not may_hold(line):
            return None
        thinned: list[int] = []
        for place, variable in enumerate(variables):
            if line[place] is not None:
                continue
            self._count(len(domains[variable]))
            kept: list[int] = []
            for value in domains[variable]:
                line[place] = value
                if may_hold(line):
                    kept.append(value)
            line[place] = None
            if not kept:
                return None
            if len(kept) < len(domains[variable]):
                domains[variable] = kept
                thinned.append(variable)
        return thinned

    def _count(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooManySteps


def sums_to(target: int, weights: Sequence[int], least: int, most: int) -> Rule:
    """Values from `least` to `most` (0 or more), each times its weight, that add up to the target."""

    def may_hold(values: Values) -> bool:
        low = high = 0
        for value, weight in zip(values, weights):
            low += weight * (least if value is None else value)
            high += weight * (most if value is None else value)
        return low <= target <= high

    return may_hold


def clues(rng: random.Random, search: Search, solution: Sequence[int], given: Iterable[int] = ()) -> list[int]:
    """The variables to give away so that `solution` is the only one left: those in `given`, and what else it takes.

    While there is another solution, a variable in which it differs is given, or several where it differs in many.
    A search that takes too many steps proves nothing: then some are given that make it shorter.
    """
    known = sorted(given)
    wanted = list(solution)
    while True:
        try:
            found = search.solutions(limit=2, given={variable: wanted[variable] for variable in known})
        except TooManySteps:
            rest = [variable for variable in range(len(wanted)) if variable not in known]
            known = sorted(known + rng.sample(rest, min(len(rest), 1 + len(wanted) // 12)))
            continue
        other = next((other for other in found if other != wanted), None)
        if other is None:
            return known
        apart = [variable for variable in range(len(wanted)) if other[variable] != wanted[variable]]
        known = sorted(known + rng.sample(apart, 1 + len(apart) // 10))
