"""Puzzles of numbers: a sum that makes a target, and a choice that adds up to it."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

from verifiers.rubrics.arithmetic import BadSum, work_out
from verifiers.rubrics.logic_task import LogicTask, Puzzle, WrongAnswer, read_numbers


class Countdown(LogicTask):
    """Make the target of the numbers, each used at most once (`use_all`: exactly once)."""

    name = "countdown"
    parts = ("numbers", "target", "use_all")
    answer_form = "Write one expression with + - * / and brackets, without the result."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        while True:
            numbers = [rng.randint(1, 10 + 10 * difficulty) for _ in range(2 + difficulty)]
            value, text = random_sum(rng, numbers)
            if value.denominator == 1 and 10 <= value <= 1000 and value not in numbers:
                return {"numbers": sorted(numbers), "target": int(value), "use_all": False}, text

    def describe(self, puzzle: Puzzle) -> str:
        times = "exactly once" if puzzle["use_all"] else "at most once"
        return (
            f"Use the numbers {', '.join(map(str, puzzle['numbers']))}, each {times}, with + - * / and brackets to "
            f"make {puzzle['target']}. Fractions on the way are allowed."
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given, target = Counter(puzzle["numbers"]), puzzle["target"]
        sides = answer.strip().strip("$").split("=")
        if len(sides) > 2 or (len(sides) == 2 and sides[1].strip() != str(target)):
            raise WrongAnswer(f"the answer is an equation that does not end with = {target}")
        try:
            value, used = work_out(sides[0])
        except BadSum as error:
            raise WrongAnswer(str(error)) from None
        extra, unused = Counter(used) - given, given - Counter(used)
        if extra:
            raise WrongAnswer(f"{next(iter(extra))} is used more often than it is given")
        if unused and puzzle["use_all"]:
            raise WrongAnswer(f"{next(iter(unused))} is not used")
        if value != target:
            raise WrongAnswer(f"the expression makes {value!s:.40}, not {target}")


class GameOf24(Countdown):
    """Make 24 of four numbers, each used exactly once."""

    name = "game_of_24"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        while True:
            numbers = [rng.randint(1, 5 + 2 * difficulty) for _ in range(4)]
            text = sum_for(rng, numbers, 24)
            if text:
                return {"numbers": sorted(numbers), "target": 24, "use_all": True}, text


class SubsetSum(LogicTask):
    """Choose some of the numbers so that they add up to the target."""

    name = "subset_sum"
    parts = ("numbers", "target")
    answer_form = "Write the chosen numbers, separated by spaces."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        numbers = rng.sample(range(1, 20 * difficulty + 20), 4 + 2 * difficulty)
        chosen = rng.sample(numbers, 2 + difficulty)
        return {"numbers": numbers, "target": sum(chosen)}, " ".join(map(str, chosen))

    def describe(self, puzzle: Puzzle) -> str:
        return f"Choose some of these numbers, each once, that add up to {puzzle['target']}: " + ", ".join(
            map(str, puzzle["numbers"])
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        target, chosen = puzzle["target"], read_numbers(answer)
        extra = Counter(chosen) - Counter(puzzle["numbers"])
        if not chosen or extra:
            raise WrongAnswer(f"{next(iter(extra))} is chosen more often than it is given" if extra else "no number")
        if sum(chosen) != target:
            raise WrongAnswer(f"the numbers add up to {sum(chosen)}, not {target}")


def random_sum(rng: random.Random, numbers: list[int]) -> tuple[Fraction, str]:
    """A sum of all the numbers: two of what is there are joined until one is left."""
    parts = [(Fraction(number), str(number)) for number in numbers]
    while len(parts) > 1:
        one, other = (parts.pop(rng.randrange(len(parts))) for _ in range(2))
        parts.append(rng.choice(joined(one, other)))
    return parts[0]


def joined(one: tuple[Fraction, str], other: tuple[Fraction, str]) -> list[tuple[Fraction, str]]:
    (a, left), (b, right) = one, other
    found = [(a + b, f"({left} + {right})"), (a - b, f"({left} - {right})"), (a * b, f"({left} * {right})")]
    return [*found, (a / b, f"({left} / {right})")] if b else found


def sum_for(rng: random.Random, numbers: list[int], target: int) -> str | None:
    """A sum of all the numbers with this value, if there is one."""

    def search(parts: list[tuple[Fraction, str]]) -> str | None:
        if len(parts) == 1:
            return parts[0][1] if parts[0][0] == target else None
        for i in range(len(parts)):
            for j in range(len(parts)):
                if i != j:
                    rest = [part for k, part in enumerate(parts) if k not in (i, j)]
                    for made in joined(parts[i], parts[j]):
                        if found := search([*rest, made]):
                            return found
        return None

    return search([(Fraction(number), str(number)) for number in rng.sample(numbers, len(numbers))])
