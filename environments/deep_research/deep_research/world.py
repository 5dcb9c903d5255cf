"""`World`: people, firms, ships, expeditions and places that never were, and what is true of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from deep_research.names import Names
from deep_research.relations import RELATIONS, YEAR

COUNTS = {
    "person": 80, "firm": 36, "ship": 60, "expedition": 36, "island": 24, "book": 30, "town": 24, "river": 10,
    "region": 6, "lake": 5,
}  # fmt: skip
YEARS = range(1790, 1931)


@dataclass(frozen=True, slots=True)
class World:
    """Settled by its name alone, in every process and release of Python.

    `facts` holds (relation, subject) → object; every relation has its one object for every subject of its kind.
    """

    name: str
    things: dict[str, list[str]]  # kind → names
    facts: dict[tuple[str, str], str]
    kind_of: dict[str, str] = field(default_factory=dict[str, str])

    def object_of(self, relation: str, subject: str) -> str:
        return self.facts[relation, subject]


def make_world(name: str) -> World:
    """The world of a name such as "train/0/3"."""
    rng = random.Random(f"world {name}")
    names = Names(rng)
    things = {kind: [names.new(kind) for _ in range(count)] for kind, count in COUNTS.items()}
    facts: dict[tuple[str, str], str] = {}
    for relation in RELATIONS.values():
        for subject in things[relation.subject]:
            choices = [str(year) for year in YEARS] if relation.object == YEAR else things[relation.object]
            facts[relation.name, subject] = _other(rng, choices, subject)
    kind_of = {thing: kind for kind, of_kind in things.items() for thing in of_kind}
    return World(name, things, facts, kind_of)


def _other(rng: random.Random, choices: list[str], subject: str) -> str:
    while True:
        chosen = rng.choice(choices)
        if chosen != subject:
            return chosen
