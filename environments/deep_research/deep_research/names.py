"""`Names`: made-up names for things of every kind, none given twice in a world."""

from __future__ import annotations

import random

_GIVEN = (
    "Ada", "Anselm", "Beatrix", "Bruno", "Cecily", "Conrad", "Dagny", "Edgar", "Elsa", "Emeric", "Fenna", "Gerda",
    "Gustav", "Hedda", "Hugo", "Ilse", "Ivo", "Jorun", "Klara", "Leopold", "Livia", "Magnus", "Marta", "Nadia", "Olaf",
    "Ottilie", "Petra", "Quentin", "Rosa", "Sigrid", "Stefan", "Thea", "Tobias", "Ulla", "Viktor", "Wanda", "Yara",
)  # fmt: skip
_ONSETS = (
    "B", "Br", "D", "Dr", "F", "G", "Gr", "H", "K", "Kr", "L", "M", "N", "P", "R", "S", "St", "T", "Tr", "V", "W",
)  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "au", "ei")
_MIDDLES = ("l", "ld", "lm", "n", "nd", "r", "rn", "rst", "sk", "st", "t", "v")
_ENDS = {
    "person": ("ing", "ović", "sen", "mann", "aker", "elius", "ander", "quist", "ona", "ard"),
    "firm": ("ing", "er", "ert", "olt", "ack"),
    "town": ("burg", "stad", "hafen", "ow", "itz", "by", "ford", "mouth"),
    "river": ("a", "el", "ine", "ach", "une"),
    "region": ("mark", "land", "ia", "gau"),
    "lake": ("see", "ter", "ol", "en"),
    "island": ("ey", "holm", "oe", "ara"),
}
_COLOURS = (
    "Amber", "Black", "Blue", "Copper", "Crimson", "Green", "Grey", "Ivory", "Pale", "Scarlet", "Silver", "White",
)  # fmt: skip
_BIRDS = (
    "Curlew", "Dunlin", "Fulmar", "Gannet", "Heron", "Kestrel", "Lapwing", "Osprey", "Petrel", "Plover", "Tern",
    "Wren",
)  # fmt: skip
_SIGNS = (
    "Anchor", "Beacon", "Compass", "Crown", "Harp", "Lantern", "Oar", "Plough", "Spindle", "Star", "Thistle", "Wheel",
)  # fmt: skip
_WRITINGS = ("A Journal of", "Letters from", "Memories of", "Notes on", "Songs of", "Winters on")
_PLACES = (
    "the Cold Shore", "the Far Ice", "the Last Harbour", "the Long Swell", "the North Passage", "the Outer Banks",
    "the Quiet Sea", "the Salt Road", "the Wide Water",
)  # fmt: skip
_TRADES = ("and Sons", "Brothers", "and Company", "Works", "Trading House")


class Names:
    """Draws from `rng`, which settles every name.

    >>> names = Names(random.Random(1))
    >>> names.new("river").startswith("River ")
    True
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._given: set[str] = set()

    def new(self, kind: str) -> str:
        """A name whose distinctive word no other thing of this world has."""
        while True:
            name, mark = self._drawn(kind)
            if mark.casefold() not in self._given:
                self._given.add(mark.casefold())
                return name

    def _drawn(self, kind: str) -> tuple[str, str]:
        """A name, and the part of it that must be new."""
        pick = self.rng.choice
        if kind == "ship":
            name = f"{pick(_COLOURS)} {pick(_BIRDS)}"
            return name, name
        if kind == "expedition":
            name = f"{pick(_COLOURS)} {pick(_SIGNS)} Expedition"
            return name, name
        if kind == "book":
            name = f"{pick(_WRITINGS)} {pick(_PLACES)}"
            return name, name
        stem = self._word(kind)
        forms = {
            "person": f"{pick(_GIVEN)} {stem}",
            "firm": f"{stem} {pick(_TRADES)}",
            "river": f"River {stem}",
            "lake": f"Lake {stem}",
            "island": f"{stem} Island",
        }
        return forms.get(kind, stem), stem

    def _word(self, kind: str) -> str:
        pick = self.rng.choice
        return f"{pick(_ONSETS)}{pick(_VOWELS)}{pick(_MIDDLES)}{pick(_ENDS[kind])}"


def in_question(kind: str, name: str) -> str:
    """A name as a question mentions it: ships, books and rivers are not told by their names alone."""
    forms = {"ship": "the ship “{}”", "book": "the book “{}”", "expedition": "the {}", "river": "the {}"}
    return forms.get(kind, "{}").format(name)


def aliases(kind: str, name: str) -> list[str]:
    """Other ways to write a name that mean nothing else in its world."""
    stem = name.removeprefix("River ").removeprefix("Lake ").removesuffix(" Island").removesuffix(" Expedition")
    written = {
        "river": [stem, f"{stem} River"],
        "lake": [stem],
        "island": [stem, f"island of {stem}"],
        "expedition": [stem],
        "ship": [f"ship {name}"],
        "book": [f"book {name}"],
        "town": [f"town of {name}"],
        "region": [f"region of {name}"],
    }
    return written.get(kind, [])
