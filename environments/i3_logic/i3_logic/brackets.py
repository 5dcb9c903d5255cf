"""Brackets: a sequence to close, and one in which a bracket is wrong."""

from __future__ import annotations

import random

import verifiers as vf
from i3_logic.kind import LogicKind
from verifiers.rubrics.logic_task import Puzzle, read_number

CLOSING = {"(": ")", "[": "]", "<": ">"}


class DyckLanguage(LogicKind):
    """Close the brackets that are open."""

    name = "dyck_language"
    parts = ("brackets",)
    answer_form = "Write the whole sequence, with what was missing at its end."
    grows = "brackets: 9, 16, 23, 30, 37"
    is_unique = True
    example = {"brackets": "([]<"}
    example_answer = "([]<>)"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        text, still_open = _brackets(rng, 2 + 7 * difficulty, least_open=2)
        return {"brackets": text}, text + "".join(CLOSING[one] for one in reversed(still_open))

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Complete this sequence of brackets ( ) [ ] < > with as few more as possible, so that every bracket "
            "is closed by one of its own sort, and pairs lie beside or inside each other."
        )

    def show(self, puzzle: Puzzle) -> str:
        return puzzle["brackets"]

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given, found = puzzle["brackets"], "".join(answer.split())
        if not found.startswith(given):
            raise vf.WrongAnswer("the answer does not begin with the sequence")
        if _first_wrong(found) is not None or _still_open(found):
            raise vf.WrongAnswer("the brackets of the answer do not pair up")
        if len(found) > len(given) + len(_still_open(given)):
            raise vf.WrongAnswer("the answer has more brackets than it takes")


class DyckErrors(LogicKind):
    """Where a sequence of brackets first goes wrong."""

    name = "dyck_language_errors"
    parts = ("brackets",)
    answer_form = "Write its place as a number; the first bracket has the place 1."
    grows = "brackets: 14, 28, 42, 56, 70"
    is_unique = True
    example = {"brackets": "(]"}
    example_answer = "2"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        while True:
            text, _ = _brackets(rng, 14 * difficulty, least_open=0)
            closing = [place for place, char in enumerate(text) if char not in CLOSING and place > 3]
            if closing:
                break
        place = rng.choice(closing)
        wrong = rng.choice([char for char in CLOSING.values() if char != text[place]])
        return {"brackets": text[:place] + wrong + text[place + 1 :]}, str(place + 1)

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "A bracket may be closed only by one of its own sort, and only when all that were opened after it are "
            "closed. Read from the left: which is the first bracket of this sequence that breaks the rule?"
        )

    def show(self, puzzle: Puzzle) -> str:
        return puzzle["brackets"]

    def check(self, puzzle: Puzzle, answer: str) -> None:
        place = read_number(answer)
        if place - 1 != _first_wrong(puzzle["brackets"]):
            raise vf.WrongAnswer(f"the first bracket that breaks the rule is not the one at {place}")


def _brackets(rng: random.Random, length: int, least_open: int) -> tuple[str, str]:
    """A sequence without an error, and those of its brackets that are still open."""
    text, still_open = "", ""
    while len(text) < length or len(still_open) < least_open:
        if still_open and rng.random() < 0.45:
            text, still_open = text + CLOSING[still_open[-1]], still_open[:-1]
        else:
            one = rng.choice(list(CLOSING))
            text, still_open = text + one, still_open + one
    return text, still_open


def _first_wrong(text: str) -> int | None:
    still_open: list[str] = []
    for place, char in enumerate(text):
        if char in CLOSING:
            still_open.append(CLOSING[char])
        elif not still_open or still_open.pop() != char:
            return place
    return None


def _still_open(text: str) -> str:
    still_open = ""
    for char in text:
        still_open = still_open + char if char in CLOSING else still_open[:-1]
    return still_open
