"""Things to place on a board: stars, and tents beside trees."""

from __future__ import annotations

import random
from itertools import pairwise

import verifiers as vf
from i3_logic.board import (
    Cell,
    at,
    beside,
    cells_of,
    check_counts,
    counts,
    grown,
    lettered,
    marked,
    read_marked,
    spaced,
    touch,
)  # fmt: skip
from i3_logic.kind import LogicKind
from verifiers.rubrics.logic_task import Puzzle, read_numbers


class StarPlacement(LogicKind):
    """One star in every row, column and region, no two of them touching."""

    name = "star_placement"
    parts = ("regions",)
    answer_form = "Write the column of the star of each row, from the first row to the last, separated by spaces."
    grows = "side of the grid: 5, 6, 7, 8, 9"
    example = {"regions": [[0, 0, 0, 0], [1, 1, 1, 0], [2, 3, 3, 3], [2, 2, 3, 3]]}
    example_answer = "3 1 4 2"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 4 + difficulty
        columns = rng.sample(range(size), size)
        while any(abs(one - other) == 1 for one, other in pairwise(columns)):
            columns = rng.sample(range(size), size)
        regions = grown(rng, size, [[cell] for cell in enumerate(columns)])
        return {"regions": regions}, " ".join(str(column + 1) for column in columns)

    def rules(self, puzzle: Puzzle) -> str:
        size = len(puzzle["regions"])
        return (
            f"Place {size} stars in this {size}x{size} grid, in which cells of the same letter are a region: exactly "
            "one in every row, in every column and in every region. No two stars touch, not even at a corner."
        )

    def show(self, puzzle: Puzzle) -> str:
        return "\n".join(lettered(puzzle["regions"]))

    def check(self, puzzle: Puzzle, answer: str) -> None:
        regions, columns = puzzle["regions"], read_numbers(answer)
        if sorted(columns) != list(range(1, len(regions) + 1)):
            raise vf.WrongAnswer(f"the answer does not name each of the columns 1 to {len(regions)} once")
        if len({regions[r][c - 1] for r, c in enumerate(columns)}) < len(regions):
            raise vf.WrongAnswer("two stars are in one region")
        for row, (one, other) in enumerate(pairwise(columns), 1):
            if abs(one - other) == 1:
                raise vf.WrongAnswer(f"the stars of rows {row} and {row + 1} touch")


class Campsite(LogicKind):
    """A tent beside each tree, each tree with a tent of its own, no two tents touching."""

    name = "campsite"
    parts = ("trees", "rows", "columns")
    answer_form = "Write the grid, one row a line, with 1 for a tent and 0 for any other cell, separated by spaces."
    grows = "side of the grid: 4, 5, 6, 7, 8"
    example = {"trees": [[0, 0], [2, 1]], "rows": [1, 0, 1], "columns": [0, 1, 1]}
    example_answer = "0 1 0\n0 0 0\n0 0 1"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 3 + difficulty
        tents, trees = list[Cell](), list[Cell]()
        for cell in rng.sample(cells_of(size, size), size * size):
            near = [tree for tree in beside(cell, size, size) if tree not in tents and tree not in trees]
            if near and cell not in trees and not any(touch(cell, tent) for tent in tents):
                tents.append(cell)
                trees.append(rng.choice(near))
        rows, columns = counts(tents, size, size)
        return {"trees": sorted(map(list, trees)), "rows": rows, "columns": columns}, marked(tents, size, size)

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Put up tents in empty cells (.) of this grid, one for each tree (T): every tree has a tent of its own "
            "that shares a side with it, and there are no other tents. No two tents touch, not even at a corner. The "
            "number after a row and those under the columns say how many tents are there."
        )

    def show(self, puzzle: Puzzle) -> str:
        rows, columns, trees = puzzle["rows"], puzzle["columns"], [tuple(tree) for tree in puzzle["trees"]]
        lines = [" ".join("T" if (r, c) in trees else "." for c in range(len(columns))) for r in range(len(rows))]
        lines = [f"{line} | {count}" for line, count in zip(lines, rows)]
        return "\n".join([*lines, f"columns: {spaced(columns)}"])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        rows, columns = puzzle["rows"], puzzle["columns"]
        trees: list[Cell] = [(r, c) for r, c in puzzle["trees"]]
        tents = read_marked(answer, len(rows), len(columns))
        check_counts(tents, rows, columns)
        for tent in sorted(tents):
            if tent in trees:
                raise vf.WrongAnswer(f"{at(tent)} is a tree")
            if any(touch(tent, other) for other in tents):
                raise vf.WrongAnswer(f"the tent in {at(tent)} touches another")
        if len(tents) != len(trees) or not _all_paired(trees, tents, len(rows), len(columns)):
            raise vf.WrongAnswer("not every tree has a tent of its own beside it")


def _all_paired(trees: list[Cell], tents: set[Cell], rows: int, columns: int) -> bool:
    """Whether every tree can have a tent of its own, by augmenting a matching tree by tree."""
    owner: dict[Cell, Cell] = {}

    def finds(tree: Cell, tried: set[Cell]) -> bool:
        for tent in beside(tree, rows, columns):
            if tent in tents and tent not in tried:
                tried.add(tent)
                if tent not in owner or finds(owner[tent], tried):
                    owner[tent] = tree
                    return True
        return False

    return all(finds(tree, set()) for tree in trees)
