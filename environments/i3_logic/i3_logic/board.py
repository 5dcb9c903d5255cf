"""The board: cells of a grid, those beside and around them, connected groups, and regions that cover it."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from itertools import product

import verifiers as vf
from verifiers.rubrics.logic_task import read_grid

Cell = tuple[int, int]  # row, column; from 0
Grid = list[list[int]]

GRID_FORM = "Write the full grid, one row a line, numbers separated by spaces."
SHADED_FORM = "Write the grid, one row a line, with 1 for a shaded cell and 0 for another, separated by spaces."
STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))


def cells_of(rows: int, columns: int) -> list[Cell]:
    return list(product(range(rows), range(columns)))


def beside(cell: Cell, rows: int, columns: int) -> list[Cell]:
    """The up to four cells that share a side with it."""
    near = [(cell[0] + r, cell[1] + c) for r, c in STEPS]
    return [(r, c) for r, c in near if 0 <= r < rows and 0 <= c < columns]


def touch(one: Cell, other: Cell) -> bool:
    """Whether two cells share a side or a corner."""
    return max(abs(one[0] - other[0]), abs(one[1] - other[1])) == 1


def groups(cells: Collection[Cell]) -> list[list[Cell]]:
    """The parts of the cells that hang together by sides."""
    left, found = dict.fromkeys(sorted(cells)), list[list[Cell]]()
    while left:
        group = [next(iter(left))]
        del left[group[0]]
        for r, c in group:
            for near in ((r + dr, c + dc) for dr, dc in STEPS):
                if near in left:
                    del left[near]
                    group.append(near)
        found.append(group)
    return found


def grown(rng: random.Random, size: int, starts: Sequence[Iterable[Cell]]) -> Grid:
    """The number of a region for every cell: regions grow from their starts, cell by cell, until all are taken."""
    region = {cell: number for number, start in enumerate(starts) for cell in start}
    edge = [(near, number) for cell, number in region.items() for near in beside(cell, size, size)]
    while edge:
        place = rng.randrange(len(edge))
        edge[place], edge[-1] = edge[-1], edge[place]
        cell, number = edge.pop()
        if cell not in region:
            region[cell] = number
            edge += [(near, number) for near in beside(cell, size, size)]
    return [[region[r, c] for c in range(size)] for r in range(size)]


def lettered(regions: Grid) -> list[str]:
    """Rows of letters; at most 26 regions."""
    return ["".join(chr(ord("A") + number) for number in row) for row in regions]


def marked(marks: Collection[Cell], rows: int, columns: int) -> str:
    """A grid with 1 for the marked cells and 0 for the others, as text."""
    return "\n".join(" ".join(str(int((r, c) in marks)) for c in range(columns)) for r in range(rows))


def read_marked(answer: str, rows: int, columns: int) -> set[Cell]:
    """The cells with 1 in a grid of 0 and 1. Raises vf.WrongAnswer for anything else."""
    grid = read_grid(answer, rows, columns)
    for row in grid:
        for value in row:
            if value not in (0, 1):
                raise vf.WrongAnswer(f"the answer has {value!s:.20}, which is neither 0 nor 1")
    return {(r, c) for r, c in cells_of(rows, columns) if grid[r][c]}


def counts(marks: Collection[Cell], rows: int, columns: int) -> tuple[list[int], list[int]]:
    """How many marks there are in each row and in each column."""
    return (
        [sum(r == row for r, _ in marks) for row in range(rows)],
        [sum(c == column for _, c in marks) for column in range(columns)],
    )


def check_counts(marks: Collection[Cell], by_row: list[int], by_column: list[int]) -> None:
    """Raises vf.WrongAnswer where a row or a column has not as many marks as it should."""
    found = counts(marks, len(by_row), len(by_column))
    for name, wanted, had in zip(("row", "column"), (by_row, by_column), found):
        for number, (one, other) in enumerate(zip(wanted, had), 1):
            if one != other:
                raise vf.WrongAnswer(f"{name} {number} has {other}, not {one}")


def at(cell: Cell) -> str:
    """A cell for a reader, who counts from 1."""
    return f"row {cell[0] + 1}, column {cell[1] + 1}"


# A grid as variables of a search, numbered row by row


def row_of(number: int, size: int) -> list[int]:
    """The variables of a row; those of a grid are numbered row by row."""
    return list(range(number * size, (number + 1) * size))


def column_of(number: int, size: int) -> list[int]:
    return list(range(number, size * size, size))


def in_rows(values: Sequence[int], columns: int) -> Grid:
    return [list(values[start : start + columns]) for start in range(0, len(values), columns)]


def spaced(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def spaced_rows(grid: Grid) -> str:
    """As `written`, where 0 is a value like others."""
    return "\n".join(spaced(row) for row in grid)
