"""`Archive`: a few documents about people and places that never were, and what they state as a graph."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

from multihop.graph import Triplet
from multihop.relations import RELATIONS, THAT, Relation

COUNTS = {"painting": 6, "museum": 4, "person": 8, "school": 4, "town": 5, "river": 4}
ERRORS = 6  # claims that a document mentions as wrong

_GIVEN = ("Aldo", "Brita", "Cosima", "Doran", "Edda", "Florin", "Greta", "Hanno", "Iris", "Jonas", "Kaia", "Ludo",
          "Mirela", "Nils", "Orla", "Piet", "Renata", "Silas", "Tove", "Vera")  # fmt: skip
_FAMILY = ("Ashdown", "Berling", "Castel", "Dorvan", "Erskin", "Falk", "Gorman", "Hollis", "Ivers", "Jansen", "Kessel",
           "Lorne", "Merrit", "Norde", "Okell", "Pavlin", "Quill", "Rasmer", "Solway", "Tarrant", "Ulmer", "Varga",
           "Wexley", "Zeller")  # fmt: skip
_TOWNS = ("Averle", "Bromsted", "Caldry", "Dunmoor", "Estwick", "Farrow", "Gelden", "Harnsea", "Istead", "Kelmar",
          "Lowick", "Morvale", "Nethby", "Orsett", "Penhal", "Rothwen")  # fmt: skip
_RIVERS = ("Dorle", "Elver", "Fenn", "Isk", "Lisse", "Omber", "Skaw", "Tamble", "Wend", "Yarl")
_SIGHTS = ("Harbour", "Orchard", "Mill", "Bridge", "Market", "Winter Road", "Ferry", "Quarry")
_HOURS = ("at Dusk", "in Rain", "at Noon", "under Snow", "by Moonlight", "before Dawn")
_HOUSES = ("Brightwell", "Corvin", "Halden", "Linden", "Oakmoor", "Pell", "Salter", "Tessin", "Umber", "Wick")
_TALK = (
    "The papers are kept in three boxes and have been read twice.",
    "A storm damaged part of the record.",
    "Two catalogues describe it, and they agree.",
    "The entry was written by several hands.",
    "A drawing of it was sold and never seen again.",
    "Nothing else is known for certain.",
)


@dataclass(frozen=True, slots=True)
class Archive:
    """Settled by its name alone. `graph` holds what the documents state and nothing that they call wrong."""

    documents: tuple[tuple[str, str], ...]  # title and text
    graph: tuple[Triplet, ...]
    things: dict[str, list[str]]  # kind → names

    def object_of(self, relation: str, subject: str) -> str:
        return next(t.object for t in self.graph if (t.relation, t.subject) == (relation, subject))


@dataclass(frozen=True, slots=True)
class Hop:
    """One question of a row: `plain` refers to the answer before by "that person", `grounded` names it."""

    plain: str
    grounded: str
    triplet: Triplet


def make_archive(name: str) -> Archive:
    """The archive of a name such as "train/0/17"."""
    rng = random.Random(f"archive {name}")
    things = {kind: rng.sample(_all_names(kind), count) for kind, count in COUNTS.items()}
    graph: list[Triplet] = []
    for relation in RELATIONS.values():
        for subject in things[relation.subject]:
            thing = rng.choice([one for one in things[relation.object] if one != subject])
            graph.append(Triplet(subject, relation.name, thing))
    return Archive(_written(rng, things, graph), tuple(graph), things)


def make_hops(archive: Archive, name: str, count: int) -> list[Hop]:
    """A chain of `count` questions that comes by nothing twice, drawn by the name."""
    rng = random.Random(f"questions {name}")
    while True:
        thing = rng.choice(archive.things[rng.choice(("painting", "museum", "school", "person"))])
        kind = next(kind for kind, names in archive.things.items() if thing in names)
        seen, hops = {thing}, list[Hop]()
        while len(hops) < count:
            ways = [relation for relation in RELATIONS.values() if relation.subject == kind]
            if not ways:
                break
            relation = rng.choice(ways)
            found = archive.object_of(relation.name, thing)
            if found in seen:
                break
            hops.append(_hop(relation, kind, thing, found))
            seen.add(found)
            thing, kind = found, relation.object
        if len(hops) == count:
            return hops


def _hop(relation: Relation, kind: str, thing: str, found: str) -> Hop:
    grounded = relation.ask.format(x=f"the {thing}" if kind in ("museum", "school") else thing)
    return Hop(relation.ask.format(x=THAT.get(kind, thing)), grounded, Triplet(thing, relation.name, found))


def _all_names(kind: str) -> list[str]:
    if kind == "person":  # a family name comes once, so that no two people are alike
        return [f"{_GIVEN[(7 * n) % len(_GIVEN)]} {family}" for n, family in enumerate(_FAMILY)]
    if kind == "painting":
        return [f"{sight} {hour}" for sight in _SIGHTS for hour in _HOURS]
    if kind == "museum":
        return [f"{house} Gallery" for house in _HOUSES]
    if kind == "school":
        return [f"{house} Academy" for house in _HOUSES]
    return list(_TOWNS if kind == "town" else _RIVERS)


def _written(rng: random.Random, things: dict[str, list[str]], graph: list[Triplet]) -> tuple[tuple[str, str], ...]:
    """A document for each thing that has facts, in a mixed order."""
    lines: dict[str, list[str]] = defaultdict(list)
    for fact in graph:
        statement = rng.choice(RELATIONS[fact.relation].statements)
        lines[fact.subject].append(statement.format(s=fact.subject, o=fact.object))
    for fact in rng.sample(graph, ERRORS):
        relation = RELATIONS[fact.relation]
        wrong = rng.choice([one for one in things[relation.object] if one not in (fact.object, fact.subject)])
        lines[fact.subject].append(relation.error.format(s=fact.subject, o=wrong))
    documents: list[tuple[str, str]] = []
    for title, said in lines.items():
        said = [*said, rng.choice(_TALK)]
        rng.shuffle(said)
        documents.append((title, " ".join(said)))
    rng.shuffle(documents)
    return tuple(documents)
