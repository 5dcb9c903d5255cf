"""`Graph`: what a row's documents state, as triplets, and what it says of a triplet that a model wrote."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal, NamedTuple

Verdict = Literal["holds", "contradicted", "not stated", "unreadable"]

MOST_CHARS = 300  # of a name
_BLOCK = re.compile(r"<triplets>((?:(?!<triplets>).)*?)</triplets>", re.DOTALL | re.IGNORECASE)


class Triplet(NamedTuple):
    subject: str
    relation: str
    object: str

    def __str__(self) -> str:
        return f"({self.subject} | {self.relation} | {self.object})"


class Graph:
    """Knows names up to case, accents, punctuation and a leading article, and under their aliases.

    >>> graph = Graph([Triplet("Mill in Rain", "painted_by", "Ada Falk")])
    >>> graph.verdict(Triplet("the mill in rain", "Painted by", "Ada Falk"))
    'holds'
    >>> graph.verdict(Triplet("Mill in Rain", "painted_by", "Nils Falk")), graph.verdict(Triplet("Ada", "mayor", "x"))
    ('contradicted', 'not stated')
    """

    def __init__(self, facts: Iterable[Triplet], aliases: Iterable[tuple[str, str]] = ()) -> None:
        self._names = {folded(alias): folded(name) for alias, name in aliases}
        self._facts = {self.key(fact) for fact in facts}
        self._asked = {(subject, relation) for subject, relation, _ in self._facts}

    def key(self, triplet: Triplet) -> tuple[str, str, str]:
        """Equal for two ways to write the same triplet."""
        return self._name(triplet.subject), folded(triplet.relation.replace("_", " ")), self._name(triplet.object)

    def verdict(self, triplet: Triplet) -> Verdict:
        """`contradicted`: something else is stated of the subject by this relation. What, is not told."""
        key = self.key(triplet)
        if key in self._facts:
            return "holds"
        return "contradicted" if key[:2] in self._asked else "not stated"

    def _name(self, name: str) -> str:
        name = folded(name)
        return self._names.get(name, name)


def folded(name: str) -> str:
    """A name as it is compared; empty for one that is too long.

    >>> folded("The  Linden-Gallery.")
    'linden gallery'
    """
    if len(name) > MOST_CHARS:
        return ""
    text = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    words: list[str] = re.findall(r"\w+", text.casefold())
    return " ".join(words[1:] if len(words) > 1 and words[0] == "the" else words)


def written_triplets(text: str) -> list[Triplet | None]:
    """The lines of every closed block of triplets; `None` for a line that is none."""
    lines = [line.strip() for block in _BLOCK.findall(text) for line in block.splitlines()]
    return [_triplet(line) for line in lines if line]


def _triplet(line: str) -> Triplet | None:
    inner = line.lstrip("-*0123456789. ").removeprefix("(").removesuffix(".").removesuffix(")")
    parts = [part.strip() for part in inner.split("|")]
    if len(parts) != 3 or not all(folded(part) for part in parts):
        return None
    return Triplet(*parts)
