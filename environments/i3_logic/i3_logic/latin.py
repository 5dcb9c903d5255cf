"""Latin squares with more to keep: skyscrapers and calcudoku. Each has one solution only."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import verifiers as vf
from i3_logic.board import GRID_FORM, Cell, Grid, at, beside, cells_of, column_of, in_rows, lettered, row_of, spaced
from i3_logic.kind import LogicKind
from i3_logic.search import Rule, Search, Values, clues
from verifiers.rubrics.logic_grids import check_latin, written
from verifiers.rubrics.logic_task import Puzzle, read_grid


class Skyscrapers(LogicKind):
    """A Latin square of heights; numbers at the edge say how many can be seen from there."""

    name = "skyscrapers"
    parts = ("top", "bottom", "left", "right", "grid")
    answer_form = GRID_FORM
    grows = "side of the grid: 3, 4, 5, 6, 7"
    is_unique = True
    example = {"top": [2, 1], "bottom": [1, 2], "left": [2, 1], "right": [1, 2], "grid": [[0, 0], [0, 0]]}
    example_answer = "1 2\n2 1"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 2 + difficulty
        solution = drawn_square(rng, size)
        columns = [list(column) for column in zip(*solution)]
        puzzle = {
            "top": [_seen(column) for column in columns],
            "bottom": [_seen(column[::-1]) for column in columns],
            "left": [_seen(row) for row in solution],
            "right": [_seen(row[::-1]) for row in solution],
        }
        search = _latin_search(size)
        for i in range(size):
            row, column = row_of(i, size), column_of(i, size)
            for line, side in ((column, "top"), (column[::-1], "bottom"), (row, "left"), (row[::-1], "right")):
                search.rule(line, _sees(puzzle[side][i], size))
        return {**puzzle, "grid": _given(rng, search, solution)}, written(solution)

    def rules(self, puzzle: Puzzle) -> str:
        size = len(puzzle["grid"])
        return (
            f"Fill the empty cells (.) of a {size}x{size} grid with the heights 1 to {size} of buildings, each once in "
            "every row and every column. A number at the edge says how many buildings can be seen from there along "
            "its row or column: a building hides all lower ones behind it."
        )

    def show(self, puzzle: Puzzle) -> str:
        rows = written(puzzle["grid"]).splitlines()
        return "\n".join(
            [
                f"from the top, by column: {spaced(puzzle['top'])}",
                f"from the bottom, by column: {spaced(puzzle['bottom'])}",
                "from the left | row | from the right:",
                *(f"{left} | {row} | {right}" for left, row, right in zip(puzzle["left"], rows, puzzle["right"])),
            ]
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given = puzzle["grid"]
        found = read_grid(answer, len(given), len(given))
        check_latin(found, given)
        columns = [list(column) for column in zip(*found)]
        for side, lines in (("top", columns), ("bottom", columns), ("left", found), ("right", found)):
            for number, (line, wanted) in enumerate(zip(lines, puzzle[side]), 1):
                seen = _seen(line if side in ("top", "left") else line[::-1])
                if seen != wanted:
                    raise vf.WrongAnswer(f"from the {side}, {seen} are seen in line {number}, not {wanted}")


class Calcudoku(LogicKind):
    """A Latin square in cages whose numbers make a target by one operation."""

    name = "calcudoku"
    parts = ("grid", "cages")
    answer_form = GRID_FORM
    grows = "side of the grid: 3, 4, 5, 6, 7"
    is_unique = True
    example = {"grid": [[0, 0], [0, 2]], "cages": [["+", 3, [[0, 0], [0, 1]]], ["-", 1, [[1, 0], [1, 1]]]]}
    example_answer = "2 1\n1 2"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 2 + difficulty
        solution = drawn_square(rng, size)
        search, cages = _latin_search(size), list[list[Any]]()
        for cage in _cages(rng, size):
            values = [solution[r][c] for r, c in cage]
            sign = rng.choice("+*" if len(cage) > 2 else "+*--") if len(cage) > 1 else "+"
            if len(cage) == 2 and max(values) % min(values) == 0 and rng.random() < 0.5:
                sign = "/"
            cages.append([sign, _made(sign, values), [list(cell) for cell in cage]])
            search.rule([r * size + c for r, c in cage], _makes(sign, cages[-1][1], size))
        return {"grid": _given(rng, search, solution), "cages": cages}, written(solution)

    def rules(self, puzzle: Puzzle) -> str:
        size = len(puzzle["grid"])
        return (
            f"Fill the empty cells (.) of a {size}x{size} grid so that every row and every column holds each of the "
            f"numbers 1 to {size} once. The grid is divided into cages, one letter each; the numbers of a cage make "
            "its target: + is their sum, * their product, - the larger of two less the smaller, / the larger of two "
            "divided by the smaller. A number may come twice in a cage."
        )

    def show(self, puzzle: Puzzle) -> str:
        cages = {(r, c): number for number, (_, _, cells) in enumerate(puzzle["cages"]) for r, c in cells}
        size = len(puzzle["grid"])
        names = [f"{chr(ord('A') + n)}: {sign} {target}" for n, (sign, target, _) in enumerate(puzzle["cages"])]
        regions = [[cages[r, c] for c in range(size)] for r in range(size)]
        return "\n".join(["Cages:", *lettered(regions), ", ".join(names), "Grid:", written(puzzle["grid"])])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given = puzzle["grid"]
        found = read_grid(answer, len(given), len(given))
        check_latin(found, given)
        for sign, target, cells in puzzle["cages"]:
            values = [found[r][c] for r, c in cells]
            if _made(sign, values) != target:
                raise vf.WrongAnswer(f"the cage of {at(cells[0])} makes {_made(sign, values)}, not {target}")


def drawn_square(rng: random.Random, size: int) -> Grid:
    """A Latin square out of all there are, not only of those whose rows are one row moved on."""
    search = _latin_search(size)
    search.domains = [rng.sample(domain, size) for domain in search.domains]
    return in_rows(search.solutions(limit=1)[0], size)


def _latin_search(size: int) -> Search:
    search = Search([range(1, size + 1)] * (size * size))
    for i in range(size):
        search.different(row_of(i, size))
        search.different(column_of(i, size))
    return search


def _given(rng: random.Random, search: Search, solution: Grid) -> Grid:
    """The solution with 0 in all cells but those that make it the only one."""
    known = clues(rng, search, [value for row in solution for value in row])
    return [
        [value if r * len(row) + c in known else 0 for c, value in enumerate(row)] for r, row in enumerate(solution)
    ]


def _seen(heights: Sequence[int]) -> int:
    return sum(all(lower < height for lower in heights[:i]) for i, height in enumerate(heights))


def _sees(wanted: int, size: int) -> Rule:
    def may_hold(values: Values) -> bool:
        tallest = seen = 0
        for value in values:
            if value is None:  # until the tallest is there, at least one more will be seen
                return seen == wanted if tallest == size else seen < wanted
            if value > tallest:
                tallest, seen = value, seen + 1
        return seen == wanted

    return may_hold


def _cages(rng: random.Random, size: int) -> list[list[Cell]]:
    """Cages of one to four cells; at most 26, so that each has a letter."""
    while True:
        free, cages = cells_of(size, size), list[list[Cell]]()
        while free:
            cage = [free[0]]
            for _ in range(rng.choice((1, 1, 2, 3))):
                near = [cell for one in cage for cell in beside(one, size, size) if cell in free and cell not in cage]
                cage += [rng.choice(near)] if near else []
            free = [cell for cell in free if cell not in cage]
            cages.append(sorted(cage))
        if len(cages) <= 26:
            return cages


def _made(sign: str, values: Sequence[int]) -> int | None:
    """What the numbers of a cage make; None where a division leaves a rest."""
    if sign in "+*":
        return sum(values) if sign == "+" else math.prod(values)
    low, high = sorted(values)
    return high - low if sign == "-" else None if high % low else high // low


def _makes(sign: str, target: int, size: int) -> Rule:
    def may_hold(values: Values) -> bool:
        known = [value for value in values if value is not None]
        missing = len(values) - len(known)
        if not missing:
            return _made(sign, known) == target
        if sign == "+":
            return sum(known) + missing <= target <= sum(known) + missing * size
        if sign == "*":
            rest, left_over = divmod(target, math.prod(known))
            return not left_over and rest <= size**missing
        return True

    return may_hold
