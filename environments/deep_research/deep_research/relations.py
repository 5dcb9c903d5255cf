"""`Relation`: a kind of fact of the made-up worlds, how a page states it and how a question asks for it."""

from __future__ import annotations

from dataclasses import dataclass

YEAR = "year"
REGISTERED = "ship"  # ships have no pages of their own: their facts stand in registers


@dataclass(frozen=True, slots=True)
class Relation:
    """Each subject has exactly one object, so that a chain of relations has one end."""

    name: str
    subject: str  # kind of the subject
    object: str  # kind of the object, or "year"
    phrase: str  # in a question, {x} being the subject; of a year: the whole question
    statements: tuple[str, ...]  # sentences with {s} and {o}, of which a page has one


RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for relation in (
        Relation("led_by", "expedition", "person", "the leader of {x}",
                 ("{s} was led by {o}.", "The leader of {s} was {o}.")),
        Relation("sailed_in", "expedition", "ship", "the ship of {x}",
                 ("{s} sailed in the {o}.", "The vessel of {s} was the {o}.")),
        Relation("paid_by", "expedition", "firm", "the firm that paid for {x}",
                 ("The costs of {s} were borne by {o}.", "{s} was paid for by {o}.")),
        Relation("reached", "expedition", "island", "the island reached by {x}",
                 ("{s} made land at {o}.", "The island that {s} reached was {o}.")),
        Relation("set_out", "expedition", YEAR, "What was the year of departure of {x}?",
                 ("{s} set out in {o}.", "The year in which {s} left harbour was {o}.")),
        Relation("built_by", "ship", "firm", "the firm that built {x}",
                 ("{s}: built by {o}.", "{s}: the yard was that of {o}.")),
        Relation("launched", "ship", YEAR, "What was the year of launch of {x}?",
                 ("{s}: launched in {o}.", "{s}: first afloat in {o}.")),
        Relation("founded_by", "firm", "person", "the founder of {x}",
                 ("{s} was founded by {o}.", "The founder of {s} was {o}.")),
        Relation("seated_in", "firm", "town", "the seat of {x}",
                 ("{s} had its seat in {o}.", "The seat of {s} was in {o}.")),
        Relation("founded", "firm", YEAR, "What was the year of foundation of {x}?",
                 ("{s} began its business in {o}.", "The books of {s} begin in {o}.")),
        Relation("born_in", "person", "town", "the birthplace of {x}",
                 ("{s} was born in {o}.", "The birthplace of {s} was {o}.")),
        Relation("taught_by", "person", "person", "the teacher of {x}",
                 ("{s} was a pupil of {o}.", "The teacher of {s} was {o}.")),
        Relation("died", "person", YEAR, "What was the year of death of {x}?",
                 ("{s} died in {o}.", "{s} lived until {o}.")),
        Relation("written_by", "book", "person", "the author of {x}",
                 ("{s} was written by {o}.", "The author of {s} was {o}.")),
        Relation("about", "book", "expedition", "the expedition described in {x}",
                 ("{s} tells the story of the {o}.", "The subject of {s} is the {o}.")),
        Relation("named_after", "island", "person", "the person honoured in the name of {x}",
                 ("{s} is named after {o}.", "The name of {s} honours {o}.")),
        Relation("charted", "island", YEAR, "What was the year of the first chart of {x}?",
                 ("{s} was first charted in {o}.", "The first chart of {s} is of {o}.")),
        Relation("on_river", "town", "river", "the river that runs through {x}",
                 ("{s} lies on the {o}.", "Through {s} runs the {o}.")),
        Relation("in_region", "town", "region", "the region around {x}",
                 ("{s} belongs to the region of {o}.", "{s} is a town of {o}.")),
        Relation("flows_into", "river", "lake", "the lake that takes in {x}",
                 ("{s} flows into {o}.", "The waters of {s} end in {o}.")),
        Relation("capital", "region", "town", "the capital of {x}",
                 ("The capital of {s} is {o}.", "{s} is governed from {o}.")),
    )
}  # fmt: skip
