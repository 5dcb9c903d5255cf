"""Sums with something missing: cryptarithm, and the figures of an equation (math path)."""

from __future__ import annotations

import random
import re

import verifiers as vf
from i3_logic.kind import LogicKind
from i3_logic.search import Rule, Search, Values, clues
from verifiers.rubrics.arithmetic import work_out
from verifiers.rubrics.logic_task import Puzzle, read_number, read_values

LETTERS = "ABCDEFGHIJ"


class Cryptarithm(LogicKind):
    """Letters stand for different figures so that the sum is right."""

    name = "cryptarithm"
    parts = ("addends", "total", "known")
    answer_form = "Write the figure of every letter, like: A = 1, B = 0."
    grows = "figures of a number: 2, 2, 3, 4, 5; three numbers are added from 4 on"
    is_unique = True
    example = {"addends": ["AB", "AB"], "total": "CA", "known": {"A": 2}}
    example_answer = "A = 2, B = 1, C = 4"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        figures, how_many = (2, 2, 3, 4, 5)[difficulty - 1], (2, 2, 2, 3, 3)[difficulty - 1]
        numbers = [rng.randrange(10 ** (figures - 1), 10**figures) for _ in range(how_many)]
        used = sorted({figure for number in (*numbers, sum(numbers)) for figure in str(number)})
        letter_of = dict(zip(rng.sample(used, len(used)), LETTERS))
        *addends, total = ["".join(letter_of[figure] for figure in str(n)) for n in (*numbers, sum(numbers))]
        value = {letter: int(figure) for figure, letter in letter_of.items()}
        letters = sorted(value)
        weights = _weights(addends, total)
        letters.sort(key=lambda letter: -abs(weights[letter]))
        first = {word[0] for word in (*addends, total)}
        search = Search(range(letter in first, 10) for letter in letters)
        search.different(range(len(letters)))
        search.rule(range(len(letters)), _balances([weights[letter] for letter in letters]))
        known = clues(rng, search, [value[letter] for letter in letters])
        told = {letters[variable]: value[letters[variable]] for variable in known}
        answer = ", ".join(f"{letter} = {value[letter]}" for letter in sorted(value))
        return {"addends": addends, "total": total, "known": dict(sorted(told.items()))}, answer

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "In this sum every letter stands for a figure from 0 to 9, the same letter always for the same, different "
            "letters for different ones. No number begins with 0. Which figure is each letter?"
        )

    def show(self, puzzle: Puzzle) -> str:
        known = [f"{letter} is {figure}." for letter, figure in puzzle["known"].items()]
        return "\n".join([f"{' + '.join(puzzle['addends'])} = {puzzle['total']}", *known])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        words = [*puzzle["addends"], puzzle["total"]]
        read = read_values(answer, sorted(set("".join(words))))
        value = {letter: read_number(figure) for letter, figure in read.items()}
        if not all(figure <= 9 for figure in value.values()) or len(set(value.values())) < len(value):
            raise vf.WrongAnswer("the letters do not stand for different figures from 0 to 9")
        for letter, figure in puzzle["known"].items():
            if value[letter] != figure:
                raise vf.WrongAnswer(f"{letter} is {figure} in the puzzle")
        if any(value[word[0]] == 0 for word in words):
            raise vf.WrongAnswer("a number begins with 0")
        *addends, total = [int("".join(str(value[letter]) for letter in word)) for word in words]
        if sum(addends) != total:
            raise vf.WrongAnswer(f"the sum is {sum(addends)}, not {total}")


class MathPath(LogicKind):
    """Fill the missing figures of an equation."""

    name = "math_path"
    parts = ("equation",)
    answer_form = "Write the whole equation, with a figure for every question mark."
    grows = "missing figures: 2, 3, 4, 5, 6, and numbers in the equation: 3, 3, 4, 4, 5"
    example = {"equation": "1? - 3 = 9"}
    example_answer = "12 - 3 = 9"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        while True:
            numbers = [rng.randint(2, 99) for _ in range(2 + (1 + difficulty) // 2)]
            text = str(numbers[0])
            for number in numbers[1:]:
                text += f" {rng.choice('+-*')} {number}"
            value, _ = work_out(text)
            solved = f"{text} = {value}"
            places = [place for place, char in enumerate(solved) if char.isdigit()]
            if 10 <= value <= 99_999 and len(places) > difficulty + 3:
                break
        missing = rng.sample(places, difficulty + 1)
        equation = "".join("?" if place in missing else char for place, char in enumerate(solved))
        return {"equation": equation}, solved

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Put a figure from 0 to 9 in the place of every question mark so that the equation is right. "
            "Multiplication goes before addition and subtraction, and no number of more than one figure begins with 0."
        )

    def show(self, puzzle: Puzzle) -> str:
        return puzzle["equation"]

    def check(self, puzzle: Puzzle, answer: str) -> None:
        wanted = "".join(puzzle["equation"].split())
        found = "".join(answer.replace("×", "*").replace("\\times", "*").replace("−", "-").strip("$ \n").split())
        if len(found) != len(wanted) or not re.fullmatch(r"[0-9+*=-]+", found):
            raise vf.WrongAnswer("the answer is not the equation with figures for its question marks")
        for char, filled in zip(wanted, found):
            if not (filled.isdigit() if char == "?" else filled == char):
                raise vf.WrongAnswer(f"the answer has {filled} where the equation has {char}")
        if re.search(r"(?<![0-9])0[0-9]", found):
            raise vf.WrongAnswer("a number begins with 0")
        left, right = found.split("=")
        value, _ = work_out(left)  # what does not work is the puzzle's fault, as the signs are its own
        if value != int(right):
            raise vf.WrongAnswer(f"the left side is {value}, the right side {right}")


def _weights(addends: list[str], total: str) -> dict[str, int]:
    """How often each letter counts in the addends less the total."""
    weights = dict.fromkeys("".join((*addends, total)), 0)
    for word in addends:
        for place, letter in enumerate(reversed(word)):
            weights[letter] += 10**place
    for place, letter in enumerate(reversed(total)):
        weights[letter] -= 10**place
    return weights


def _balances(weights: list[int]) -> Rule:
    def may_hold(values: Values) -> bool:
        low = high = 0
        for value, weight in zip(values, weights):
            if value is None:
                low, high = low + min(0, 9 * weight), high + max(0, 9 * weight)
            else:
                low, high = low + weight * value, high + weight * value
        return low <= 0 <= high

    return may_hold
