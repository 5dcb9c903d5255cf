"""`Relation`: a kind of fact of the made-up archives: how a document states it and how a question asks for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Relation:
    """Each subject has exactly one object."""

    name: str  # as triplets write it
    subject: str  # kind of thing
    object: str
    ask: str  # the question, with {x} for the subject
    statements: tuple[str, ...]  # with {s} and {o}; a document has one of them
    error: str  # says that a claim about {s} and {o} is wrong


RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for relation in (
        Relation("painted_by", "painting", "person", "Who painted {x}?",
                 ("{s} was painted by {o}.", "The painter of {s} is {o}."),
                 "An early guide calls {o} the painter of {s}, which the receipts show to be an error."),
        Relation("hangs_in", "painting", "museum", "In which museum does {x} hang?",
                 ("{s} hangs in the {o}.", "Visitors find {s} in the {o}."),
                 "The claim that {s} was sold to the {o} has been withdrawn."),
        Relation("born_in", "person", "town", "In which town was {x} born?",
                 ("{s} was born in {o}.", "{s} came into the world in {o}."),
                 "A plaque in {o} that names {s} as born there stands in the wrong town."),
        Relation("pupil_of", "person", "person", "Who taught {x}?",
                 ("{s} was a pupil of {o}.", "{s} learned the craft from {o}."),
                 "That {o} taught {s} is a story which the letters disprove."),
        Relation("studied_at", "person", "school", "At which school did {x} study?",
                 ("{s} studied at the {o}.", "The rolls of the {o} list {s}."),
                 "{s} applied to the {o} and was turned away."),
        Relation("located_in", "museum", "town", "In which town is {x}?",
                 ("The {s} is in {o}.", "The doors of the {s} open on a square in {o}."),
                 "Plans to move the {s} to {o} came to nothing."),
        Relation("directed_by", "museum", "person", "Who directs {x}?",
                 ("The {s} is directed by {o}.", "The head of the {s} is {o}."),
                 "{o} declined to lead the {s}."),
        Relation("founded_by", "school", "person", "Who founded {x}?",
                 ("The {s} was founded by {o}.", "The founder of the {s} was {o}."),
                 "{o} is often and wrongly called the founder of the {s}."),
        Relation("based_in", "school", "town", "In which town is {x} based?",
                 ("The {s} has its rooms in {o}.", "The {s} is based in {o}."),
                 "The {s} never had rooms in {o}, whatever the old maps say."),
        Relation("lies_on", "town", "river", "On which river does {x} lie?",
                 ("{s} lies on the river {o}.", "The river {o} runs through {s}."),
                 "Contrary to a popular map, {s} is not on the river {o}."),
        Relation("mayor", "town", "person", "Who is the mayor of {x}?",
                 ("The mayor of {s} is {o}.", "{s} elected {o} as its mayor."),
                 "{o} lost the vote for mayor of {s}."),
    )
}  # fmt: skip

THAT = {kind: f"that {kind}" for kind in ("person", "museum", "town", "school", "river")}
