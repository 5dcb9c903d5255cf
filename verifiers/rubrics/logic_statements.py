"""Puzzles of statements that must hold together: clauses, knights and knaves, orders, houses."""

from __future__ import annotations

import random
import re
from itertools import product
from typing import Any

from verifiers.rubrics.logic_task import LogicTask, Puzzle, WrongAnswer, one_of, read_names, read_values

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ida", "Jon"]
TRUTH = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class Satisfiability(LogicTask):
    """Truth values that make every clause true; a clause is a list of numbers, -3 for "not x3"."""

    name = "satisfiability"
    parts = ("variables", "clauses")
    answer_form = "Write a value for every variable, like: x1 = true, x2 = false."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        variables = 3 + difficulty
        values = [rng.random() < 0.5 for _ in range(variables)]
        clauses: list[list[int]] = []
        while len(clauses) < round(3.5 * variables):
            clause = [n * rng.choice((1, -1)) for n in rng.sample(range(1, variables + 1), 3)]
            if any(values[abs(n) - 1] == (n > 0) for n in clause):
                clauses.append(clause)
        answer = ", ".join(f"x{n} = {str(value).lower()}" for n, value in enumerate(values, 1))
        return {"variables": variables, "clauses": clauses}, answer

    def describe(self, puzzle: Puzzle) -> str:
        clauses = [" or ".join(f"x{n}" if n > 0 else f"not x{-n}" for n in clause) for clause in puzzle["clauses"]]
        return "\n".join(
            [f"Find truth values of x1 to x{puzzle['variables']} that make all of these true:", "", *clauses]
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        read = read_values(answer, [f"x{n}" for n in range(1, puzzle["variables"] + 1)])
        values = [one_of(value, TRUTH) for value in read.values()]
        named = dict(zip(read, values))
        for clause in puzzle["clauses"]:
            if not any(named[f"x{abs(n)}"] == (n > 0) for n in clause):
                raise WrongAnswer(f"the clause {clause} is not true")


class KnightsAndKnaves(LogicTask):
    """Knights say what is true, knaves what is false. A statement is nested lists: `["not", ["knight", "Ada"]]`."""

    name = "knights_and_knaves"
    parts = ("said",)
    answer_form = "Write for each whether knight or knave, like: Ada: knight, Ben: knave."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        people = NAMES[: 2 + difficulty]
        while True:  # until one answer alone fits: statements about single people never tell who is what
            said = {name: self._statement(rng, [p for p in people if p != name]) for name in people}
            fitting = [knights for knights in _all_kinds(people) if _first_lie(said, knights) is None]
            if len(fitting) == 1 and len(set(fitting[0].values())) == 2:
                kinds = {name: "knight" if is_knight else "knave" for name, is_knight in fitting[0].items()}
                return {"said": said}, ", ".join(f"{name}: {kind}" for name, kind in kinds.items())

    def _statement(self, rng: random.Random, others: list[str]) -> list[Any]:
        simple: list[Any] = ["knight", rng.choice(others)]
        simple = ["not", simple] if rng.random() < 0.5 else simple
        kind = rng.choice(("simple", "and", "or", "same"))
        if kind == "simple":
            return simple
        second: list[Any] = ["knight", rng.choice([name for name in others if name not in str(simple)])]
        return [kind, simple, second]

    def describe(self, puzzle: Puzzle) -> str:
        lines = [f'{name} says: "{in_words(statement)}."' for name, statement in puzzle["said"].items()]
        return "\n".join(["A knight says only what is true, a knave only what is false. Who is what?", "", *lines])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        read = read_values(answer, list(puzzle["said"]))
        knights = {name: one_of(value, KINDS) for name, value in read.items()}
        liar = _first_lie(puzzle["said"], knights)
        if liar is not None:
            raise WrongAnswer(f"a {'knight' if knights[liar] else 'knave'} would not say what {liar} says")


KINDS = {"knight": True, "a knight": True, "knave": False, "a knave": False}


def _all_kinds(people: list[str]) -> list[dict[str, bool]]:
    return [dict(zip(people, kinds)) for kinds in product((True, False), repeat=len(people))]


def _first_lie(said: dict[str, Any], knights: dict[str, bool]) -> str | None:
    """The first whose statement does not fit what he is."""
    return next((name for name, statement in said.items() if holds(statement, knights) != knights[name]), None)


def holds(statement: list[Any], knights: dict[str, bool]) -> bool:
    kind, *parts = statement
    if kind == "knight":
        return knights[parts[0]]
    values = [holds(part, knights) for part in parts]
    if kind == "not":
        return not values[0]
    return {"and": all(values), "or": any(values), "same": values[0] == values[-1]}[kind]


def in_words(statement: list[Any]) -> str:
    kind, *parts = statement
    if kind == "knight":
        return f"{parts[0]} is a knight"
    if kind == "not":
        return f"{parts[0][1]} is a knave" if parts[0][0] == "knight" else f"it is false that {in_words(parts[0])}"
    words = [in_words(part) for part in parts]
    return f"{words[0]} if and only if {words[1]}" if kind == "same" else f" {kind} ".join(words)


class Ordering(LogicTask):
    """People in a row; rules `["before", a, b]`, `["next", a, b]`, `["at", a, place]`, `["not_at", a, place]`."""

    name = "ordering"
    parts = ("names", "rules")
    answer_form = "Write the names from left to right, separated by commas."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        names = NAMES[: 3 + difficulty]
        order = names
        while order == names:  # as they stand in the question
            order = rng.sample(names, len(names))
        rules: list[list[Any]] = []
        while len(rules) < len(order) + 1:
            i, j = sorted(rng.sample(range(len(order)), 2))
            rule: list[Any] = rng.choice([["before", order[i], order[j]], ["not_at", order[i], j + 1]])
            rule = ["next", order[i], order[j]] if j == i + 1 and rng.random() < 0.5 else rule
            if rule not in rules:
                rules.append(rule)
        return {"names": names, "rules": rules}, ", ".join(order)

    def describe(self, puzzle: Puzzle) -> str:
        words = {
            "before": "{} stands somewhere to the left of {}.",
            "next": "{} and {} stand side by side.",
            "at": "{} stands at place {}.",
            "not_at": "{} does not stand at place {}.",
        }
        rules = [words[kind].format(*parts) for kind, *parts in puzzle["rules"]]
        names = ", ".join(puzzle["names"])
        return "\n".join([f"{names} stand in a row; place 1 is the leftmost. In which order?", "", *rules])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        place = {name: number for number, name in enumerate(read_names(answer, puzzle["names"]), 1)}
        for kind, one, other in puzzle["rules"]:
            is_kept = {
                "before": lambda a, b: place[a] < place[b],
                "next": lambda a, b: abs(place[a] - place[b]) == 1,
                "at": lambda a, n: place[a] == n,
                "not_at": lambda a, n: place[a] != n,
            }[kind](one, other)
            if not is_kept:
                raise WrongAnswer(f"the rule {kind} {one} {other} is broken")


CATEGORIES = {
    "colour": ["red", "green", "blue", "white", "yellow"],
    "pet": ["dog", "cat", "fish", "bird", "horse"],
    "drink": ["tea", "milk", "juice", "water", "coffee"],
    "job": ["baker", "doctor", "farmer", "pilot", "tailor"],
}


class Zebra(LogicTask):
    """Houses in a row, each with one value of every category; rules are about pairs of values."""

    name = "zebra"
    parts = ("houses", "categories", "rules")
    answer_form = (
        "Write one line for each house, from left to right: its number, a colon, and its values in the order above, "
        "with commas between."
    )

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        houses = 2 + (difficulty + 1) // 2
        chosen = list(CATEGORIES)[: 2 + difficulty // 2]
        values = {name: sorted(CATEGORIES[name][:houses]) for name in chosen}
        columns = {name: rng.sample(values[name], houses) for name in chosen}
        place = {value: number for column in columns.values() for number, value in enumerate(column, 1)}
        rules: list[list[Any]] = []
        while len(rules) < houses * len(chosen) - 1:
            one, other = rng.sample(list(place), 2)
            distance = place[other] - place[one]
            kinds = {0: "same", 1: "just_left", -1: "next"}
            rule = [kinds.get(distance, "left" if distance > 0 else "not_same"), one, other]
            if rng.random() < 0.15:
                rule = ["at", one, place[one]]
            if rule not in rules:
                rules.append(rule)
        answer = "\n".join(f"{n + 1}: {', '.join(columns[name][n] for name in chosen)}" for n in range(houses))
        return {"houses": houses, "categories": values, "rules": rules}, answer

    def describe(self, puzzle: Puzzle) -> str:
        words = {
            "same": "{} and {} belong to the same house.",
            "not_same": "{} and {} belong to different houses.",
            "just_left": "The house of {} is directly left of the house of {}.",
            "left": "The house of {} is somewhere left of the house of {}.",
            "next": "The houses of {} and {} are neighbours.",
            "at": "{} belongs to house {}.",
        }
        values = [f"- {name}: {', '.join(values)}" for name, values in puzzle["categories"].items()]
        rules = [words[kind].format(*parts) for kind, *parts in puzzle["rules"]]
        head = f"There are {puzzle['houses']} houses in a row, numbered from the left. Each has one of each of these:"
        return "\n".join(
            [head, *values, "", *rules, "", f"Name for every house its {', '.join(puzzle['categories'])}."]
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        houses, categories = puzzle["houses"], puzzle["categories"]
        place = self._places(answer, houses, categories)
        for kind, one, other in puzzle["rules"]:
            is_kept = {
                "same": lambda a, b: place[a] == place[b],
                "not_same": lambda a, b: place[a] != place[b],
                "just_left": lambda a, b: place[a] + 1 == place[b],
                "left": lambda a, b: place[a] < place[b],
                "next": lambda a, b: abs(place[a] - place[b]) == 1,
                "at": lambda a, n: place[a] == n,
            }[kind](one, other)
            if not is_kept:
                raise WrongAnswer(f"the rule {kind} {one} {other} is broken")

    def _places(self, answer: str, houses: int, categories: dict[str, list[str]]) -> dict[str, int]:
        """The house of every value."""
        lines = [line for line in answer.splitlines() if line.strip()]
        if len(lines) != houses:
            raise WrongAnswer(f"the answer has {len(lines)} lines for {houses} houses")
        place: dict[str, int] = {}
        for number, line in enumerate(lines, 1):
            read = re.fullmatch(rf"\s*(?:[Hh]ouse\s+)?{number}\s*[:.)]\s*(.+)", line)
            values = [value.strip(" .*").casefold() for value in read[1].split(",")] if read else []
            if len(values) != len(categories):
                raise WrongAnswer(f"line {number} is not '{number}: ' and a value of each of {', '.join(categories)}")
            for value, (name, possible) in zip(values, categories.items()):
                if value not in possible:
                    raise WrongAnswer(f"{value!r:.40} is no {name}")
                if value in place:
                    raise WrongAnswer(f"{value} is given to two houses")
                place[value] = number
        return place
