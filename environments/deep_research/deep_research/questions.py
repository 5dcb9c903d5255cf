"""Questions about a world: a chain of relations from one thing to another, whose end is certain."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from deep_research.names import aliases, in_question
from deep_research.relations import RELATIONS, YEAR, Relation
from deep_research.world import World, make_world

PER_WORLD = 50  # questions asked about one world; then comes another, so that no world can be learned by heart
_STARTS = ("expedition", "book", "ship", "firm", "island", "person")


@dataclass(frozen=True, slots=True)
class Chain:
    """`path` are names of relations; following them from `start` gives `things`, the last of which is the answer."""

    start: str
    path: tuple[str, ...]
    things: tuple[str, ...]
    question: str

    @property
    def answer(self) -> str:
        return self.things[-1]


@lru_cache(maxsize=64)
def world_named(name: str) -> World:
    return make_world(name)


def made_rows(split: str, count: int, seed: int, hops: tuple[int, int]) -> list[dict[str, Any]]:
    """`count` different questions of `hops` (least, most) steps, over as many worlds as they need."""
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        world = world_named(f"{split}/{seed}/{len(rows) // PER_WORLD}")
        rows += [_row(world, chain) for chain in chains(world, min(PER_WORLD, count - len(rows)), hops)]
    return rows


def chains(world: World, count: int, hops: tuple[int, int]) -> list[Chain]:
    """Different ones; the first few of a longer list are a shorter list."""
    rng = random.Random(f"questions {world.name} {hops}")
    found: dict[str, Chain] = {}
    while len(found) < count:
        chain = _drawn(world, rng, rng.randint(*hops))
        if chain is not None and chain.answer.casefold() not in chain.question.casefold():
            found.setdefault(chain.question, chain)
    return list(found.values())


def _row(world: World, chain: Chain) -> dict[str, Any]:
    kind = world.kind_of.get(chain.answer, YEAR)
    info = {
        "source": "made for this environment",
        "world": world.name,
        "start": chain.start,
        "path": list(chain.path),
        "aliases": aliases(kind, chain.answer),
    }
    return {"question": chain.question, "answer": chain.answer, "info": info}


def _drawn(world: World, rng: random.Random, hops: int) -> Chain | None:
    """A chain that comes by nothing twice; `None` where the draw leads nowhere."""
    start = rng.choice(world.things[rng.choice(_STARTS)])
    path: list[Relation] = []
    things = [start]
    while len(path) < hops:
        here = world.kind_of.get(things[-1], YEAR)
        used = {relation.name for relation in path}
        # a year is where a chain ends
        ways = [r for r in _ways(here) if r.name not in used and (r.object != YEAR or len(path) == hops - 1)]
        if not ways:
            return None
        relation = rng.choice(ways)
        thing = world.object_of(relation.name, things[-1])
        if thing in things:
            return None
        path.append(relation)
        things.append(thing)
    names = tuple(relation.name for relation in path)
    return Chain(start, names, tuple(things), asked(world, start, path))


def asked(world: World, start: str, path: list[Relation]) -> str:
    """The question in words, from the inside out."""
    phrase = in_question(world.kind_of[start], start)
    for relation in path:
        phrase = relation.phrase.format(x=phrase)
    if path[-1].object == YEAR:
        return phrase
    return f"Who was {phrase}?" if path[-1].object == "person" else f"What is the name of {phrase}?"


@lru_cache(maxsize=64)
def _ways(kind: str) -> tuple[Relation, ...]:
    by_kind: dict[str, list[Relation]] = defaultdict(list)
    for relation in RELATIONS.values():
        by_kind[relation.subject].append(relation)
    return tuple(by_kind[kind])
