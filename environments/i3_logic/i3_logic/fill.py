"""Grids to fill with numbers: binario, kakuro, survo. Each has one solution only."""

from __future__ import annotations

import random
from functools import lru_cache

import verifiers as vf
from i3_logic.board import GRID_FORM, Cell, at, cells_of, column_of, in_rows, row_of, spaced, spaced_rows
from i3_logic.kind import LogicKind
from i3_logic.search import Rule, Search, Values, clues, sums_to
from verifiers.rubrics.logic_grids import written
from verifiers.rubrics.logic_task import Puzzle, read_grid


class Binario(LogicKind):
    """As many 0 as 1 in every line, and never three alike in a row."""

    name = "binario"
    parts = ("grid",)
    answer_form = GRID_FORM
    grows = "side of the grid: 4, 6, 8, 8, 10; fewer given from 4 on"
    is_unique = True
    example = {"grid": [[0, None], [None, None]]}
    example_answer = "0 1\n1 0"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = (4, 6, 8, 8, 10)[difficulty - 1]
        search = Search(rng.sample((0, 1), 2) for _ in range(size * size))
        for i in range(size):
            search.rule(row_of(i, size), _balanced)
            search.rule(column_of(i, size), _balanced)
        solution = search.solutions(limit=1, steps=10**6)[0]
        first = rng.sample(range(size * size), size * size // (5, 5, 4, 7, 5)[difficulty - 1])
        known = clues(rng, search, solution, first)
        grid = [[solution[v] if v in known else None for v in row_of(r, size)] for r in range(size)]
        return {"grid": grid}, spaced_rows(in_rows(solution, size))

    def rules(self, puzzle: Puzzle) -> str:
        size = len(puzzle["grid"])
        return (
            f"Fill the empty cells (.) of this {size}x{size} grid with 0 and 1 so that every row and every column has "
            "as many 0 as 1, and never three equal numbers next to each other."
        )

    def show(self, puzzle: Puzzle) -> str:
        return "\n".join(" ".join("." if value is None else str(value) for value in row) for row in puzzle["grid"])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given = puzzle["grid"]
        size = len(given)
        found = read_grid(answer, size, size)
        for r, c in cells_of(size, size):
            if found[r][c] not in (0, 1):
                raise vf.WrongAnswer(f"{at((r, c))} is neither 0 nor 1")
            if given[r][c] not in (None, found[r][c]):
                raise vf.WrongAnswer(f"{at((r, c))} is {given[r][c]} in the puzzle")
        for name, lines in (("row", found), ("column", list(zip(*found)))):
            for number, line in enumerate(lines, 1):
                if not _balanced(line):
                    raise vf.WrongAnswer(f"{name} {number} has three equal numbers in a row, or not as many 0 as 1")


class Kakuro(LogicKind):
    """Runs of different figures with given sums; # is a wall."""

    name = "kakuro"
    parts = ("walls", "runs", "grid")
    answer_form = "Write the full grid, one row a line, numbers separated by spaces, with 0 for a wall."
    grows = "side of the grid: 3, 4, 4, 5, 6, with fewer walls at 3"
    is_unique = True
    example = {
        "walls": [[0, 0]],
        "runs": [[3, [[0, 1], [1, 1]]], [4, [[1, 0], [1, 1]]]],
        "grid": [[0, 0], [0, 1]],
    }
    example_answer = "0 2\n3 1"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size, share = (3, 4, 4, 5, 6)[difficulty - 1], (5, 4, 7, 5, 5)[difficulty - 1]
        walls, runs = [], list[list[Cell]]()
        while not runs:  # until every cell without a wall is in a run
            walls = sorted(rng.sample(cells_of(size, size), size * size // share))
            lines = [[(r, c) for c in range(size)] for r in range(size)]
            lines += [[(r, c) for r in range(size)] for c in range(size)]
            runs = [run for line in lines for run in _runs(line, walls)]
            if {cell for run in runs for cell in run} | set(walls) != set(cells_of(size, size)):
                runs = []
        domains = [[0] if cell in walls else rng.sample(range(1, 10), 9) for cell in cells_of(size, size)]
        search = Search(domains)
        for run in runs:
            search.different(r * size + c for r, c in run)
        solution = search.solutions(limit=1, steps=10**6)[0]
        sums = [sum(solution[r * size + c] for r, c in run) for run in runs]
        for run, target in zip(runs, sums):
            search.rule([r * size + c for r, c in run], _figures_make(target))
        known = clues(rng, search, solution, [r * size + c for r, c in walls])
        return {
            "walls": [list(cell) for cell in walls],
            "runs": [[target, [list(cell) for cell in run]] for run, target in zip(runs, sums)],
            "grid": [[solution[v] if v in known else 0 for v in row_of(r, size)] for r in range(size)],
        }, spaced_rows(in_rows(solution, size))

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Fill the empty cells (.) of this grid with figures from 1 to 9; # is a wall. A run is two or more cells "
            "next to each other in a row or a column, from wall (or edge) to wall. The figures of a run are all "
            "different and have the sum given for it."
        )

    def show(self, puzzle: Puzzle) -> str:
        walls = [tuple(cell) for cell in puzzle["walls"]]
        rows = [
            " ".join("#" if (r, c) in walls else str(value or ".") for c, value in enumerate(row))
            for r, row in enumerate(puzzle["grid"])
        ]
        sums: list[str] = []
        for target, run in puzzle["runs"]:
            (r, c), (last_r, last_c) = run[0], run[-1]
            is_row = r == last_r
            place = f"row {r + 1}, columns {c + 1} to {last_c + 1}" if is_row else f"column {c + 1}, rows {r + 1} to "
            sums.append(f"{place if is_row else f'{place}{last_r + 1}'}: {target}")
        return "\n".join([*rows, "Sums:", *sums])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given = puzzle["grid"]
        found = read_grid(answer, len(given), len(given))
        walls = [tuple(cell) for cell in puzzle["walls"]]
        for r, c in cells_of(len(given), len(given)):
            if not (found[r][c] == 0 if (r, c) in walls else 1 <= found[r][c] <= 9):
                raise vf.WrongAnswer(f"{at((r, c))} is {'a wall' if (r, c) in walls else 'no figure from 1 to 9'}")
            if given[r][c] not in (0, found[r][c]):
                raise vf.WrongAnswer(f"{at((r, c))} is {given[r][c]} in the puzzle")
        for target, run in puzzle["runs"]:
            figures = [found[r][c] for r, c in run]
            if len(set(figures)) < len(figures) or sum(figures) != target:
                raise vf.WrongAnswer(f"the run from {at(run[0])} has a figure twice, or not the sum {target}")


class Survo(LogicKind):
    """Each number once in the grid, with given sums of rows and columns."""

    name = "survo"
    parts = ("grid", "row_sums", "column_sums")
    answer_form = GRID_FORM
    grows = "cells of the grid: 6, 9, 12, 16, 20"
    is_unique = True
    example = {"grid": [[0, 2], [0, 0]], "row_sums": [3, 7], "column_sums": [4, 6]}
    example_answer = "1 2\n3 4"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        rows, columns = ((2, 3), (3, 3), (3, 4), (4, 4), (4, 5))[difficulty - 1]
        count = rows * columns
        solution = rng.sample(range(1, count + 1), count)
        grid = in_rows(solution, columns)
        row_sums, column_sums = [sum(row) for row in grid], [sum(column) for column in zip(*grid)]
        search = Search([range(1, count + 1)] * count)
        search.different(range(count))
        for r, target in enumerate(row_sums):
            search.rule(row_of(r, columns), sums_to(target, [1] * columns, 1, count))
        for c, target in enumerate(column_sums):
            search.rule(range(c, count, columns), sums_to(target, [1] * rows, 1, count))
        known = clues(rng, search, solution, rng.sample(range(count), count // 4))
        given = [value if variable in known else 0 for variable, value in enumerate(solution)]
        return {"grid": in_rows(given, columns), "row_sums": row_sums, "column_sums": column_sums}, written(grid)

    def rules(self, puzzle: Puzzle) -> str:
        rows, columns = len(puzzle["grid"]), len(puzzle["grid"][0])
        return (
            f"Fill the empty cells (.) of this grid of {rows} rows and {columns} columns with the numbers 1 to "
            f"{rows * columns}, each once in the grid, so that each row has the sum after = and each column the sum in "
            "the last line."
        )

    def show(self, puzzle: Puzzle) -> str:
        rows = written(puzzle["grid"]).splitlines()
        lines = [f"{row} = {target}" for row, target in zip(rows, puzzle["row_sums"])]
        return "\n".join([*lines, f"columns: {spaced(puzzle['column_sums'])}"])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given = puzzle["grid"]
        found = read_grid(answer, len(given), len(given[0]))
        for r, c in cells_of(len(given), len(given[0])):
            if given[r][c] not in (0, found[r][c]):
                raise vf.WrongAnswer(f"{at((r, c))} is {given[r][c]} in the puzzle")
        if sorted(value for row in found for value in row) != list(range(1, len(given) * len(given[0]) + 1)):
            raise vf.WrongAnswer("the grid does not hold each number once")
        for name, lines, sums in (("row", found, puzzle["row_sums"]), ("column", zip(*found), puzzle["column_sums"])):
            for number, (line, target) in enumerate(zip(lines, sums), 1):
                if sum(line) != target:
                    raise vf.WrongAnswer(f"{name} {number} adds up to {sum(line)}, not {target}")


def _balanced(values: Values) -> bool:
    return _balanced_line(tuple(values))


@lru_cache(maxsize=2**14)  # the search asks for the same few thousand lines again and again
def _balanced_line(values: tuple[int | None, ...]) -> bool:
    half = len(values) // 2
    if values.count(0) > half or values.count(1) > half:
        return False
    return not any(one is not None and one == two == three for one, two, three in zip(values, values[1:], values[2:]))


def _figures_make(target: int) -> Rule:
    """Different figures from 1 to 9 that add up to the target."""

    def may_hold(values: Values) -> bool:
        known = sum(value for value in values if value is not None)
        missing = values.count(None)
        low, high = missing * (missing + 1) // 2, missing * (19 - missing) // 2
        return known + low <= target <= known + high

    return may_hold


def _runs(line: list[Cell], walls: list[Cell]) -> list[list[Cell]]:
    runs: list[list[Cell]] = [[]]
    for cell in line:
        if cell in walls:
            runs.append([])
        else:
            runs[-1].append(cell)
    return [run for run in runs if len(run) > 1]
