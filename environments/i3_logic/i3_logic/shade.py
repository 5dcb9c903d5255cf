"""Cells to shade: kukurasu, thermometers, hitori. The answer is a grid of 1 and 0."""

from __future__ import annotations

import random

import verifiers as vf
from i3_logic.board import (
    SHADED_FORM,
    Cell,
    at,
    beside,
    cells_of,
    check_counts,
    counts,
    groups,
    marked,
    read_marked,
    spaced,
)  # fmt: skip
from i3_logic.kind import LogicKind
from i3_logic.latin import drawn_square
from i3_logic.search import Search, clues, sums_to
from verifiers.rubrics.logic_task import Puzzle


class Kukurasu(LogicKind):
    """A shaded cell counts its column's number for the row's sum, and its row's number for the column's."""

    name = "kukurasu"
    parts = ("row_sums", "column_sums", "known")
    answer_form = SHADED_FORM
    grows = "side of the grid: 3, 4, 5, 6, 7"
    is_unique = True
    example = {"row_sums": [2, 3], "column_sums": [2, 3], "known": []}
    example_answer = "0 1\n1 1"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 2 + difficulty
        cells = cells_of(size, size)
        shaded = set(rng.sample(cells, rng.randint(size * size // 3, size * size // 2 + 1)))
        row_sums, column_sums = _weighed(shaded, size)
        search, weights = Search([(0, 1)] * len(cells)), list(range(1, size + 1))
        for i in range(size):
            search.rule(range(i * size, (i + 1) * size), sums_to(row_sums[i], weights, 0, 1))
            search.rule(range(i, size * size, size), sums_to(column_sums[i], weights, 0, 1))
        known = clues(rng, search, [int(cell in shaded) for cell in cells])
        told = [[*cells[variable], int(cells[variable] in shaded)] for variable in known]
        return {"row_sums": row_sums, "column_sums": column_sums, "known": told}, marked(shaded, size, size)

    def rules(self, puzzle: Puzzle) -> str:
        size = len(puzzle["row_sums"])
        return (
            f"Shade cells of a {size}x{size} grid. In a row, a shaded cell in column 1 counts 1, in column 2 counts 2 "
            "and so on; in a column, a shaded cell in row 1 counts 1, in row 2 counts 2 and so on. Every row and every "
            "column must have its sum."
        )

    def show(self, puzzle: Puzzle) -> str:
        lines = [f"sums of the rows: {spaced(puzzle['row_sums'])}"]
        lines.append(f"sums of the columns: {spaced(puzzle['column_sums'])}")
        lines += [f"{at((r, c))} is {'' if on else 'not '}shaded" for r, c, on in puzzle["known"]]
        return "\n".join(lines)

    def check(self, puzzle: Puzzle, answer: str) -> None:
        size = len(puzzle["row_sums"])
        shaded = read_marked(answer, size, size)
        for r, c, on in puzzle["known"]:
            if ((r, c) in shaded) != bool(on):
                raise vf.WrongAnswer(f"{at((r, c))} was given")
        for name, wanted, found in zip(("rows", "columns"), _puzzle_sums(puzzle), _weighed(shaded, size)):
            if wanted != found:
                raise vf.WrongAnswer(f"the {name} have the sums {spaced(found)}, not {spaced(wanted)}")


class Thermometers(LogicKind):
    """Thermometers filled from the bulb on; the filled cells of rows and columns are counted."""

    name = "thermometers"
    parts = ("thermometers", "rows", "columns")
    answer_form = "Write the grid, one row a line, with 1 for a filled cell and 0 for another, separated by spaces."
    grows = "side of the grid: 3, 4, 5, 6, 7"
    example = {"thermometers": [[[0, 0], [0, 1]], [[1, 1], [1, 0]]], "rows": [1, 1], "columns": [1, 1]}
    example_answer = "1 0\n0 1"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 2 + difficulty
        free, thermometers = cells_of(size, size), list[list[Cell]]()
        while free:
            line = [rng.choice(free)]
            for _ in range(rng.randint(1, size - 1)):
                near = [cell for cell in beside(line[-1], size, size) if cell in free and cell not in line]
                line += [rng.choice(near)] if near else []
            free = [cell for cell in free if cell not in line]
            thermometers.append(line)
        filled = {cell for line in thermometers for cell in line[: rng.randint(0, len(line))]}
        rows, columns = counts(filled, size, size)
        lines = [[list(cell) for cell in line] for line in thermometers]
        return {"thermometers": lines, "rows": rows, "columns": columns}, marked(filled, size, size)

    def rules(self, puzzle: Puzzle) -> str:
        size = len(puzzle["rows"])
        return (
            f"A {size}x{size} grid is covered by thermometers, given as (row, column) of their cells from the bulb to "
            "the end. Each is filled from its bulb up to some cell, or empty, or full: a cell is filled only if all "
            "before it are. Rows and columns have as many filled cells as their numbers say."
        )

    def show(self, puzzle: Puzzle) -> str:
        lines = [" ".join(f"({r + 1},{c + 1})" for r, c in line) for line in puzzle["thermometers"]]
        return "\n".join([*lines, f"rows: {spaced(puzzle['rows'])}", f"columns: {spaced(puzzle['columns'])}"])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        filled = read_marked(answer, len(puzzle["rows"]), len(puzzle["columns"]))
        for line in puzzle["thermometers"]:
            levels = [(r, c) in filled for r, c in line]
            if levels != sorted(levels, reverse=True):
                raise vf.WrongAnswer(f"the thermometer with its bulb at {at(line[0])} has a gap")
        check_counts(filled, puzzle["rows"], puzzle["columns"])


class Hitori(LogicKind):
    """Shade so that no number is left twice in a line, no two shaded are neighbours, and the rest hangs together."""

    name = "hitori"
    parts = ("grid",)
    answer_form = SHADED_FORM
    grows = "side of the grid: 4, 5, 6, 7, 8"
    example = {"grid": [[1, 1, 2], [2, 3, 1], [3, 2, 3]]}
    example_answer = "1 0 0\n0 0 0\n0 0 1"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 3 + difficulty
        grid, cells, shaded = drawn_square(rng, size), cells_of(size, size), list[Cell]()
        for cell in rng.sample(cells, len(cells)):
            rest = [other for other in cells if other != cell and other not in shaded]
            if not any(near in shaded for near in beside(cell, size, size)) and len(groups(rest)) == 1:
                shaded.append(cell)
        for r, c in shaded:
            line = [(r, other) for other in range(size)] + [(other, c) for other in range(size)]
            copied = rng.choice([cell for cell in line if cell not in shaded])
            grid[r][c] = grid[copied[0]][copied[1]]
        return {"grid": grid}, marked(shaded, size, size)

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Shade cells of this grid so that no number stands twice among the unshaded cells of a row or of a column, "
            "no two shaded cells share a side, and all unshaded cells hang together by their sides."
        )

    def show(self, puzzle: Puzzle) -> str:
        return "\n".join(map(spaced, puzzle["grid"]))

    def check(self, puzzle: Puzzle, answer: str) -> None:
        grid = puzzle["grid"]
        size = len(grid)
        shaded = read_marked(answer, size, size)
        rest = [cell for cell in cells_of(size, size) if cell not in shaded]
        for i in range(size):
            for name, line in (
                ("row", [cell for cell in rest if cell[0] == i]),
                ("column", [cell for cell in rest if cell[1] == i]),
            ):
                if len({grid[r][c] for r, c in line}) < len(line):
                    raise vf.WrongAnswer(f"{name} {i + 1} has a number twice that is not shaded")
        for cell in sorted(shaded):
            if any(near in shaded for near in beside(cell, size, size)):
                raise vf.WrongAnswer(f"{at(cell)} is shaded, and so is a cell beside it")
        if len(groups(rest)) != 1:
            raise vf.WrongAnswer("the unshaded cells do not hang together")


def _weighed(shaded: set[Cell], size: int) -> tuple[list[int], list[int]]:
    lines = range(size)
    return [sum(c + 1 for r, c in shaded if r == i) for i in lines], [
        sum(r + 1 for r, c in shaded if c == i) for i in lines
    ]


def _puzzle_sums(puzzle: Puzzle) -> tuple[list[int], list[int]]:
    return puzzle["row_sums"], puzzle["column_sums"]
