"""`LogicKind`: a `vf.LogicTask` whose rules stand apart from the puzzle, and which has a small solved example."""

from __future__ import annotations

import re

import verifiers as vf
from verifiers.rubrics.logic_task import Puzzle


class LogicKind(vf.LogicTask):
    """What the kinds of this package say besides those of the library: `describe` is `rules` and then `show`.

    `make` draws from its random generator alone and counts steps where it searches, so that a seed gives the same
    puzzle everywhere.
    """

    grows = ""  # what becomes more from difficulty 1 to 5
    is_unique = False  # whether `make` proves that there is one solution only
    example: Puzzle = {}
    example_answer = ""

    def rules(self, puzzle: Puzzle) -> str:
        raise NotImplementedError(f"{type(self).__name__}.rules(puzzle) says what a solution has to keep: write it")

    def show(self, puzzle: Puzzle) -> str:
        raise NotImplementedError(f"{type(self).__name__}.show(puzzle) writes the puzzle itself: write it")

    def describe(self, puzzle: Puzzle) -> str:
        return f"{self.rules(puzzle)}\n\n{self.show(puzzle)}"


# How answers of these kinds are read. All raise vf.WrongAnswer.


def read_integer(text: str) -> int:
    """A whole number of at most twelve figures, with a sign or not."""
    text = text.strip().replace("\N{MINUS SIGN}", "-")
    if re.fullmatch(r"[+-]?[0-9]{1,12}", text) is None:
        raise vf.WrongAnswer(f"{text!r:.40} is no whole number")
    return int(text)


def read_integers(answer: str, how_many: int) -> list[int]:
    """Whole numbers with commas, spaces or line ends between."""
    words = re.split(r"[,;\s]+", answer.strip().strip("[]()"))
    if len(words) != how_many:
        raise vf.WrongAnswer(f"the answer has {len(words)} numbers, not {how_many}")
    return [read_integer(word) for word in words]


def read_words(answer: str, rows: int, columns: int) -> list[list[str]]:
    """Rows of words without spaces in them, one row a line."""
    lines = [line.replace(",", " ").replace("|", " ").split() for line in answer.splitlines() if line.strip()]
    if len(lines) != rows:
        raise vf.WrongAnswer(f"the answer has {len(lines)} rows, not {rows}")
    for line in lines:
        if len(line) != columns:
            raise vf.WrongAnswer(f"a row of the answer has {len(line)} entries, not {columns}")
    return lines
