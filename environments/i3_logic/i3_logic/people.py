"""People to keep apart: goods that they exchange, and who of them lies."""

from __future__ import annotations

import random
from typing import Any

import verifiers as vf
from i3_logic.kind import LogicKind
from verifiers.rubrics.logic_task import Puzzle, one_of, read_values

PEOPLE: tuple[str, ...] = (
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ida", "Jon", "Kim", "Leo", "Mia", "Noah", "Olga",
)  # fmt: skip
GOODS: tuple[str, ...] = ("apple", "book", "clock", "drum", "engine", "flute", "globe", "hat", "inkpot", "jar")
TELLS = {"truth": True, "true": True, "tells the truth": True, "lie": False, "lies": False, "liar": False}


class GoodsExchange(LogicKind):
    """Everybody has one thing, and they exchange; who has what in the end."""

    name = "goods_exchange"
    parts = ("had", "exchanges")
    answer_form = "Write what each of them has in the end, like: Ada: book, Ben: hat."
    grows = "people: 4, 5, 6, 7, 8; exchanges: 5, 9, 13, 17, 21"
    is_unique = True
    example = {"had": {"Ada": "apple", "Ben": "book"}, "exchanges": [["people", "Ada", "Ben"]]}
    example_answer = "Ada: book, Ben: apple"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        people = list(PEOPLE[: 3 + difficulty])
        had = dict(zip(people, rng.sample(GOODS[: len(people)], len(people))))
        while True:
            exchanges: list[list[Any]] = []
            for _ in range(1 + 4 * difficulty):
                kind = rng.choice(("people", "goods", "mixed", "around"))
                one, other, third = rng.sample(people, 3)
                first, second, _ = rng.sample(sorted(had.values()), 3)
                exchanges.append(
                    {
                        "people": ["people", one, other],
                        "goods": ["goods", first, second],
                        "mixed": ["mixed", one, first],
                        "around": ["around", one, other, third],
                    }[kind]
                )
            has = _exchanged(had, exchanges)
            if sum(has[name] == had[name] for name in people) < 2:
                return {"had": had, "exchanges": exchanges}, ", ".join(f"{name}: {has[name]}" for name in people)

    def rules(self, puzzle: Puzzle) -> str:
        return "Everybody in this story has exactly one thing at any time. Who has what in the end?"

    def show(self, puzzle: Puzzle) -> str:
        said = {
            "people": "{} and {} exchange what they have.",
            "goods": "Whoever has the {} exchanges it for the {}, with the one who has that.",
            "mixed": "{0} exchanges what {0} has for the {1}; if {0} has the {1} already, nothing happens.",
            "around": "{0} gives what they have to {1}, {1} at the same time to {2}, and {2} to {0}.",
        }
        had = ", ".join(f"{name} has the {thing}" for name, thing in puzzle["had"].items())
        return "\n".join([f"At first {had}.", *(said[kind].format(*rest) for kind, *rest in puzzle["exchanges"])])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        has = _exchanged(puzzle["had"], puzzle["exchanges"])
        for name, thing in read_values(answer, list(has)).items():
            if thing.removeprefix("the ") != has[name]:
                raise vf.WrongAnswer(f"{name} does not have the {thing!s:.40}")


class WebOfLies(LogicKind):
    """Each says something about those before; who lies."""

    name = "web_of_lies"
    parts = ("said",)
    answer_form = "Write for each whether they tell the truth or lie, like: Ada: truth, Ben: lie."
    grows = "people: 5, 7, 9, 11, 13"
    is_unique = True
    example = {"said": {"Ada": ["truth"], "Ben": ["lies", "Ada"]}}
    example_answer = "Ada: truth, Ben: lie"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        while True:
            people = rng.sample(PEOPLE, 3 + 2 * difficulty)
            said: dict[str, list[str]] = {people[0]: [rng.choice(("truth", "lie"))]}
            for place, name in enumerate(people[1:], 1):
                kind = rng.choice(
                    ("lies", "tells", "both", "neither", "one", "either") if place > 1 else ("lies", "tells")
                )
                said[name] = [kind, *rng.sample(people[:place], 1 if kind in ("lies", "tells") else 2)]
            tells = _truthful(said)
            if 2 <= sum(tells.values()) <= len(people) - 2:
                break
        said = dict(rng.sample(list(said.items()), len(said)))
        return {"said": said}, ", ".join(f"{name}: {'truth' if tells[name] else 'lie'}" for name in said)

    def rules(self, puzzle: Puzzle) -> str:
        return "Each of these people either always tells the truth or always lies. Who does what?"

    def show(self, puzzle: Puzzle) -> str:
        words = {
            "truth": "{0} tells the truth.",
            "lie": "{0} lies.",
            "lies": "{0} says that {1} lies.",
            "tells": "{0} says that {1} tells the truth.",
            "both": "{0} says that {1} and {2} both tell the truth.",
            "neither": "{0} says that {1} and {2} both lie.",
            "one": "{0} says that exactly one of {1} and {2} tells the truth.",
            "either": "{0} says that at least one of {1} and {2} tells the truth.",
        }
        return "\n".join(words[kind].format(name, *rest) for name, (kind, *rest) in puzzle["said"].items())

    def check(self, puzzle: Puzzle, answer: str) -> None:
        tells = _truthful(puzzle["said"])
        for name, value in read_values(answer, list(tells)).items():
            if one_of(value, TELLS) != tells[name]:
                raise vf.WrongAnswer(f"it is not so that {name} {'lies' if tells[name] else 'tells the truth'}")


def _exchanged(had: dict[str, str], exchanges: list[list[Any]]) -> dict[str, str]:
    has = dict(had)
    for kind, *rest in exchanges:
        if kind == "around":
            one, other, third = rest
            has[other], has[third], has[one] = has[one], has[other], has[third]
        else:
            one, other = (name if name in has else _owner(has, name) for name in rest)
            has[one], has[other] = has[other], has[one]
    return has


def _owner(has: dict[str, str], thing: str) -> str:
    return next(name for name, owned in has.items() if owned == thing)


def _truthful(said: dict[str, list[str]]) -> dict[str, bool]:
    """Who tells the truth: found from the one of whom it is told, as each speaks only of people found before."""
    tells: dict[str, bool] = {}
    while len(tells) < len(said):
        for name, (kind, *about) in said.items():
            if name in tells or not all(other in tells for other in about):
                continue
            count = sum(tells[other] for other in about)
            tells[name] = {
                "truth": True, "lie": False, "lies": count == 0, "tells": count == 1, "both": count == 2,
                "neither": count == 0, "one": count == 1, "either": count >= 1,
            }[kind]  # fmt: skip
    return tells
