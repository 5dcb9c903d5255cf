"""The pages on which a world is written down: one for each thing, and registers for the ships.

Facts stand among sentences that say nothing of use and mention other things, so that a page has to be read.
"""

from __future__ import annotations

import random
import re

from deep_research.provider import Document
from deep_research.relations import REGISTERED, RELATIONS
from deep_research.world import World

SITE = "https://almanac.example"
SHIPS_IN_REGISTER = 20
REGISTER_TITLE = "Register of Ships"

_KINDS = {
    "person": "{} is remembered in several letters of the time.",
    "firm": "{} is a trading firm whose ledgers have been kept.",
    "expedition": "{} is one of the voyages of the age of sail and steam.",
    "island": "{} is an island of the northern waters.",
    "book": "{} is a book of travel.",
    "town": "{} is a town with a market and a court.",
    "river": "{} is a river with several mills.",
    "region": "{} is a region with laws of its own.",
    "lake": "{} is a lake that freezes in most winters.",
}
_TALK = (
    "The records of these years are incomplete, and what was lost in the fire of the archive is not known.",
    "A letter to {person} mentions it in passing, without a date.",
    "Visitors from {town} have left descriptions that agree in most points.",
    "An inventory lists {n} chests of papers, of which {m} have been read.",
    "The weather of that decade was harsh, and travel between the towns was slow.",
    "A later account by a merchant, who dealt with {firm}, adds little that is new.",
    "Among the papers is a drawing, made with some care, whose maker did not sign.",
    "In the parish books there are {n} entries that may belong here.",
    "The map of the surveyors gives another spelling of the name.",
    "A dispute about {m} barrels of tar was settled without the court.",
    "{person} wrote that nobody who had seen it would forget it.",
    "The collection was moved to {town} and sorted again there.",
    "An old song tells the story differently, but songs are no sources.",
    "Prices rose in those years, and so did the wages of the harbour.",
)
_ENTRY = (
    "{ship}: {tons} tons, {masts} masts, with a crew of {crew}.",
    "{ship}: register number {number}, surveyed {times} times without complaint.",
    "{ship}: the figurehead is kept in a private house, and the log is said to be in {town}.",
)


def pages_of(world: World) -> list[Document]:
    """Every page, in the same order each time."""
    pages = [_page(world, kind, name) for kind, names in world.things.items() if kind != REGISTERED for name in names]
    return [*pages, *_registers(world)]


def _page(world: World, kind: str, name: str) -> Document:
    rng = random.Random(f"page {world.name} {name}")
    facts = [_stated(world, rng, relation, name) for relation, r in RELATIONS.items() if r.subject == kind]
    rng.shuffle(facts)
    paragraphs = [_KINDS[kind].format(name) + " " + _talk(world, rng, 2)]
    for fact in facts:
        before, after = _talk(world, rng, rng.randint(0, 2)), _talk(world, rng, rng.randint(1, 3))
        paragraphs.append(f"{before} {fact} {after}".strip())
    paragraphs.append(_talk(world, rng, 3))
    return Document(f"{SITE}/{kind}/{_slug(name)}", name, "\n\n".join(paragraphs))


def _registers(world: World) -> list[Document]:
    """Long pages of entries in the order of the alphabet, to be searched within."""
    ships = sorted(world.things[REGISTERED])
    registers: list[Document] = []
    for start in range(0, len(ships), SHIPS_IN_REGISTER):
        chunk = ships[start : start + SHIPS_IN_REGISTER]
        title = f"{REGISTER_TITLE}, {chunk[0]} to {chunk[-1]}"
        text = "\n\n".join(_entry(world, ship) for ship in chunk)
        url = f"{SITE}/register/{start // SHIPS_IN_REGISTER + 1}"
        registers.append(Document(url, title, f"Entries of vessels built for the northern trade.\n\n{text}"))
    return registers


def _entry(world: World, ship: str) -> str:
    rng = random.Random(f"page {world.name} {ship}")
    numbers = {"tons": rng.randint(90, 900), "masts": rng.randint(2, 4), "crew": rng.randint(9, 60)}
    numbers |= {"number": rng.randint(1000, 9999), "times": rng.randint(2, 9)}
    town = rng.choice(world.things["town"])
    lines = [line.format(ship=ship, town=town, **numbers) for line in _ENTRY]
    lines += [_stated(world, rng, name, ship) for name, relation in RELATIONS.items() if relation.subject == REGISTERED]
    rng.shuffle(lines)
    return "\n".join([*lines, f"{ship}: {_talk(world, rng, 1)}"])


def _stated(world: World, rng: random.Random, relation: str, subject: str) -> str:
    sentence = rng.choice(RELATIONS[relation].statements)
    return sentence.format(s=subject, o=world.object_of(relation, subject))


def _talk(world: World, rng: random.Random, sentences: int) -> str:
    chosen = rng.sample(_TALK, sentences)
    mentioned = {kind: rng.choice(world.things[kind]) for kind in ("person", "town", "firm")}
    n = rng.randint(5, 40)
    return " ".join(sentence.format(**mentioned, n=n, m=rng.randint(2, n)) for sentence in chosen)


def _slug(name: str) -> str:
    return re.sub(r"\W+", "-", name.casefold()).strip("-")
