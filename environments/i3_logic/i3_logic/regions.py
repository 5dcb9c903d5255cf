"""Cells to shade by regions: norinori and number wall. The answer is a grid of 1 and 0."""

from __future__ import annotations

import random

import verifiers as vf
from i3_logic.board import SHADED_FORM, Cell, at, beside, cells_of, groups, grown, lettered, marked, read_marked
from i3_logic.kind import LogicKind
from verifiers.rubrics.logic_task import Puzzle


class Norinori(LogicKind):
    """Two shaded cells a region; every shaded cell has exactly one shaded neighbour."""

    name = "norinori"
    parts = ("regions",)
    answer_form = SHADED_FORM
    grows = "side of the grid: 4, 5, 6, 7, 8"
    example = {"regions": [[0, 0], [0, 0]]}
    example_answer = "1 1\n0 0"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 3 + difficulty
        dominoes = _dominoes(rng, size)
        shaded = [cell for domino in dominoes for cell in domino]
        regions = grown(rng, size, _region_starts(rng, size, dominoes))
        return {"regions": regions}, marked(shaded, size, size)

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Shade cells of this grid, in which cells of the same letter are a region, so that every region has "
            "exactly two shaded cells, and every shaded cell shares a side with exactly one other shaded cell, of its "
            "own region or of another."
        )

    def show(self, puzzle: Puzzle) -> str:
        return "\n".join(lettered(puzzle["regions"]))

    def check(self, puzzle: Puzzle, answer: str) -> None:
        regions = puzzle["regions"]
        size = len(regions)
        shaded = read_marked(answer, size, size)
        had = [regions[r][c] for r, c in shaded]
        for number in range(1 + max(map(max, regions))):
            if had.count(number) != 2:
                raise vf.WrongAnswer(f"region {chr(ord('A') + number)} has {had.count(number)} shaded cells, not 2")
        for cell in sorted(shaded):
            if sum(near in shaded for near in beside(cell, size, size)) != 1:
                raise vf.WrongAnswer(f"{at(cell)} is shaded and has not exactly one shaded cell beside it")


class NumberWall(LogicKind):
    """A wall without 2x2 blocks that hangs together, and islands of one number each, which is their size."""

    name = "number_wall"
    parts = ("grid",)
    answer_form = (
        "Write the grid, one row a line, with 1 for a cell of the wall and 0 for an island, separated by spaces."
    )
    grows = "side of the grid: 4, 5, 6, 7, 8"
    example = {"grid": [[0, 0, 0], [0, 1, 0], [0, 0, 0]]}
    example_answer = "1 1 1\n1 0 1\n1 1 1"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 3 + difficulty
        cells = cells_of(size, size)
        kept = set(rng.sample(cells, size))  # never wall, so that some islands are larger than what blocks leave over
        wall = {rng.choice([cell for cell in cells if cell not in kept])}
        while more := [
            cell
            for cell in cells
            if cell not in wall | kept
            and any(near in wall for near in beside(cell, size, size))
            and not _blocks(wall | {cell}, size)
        ]:
            wall.add(rng.choice(more))
        grid = [[0] * size for _ in range(size)]
        for island in groups([cell for cell in cells if cell not in wall]):
            r, c = rng.choice(island)
            grid[r][c] = len(island)
        return {"grid": grid}, marked(wall, size, size)

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Divide this grid into a wall and islands. All cells of the wall hang together by their sides, and no 2x2 "
            "block is all wall. Islands do not share a side with each other; each island has exactly one of the "
            "numbers, which is how many cells it has. Cells with a number are never wall."
        )

    def show(self, puzzle: Puzzle) -> str:
        return "\n".join(" ".join(str(value or ".") for value in row) for row in puzzle["grid"])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        grid = puzzle["grid"]
        size = len(grid)
        wall = read_marked(answer, size, size)
        if len(groups(wall)) > 1:
            raise vf.WrongAnswer("the wall does not hang together")
        if blocks := _blocks(wall, size):
            raise vf.WrongAnswer(f"the 2x2 block from {at(blocks[0])} is all wall")
        if any(grid[r][c] for r, c in wall):
            raise vf.WrongAnswer("a cell with a number is wall")
        for island in groups([cell for cell in cells_of(size, size) if cell not in wall]):
            numbers = [grid[r][c] for r, c in island if grid[r][c]]
            if numbers != [len(island)]:
                raise vf.WrongAnswer(f"the island at {at(island[0])} has {len(island)} cells and the numbers {numbers}")


def _blocks(wall: set[Cell], size: int) -> list[Cell]:
    """The upper left cells of 2x2 blocks that are all wall."""
    corners = cells_of(size - 1, size - 1)
    return [(r, c) for r, c in corners if {(r, c), (r + 1, c), (r, c + 1), (r + 1, c + 1)} <= wall]


def _dominoes(rng: random.Random, size: int) -> list[tuple[Cell, Cell]]:
    """Pairs of neighbours, no two pairs sharing a side, as many as fit in the order they are drawn."""
    pairs = [(one, other) for one in cells_of(size, size) for other in beside(one, size, size) if one < other]
    taken, dominoes = set[Cell](), list[tuple[Cell, Cell]]()
    for pair in rng.sample(pairs, len(pairs)):
        if not any(near in taken for cell in pair for near in (cell, *beside(cell, size, size))):
            dominoes.append(pair)
            taken |= set(pair)
    return dominoes


def _region_starts(rng: random.Random, size: int, dominoes: list[tuple[Cell, Cell]]) -> list[list[Cell]]:
    """Two shaded cells for each region, and a way between them. Where ways can be found, two dominoes are crossed:
    each of two regions has a cell of both, so that a region does not give its domino away."""
    taken = {cell for domino in dominoes for cell in domino}
    left, starts = list(dominoes), list[list[Cell]]()
    while left:
        one = left.pop()
        for other in rng.sample(left, len(left)):
            first = _way(one[0], other[0], taken, size)
            second = _way(one[1], other[1], taken | set(first or ()), size) if first else None
            if first and second:
                taken |= {*first, *second}
                starts += [first, second]
                left.remove(other)
                break
        else:
            starts.append(list(one))
    return starts


def _way(start: Cell, end: Cell, taken: set[Cell], size: int) -> list[Cell] | None:
    """The cells of a way from start to end with at most two others between, none of them taken."""
    ways = [[start]]
    for _ in range(3):
        longer = [[*way, near] for way in ways for near in beside(way[-1], size, size) if near not in way]
        if done := [way for way in longer if way[-1] == end]:
            return done[0]
        ways = [way for way in longer if way[-1] not in taken]
    return None
