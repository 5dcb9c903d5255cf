"""Puzzles on a grid: sudoku, Latin squares, futoshiki, queens, mines."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import product

from verifiers.rubrics.logic_task import LogicTask, Puzzle, WrongAnswer, read_grid, read_numbers

Grid = list[list[int]]  # 0 is an empty cell


class LatinSquare(LogicTask):
    """Each number once in every row and column; some cells are given."""

    name = "latin_square"
    parts = ("grid",)
    answer_form = "Write the full grid, one row a line, numbers separated by spaces."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        solution = latin_square(rng, 3 + difficulty)
        return {"grid": emptied(rng, solution, 0.35 + 0.08 * difficulty)}, written(solution)

    def describe(self, puzzle: Puzzle) -> str:
        size = len(puzzle["grid"])
        return (
            f"Fill the empty cells (.) of this {size}x{size} grid so that every row and every column holds each of the "
            f"numbers 1 to {size} once.\n\n{written(puzzle['grid'])}"
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given = puzzle["grid"]
        check_latin(read_grid(answer, len(given), len(given)), given)


class Futoshiki(LatinSquare):
    """A Latin square with cells of which one must be less than its neighbour."""

    name = "futoshiki"
    parts = ("grid", "less")

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 3 + difficulty
        solution = latin_square(rng, size)
        pairs = [((r, c), (r + dr, c + dc)) for r, c in product(range(size), repeat=2) for dr, dc in ((0, 1), (1, 0))]
        pairs = [pair for pair in pairs if max(pair[1]) < size]
        less = []
        for one, other in rng.sample(pairs, size + difficulty):
            if solution[one[0]][one[1]] > solution[other[0]][other[1]]:
                one, other = other, one
            less.append([*one, *other])
        return {"grid": emptied(rng, solution, 0.6 + 0.06 * difficulty), "less": less}, written(solution)

    def describe(self, puzzle: Puzzle) -> str:
        rules = [
            f"- row {r + 1}, column {c + 1} is less than row {r2 + 1}, column {c2 + 1}"
            for r, c, r2, c2 in puzzle["less"]
        ]
        return "\n".join([super().describe(puzzle), "", "Besides:", *rules])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given = puzzle["grid"]
        found = read_grid(answer, len(given), len(given))
        check_latin(found, given)
        for r, c, r2, c2 in puzzle["less"]:
            if found[r][c] >= found[r2][c2]:
                raise WrongAnswer(f"row {r + 1}, column {c + 1} is not less than row {r2 + 1}, column {c2 + 1}")


class Sudoku(LogicTask):
    """A Latin square whose boxes hold each number once, too; boxes of `box_rows` x `box_columns` cells."""

    name = "sudoku"
    parts = ("grid", "box_rows", "box_columns")
    answer_form = "Write the full grid, one row a line, numbers separated by spaces."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        box_rows, box_columns = ((2, 2), (2, 3), (2, 4), (3, 3), (3, 3))[difficulty - 1]
        solution = sudoku_grid(rng, box_rows, box_columns)
        grid = emptied(rng, solution, 0.4 + 0.05 * difficulty)
        return {"grid": grid, "box_rows": box_rows, "box_columns": box_columns}, written(solution)

    def describe(self, puzzle: Puzzle) -> str:
        size = len(puzzle["grid"])
        return (
            f"Solve this {size}x{size} sudoku: every row, every column and every box of {puzzle['box_rows']} rows by "
            f"{puzzle['box_columns']} columns holds each of the numbers 1 to {size} once. A point is an empty cell.\n\n"
            f"{written(puzzle['grid'])}"
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given, height, width = puzzle["grid"], puzzle["box_rows"], puzzle["box_columns"]
        if height * width != len(given):
            raise ValueError(f"boxes of {height}x{width} in a grid of size {len(given)}")
        found = read_grid(answer, len(given), len(given))
        check_latin(found, given)
        for top, left in product(range(0, len(given), height), range(0, len(given), width)):
            box = {found[top + r][left + c] for r in range(height) for c in range(width)}
            if len(box) != len(given):
                raise WrongAnswer(f"the box at row {top + 1}, column {left + 1} holds a number twice")


def check_latin(found: Grid, given: Grid) -> None:
    """Raises WrongAnswer where a given cell was changed, or a row or column does not hold each number once."""
    size = len(given)
    for r, c in product(range(size), repeat=2):
        if given[r][c] and found[r][c] != given[r][c]:
            raise WrongAnswer(
                f"row {r + 1}, column {c + 1} is {given[r][c]} in the puzzle, {found[r][c]} in the answer"
            )
    wanted = set(range(1, size + 1))
    for i in range(size):
        if set(found[i]) != wanted:
            raise WrongAnswer(f"row {i + 1} does not hold each of 1 to {size} once")
        if {row[i] for row in found} != wanted:
            raise WrongAnswer(f"column {i + 1} does not hold each of 1 to {size} once")


def latin_square(rng: random.Random, size: int) -> Grid:
    rows, columns, symbols = (rng.sample(range(size), size) for _ in range(3))
    return [[symbols[(r + c) % size] + 1 for c in columns] for r in rows]


def sudoku_grid(rng: random.Random, height: int, width: int) -> Grid:
    size = height * width
    symbols = rng.sample(range(1, size + 1), size)

    def places(bands: int, lines: int) -> list[int]:
        """An order of the lines that keeps each band together."""
        return [b * lines + n for b in rng.sample(range(bands), bands) for n in rng.sample(range(lines), lines)]

    rows, columns = places(width, height), places(height, width)
    return [[symbols[(width * (r % height) + r // height + c) % size] for c in columns] for r in rows]


def emptied(rng: random.Random, grid: Grid, share: float) -> Grid:
    cells = [(r, c) for r, row in enumerate(grid) for c in range(len(row))]
    empty = set(rng.sample(cells, round(share * len(cells))))
    return [[0 if (r, c) in empty else value for c, value in enumerate(row)] for r, row in enumerate(grid)]


def written(grid: Sequence[Sequence[int]]) -> str:
    return "\n".join(" ".join(str(value) if value else "." for value in row) for row in grid)


class Queens(LogicTask):
    """One queen a row, none attacking another; some are given."""

    name = "n_queens"
    parts = ("size", "given")
    answer_form = "Write the column of the queen of each row, from the first row to the last, separated by spaces."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 4 + 2 * difficulty
        columns = queens(rng, size)
        fixed = sorted(rng.sample(range(size), max(1, size // 3 - 1)))
        return {"size": size, "given": [[r, columns[r]] for r in fixed]}, " ".join(str(c + 1) for c in columns)

    def describe(self, puzzle: Puzzle) -> str:
        size = puzzle["size"]
        given = "; ".join(f"row {r + 1}, column {c + 1}" for r, c in puzzle["given"])
        return (
            f"Place {size} queens on a {size}x{size} board, one in every row, so that no two share a column or a "
            f"diagonal. These are placed already: {given or 'none'}."
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        size, found = puzzle["size"], read_numbers(answer)
        if len(found) != size:
            raise WrongAnswer(f"the answer has {len(found)} columns, not {size}")
        if set(found) != set(range(1, size + 1)):
            raise WrongAnswer(f"the columns are not each of 1 to {size} once")
        for r, c in puzzle["given"]:
            if found[r] != c + 1:
                raise WrongAnswer(f"the queen of row {r + 1} was moved from column {c + 1}")
        if len({r + c for r, c in enumerate(found)}) < size or len({r - c for r, c in enumerate(found)}) < size:
            raise WrongAnswer("two queens share a diagonal")


def queens(rng: random.Random, size: int) -> list[int]:
    """A solution, by search in a random order."""
    columns: list[int] = []

    def place() -> bool:
        row = len(columns)
        if row == size:
            return True
        for column in rng.sample(range(size), size):
            if all(column != c and abs(column - c) != row - r for r, c in enumerate(columns)):
                columns.append(column)
                if place():
                    return True
                columns.pop()
        return False

    place()
    return columns


class Minesweeper(LogicTask):
    """Which hidden cells are mines, so that every number counts the mines around it."""

    name = "minesweeper"
    parts = ("rows", "mines")
    answer_form = "Write the mines as (row, column) pairs, separated by spaces, the first row and column being 1."

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 3 + difficulty
        cells = list(product(range(size), repeat=2))
        mines = set(rng.sample(cells, size + difficulty))
        hidden = mines | set(rng.sample(cells, size))
        rows = [
            "".join("#" if (r, c) in hidden else str(sum(near in mines for near in around(r, c))) for c in range(size))
            for r in range(size)
        ]
        return {"rows": rows, "mines": len(mines)}, " ".join(f"({r + 1}, {c + 1})" for r, c in sorted(mines))

    def describe(self, puzzle: Puzzle) -> str:
        rows = "\n".join(" ".join(row) for row in puzzle["rows"])
        return (
            f"In this minefield # is a hidden cell, and a number counts the mines in the up to eight cells around it. "
            f"There are {puzzle['mines']} mines, all in hidden cells. Find them.\n\n{rows}"
        )

    def check(self, puzzle: Puzzle, answer: str) -> None:
        rows = puzzle["rows"]
        if re.fullmatch(r"[\s\[\](),;0-9]*", answer) is None:
            raise WrongAnswer("the answer is no list of (row, column) pairs")
        numbers = read_numbers(re.sub(r"[\[\]()]", " ", answer))
        if len(numbers) % 2 or len(numbers) != 2 * puzzle["mines"]:
            raise WrongAnswer(
                f"the answer has {len(numbers)} numbers; {puzzle['mines']} mines have {2 * puzzle['mines']}"
            )
        mines = {(r - 1, c - 1) for r, c in zip(numbers[::2], numbers[1::2])}
        if len(mines) != puzzle["mines"]:
            raise WrongAnswer("a mine stands twice in the answer")
        cells = {(r, c): char for r, row in enumerate(rows) for c, char in enumerate(row)}
        for mine in sorted(mines):
            if cells.get(mine) != "#":
                raise WrongAnswer(f"({mine[0] + 1}, {mine[1] + 1}) is no hidden cell")
        for (r, c), char in cells.items():
            if char != "#" and sum(near in mines for near in around(r, c)) != int(char):
                raise WrongAnswer(f"there are not {char} mines around ({r + 1}, {c + 1})")


def around(row: int, column: int) -> list[tuple[int, int]]:
    return [(row + r, column + c) for r, c in product((-1, 0, 1), repeat=2) if r or c]
