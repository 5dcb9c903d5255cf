"""Ways over a board: numbers in a chain (numbrix), and arrows that lead away from numbers."""

from __future__ import annotations

import random

import verifiers as vf
from i3_logic.board import Cell, at, beside, cells_of
from i3_logic.kind import LogicKind, read_words
from verifiers.rubrics.logic_grids import written
from verifiers.rubrics.logic_task import Puzzle, read_grid

NUMBRIX_STEPS = 4_000


class Numbrix(LogicKind):
    """The numbers in a chain: each beside the next."""

    name = "numbrix"
    parts = ("grid",)
    answer_form = "Write the full grid, one row a line, numbers separated by spaces."
    grows = "side of the grid: 3, 4, 5, 6, 7"
    is_unique = True
    example = {"grid": [[1, 0], [4, 0]]}
    example_answer = "1 2\n4 3"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 2 + difficulty
        chain = _chain(rng, size)
        known = {0, len(chain) - 1, *rng.sample(range(len(chain)), len(chain) // 5)}
        while other := _other_chain(chain, known, size):
            known.add(rng.choice([i for i, cell in enumerate(chain) if cell != other[i]]))
        grid, full = ([[0] * size for _ in range(size)] for _ in range(2))
        for i, (r, c) in enumerate(chain):
            full[r][c] = i + 1
            grid[r][c] = i + 1 if i in known else 0
        return {"grid": grid}, written(full)

    def rules(self, puzzle: Puzzle) -> str:
        size = len(puzzle["grid"])
        return (
            f"Fill the empty cells (.) of this grid so that it holds each of the numbers 1 to {size * size} once, and "
            "each number shares a side with the next one."
        )

    def show(self, puzzle: Puzzle) -> str:
        return written(puzzle["grid"])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        given = puzzle["grid"]
        size = len(given)
        found = read_grid(answer, size, size)
        place = {found[r][c]: (r, c) for r, c in cells_of(size, size)}
        for r, c in cells_of(size, size):
            if given[r][c] not in (0, found[r][c]):
                raise vf.WrongAnswer(f"{at((r, c))} is {given[r][c]} in the puzzle")
        for number in range(1, size * size + 1):
            if number not in place:
                raise vf.WrongAnswer(f"{number} is missing")
            if number > 1 and place[number] not in beside(place[number - 1], size, size):
                raise vf.WrongAnswer(f"{number} is not beside {number - 1}")


ARROWS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


class ArrowMaze(LogicKind):
    """Arrows lead away from numbers, as many as each says."""

    name = "arrow_maze"
    parts = ("grid",)
    answer_form = "Write the full grid, one row a line, with U, D, L, R for arrows, entries separated by spaces."
    grows = "side of the grid: 3, 4, 5, 6, 7"
    example = {"grid": [[2, -1], [-1, 0]]}
    example_answer = "2 R\nD 0"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size = 2 + difficulty
        left = rng.sample(cells_of(size, size), size * size)
        full: dict[Cell, str] = {}
        while left:
            start = left.pop()
            arrows = 0
            for name, (dr, dc) in rng.sample(sorted(ARROWS.items()), 4):
                for step in range(1, rng.choice((1, 2, 3, size)) + 1):
                    cell = (start[0] + step * dr, start[1] + step * dc)
                    if cell not in left:
                        break
                    left.remove(cell)
                    full[cell] = name
                    arrows += 1
            full[start] = str(arrows)
        rows = [[full[r, c] for c in range(size)] for r in range(size)]
        grid = [[int(word) if word.isdigit() else -1 for word in row] for row in rows]
        return {"grid": grid}, "\n".join(map(" ".join, rows))

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Fill every empty cell (.) of this grid with an arrow: U (up), D (down), L (left) or R (right). From a "
            "number, rays of arrows lead straight away: in each of the four directions, those arrows of that direction "
            "that follow each other without a gap from the cell beside the number on. A number is how many arrows its "
            "rays have together, and every arrow belongs to the ray of a number."
        )

    def show(self, puzzle: Puzzle) -> str:
        return "\n".join(" ".join("." if value < 0 else str(value) for value in row) for row in puzzle["grid"])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        grid = puzzle["grid"]
        size = len(grid)
        found = read_words(answer.upper(), size, size)
        for r, c in cells_of(size, size):
            if found[r][c] not in (ARROWS if grid[r][c] < 0 else (str(grid[r][c]),)):
                raise vf.WrongAnswer(f"{at((r, c))} is {found[r][c]!r:.20}")
        in_rays = 0
        for r, c in cells_of(size, size):
            if grid[r][c] >= 0:
                arrows = sum(_ray(found, (r, c), name) for name in ARROWS)
                if arrows != grid[r][c]:
                    raise vf.WrongAnswer(f"the rays of {at((r, c))} have {arrows} arrows, not {grid[r][c]}")
                in_rays += arrows
        if in_rays < sum(value < 0 for row in grid for value in row):
            raise vf.WrongAnswer("an arrow belongs to no number")


def _ray(found: list[list[str]], start: Cell, name: str) -> int:
    (r, c), (dr, dc), length = start, ARROWS[name], 0
    while 0 <= r + dr < len(found) and 0 <= c + dc < len(found) and found[r + dr][c + dc] == name:
        r, c, length = r + dr, c + dc, length + 1
    return length


def _chain(rng: random.Random, size: int) -> list[Cell]:
    """A way over all cells: a snake, changed at its ends many times."""
    chain = [(r, c if r % 2 == 0 else size - 1 - c) for r, c in cells_of(size, size)]
    for _ in range(6 * size * size):
        if rng.random() < 0.5:
            chain.reverse()
        place = chain.index(rng.choice(beside(chain[-1], size, size)))
        chain[place + 1 :] = chain[:place:-1]  # what came after it is walked the other way round
    return chain


def _other_chain(chain: list[Cell], known: set[int], size: int) -> list[Cell] | None:
    """Another way with the same known cells. A search that takes too long gives a way that differs everywhere, so
    that something more will be known."""
    fixed = {chain[i]: i for i in known}
    following = [min(j for j in known if j >= i) for i in range(len(chain))]
    way, used, steps = [chain[0]], {chain[0]}, 0

    def goes_on() -> bool:
        nonlocal steps
        i = len(way)
        if i == len(chain):
            return way != chain
        for near in beside(way[-1], size, size):
            goal, steps = following[i], steps + 1
            distance = abs(near[0] - chain[goal][0]) + abs(near[1] - chain[goal][1])
            if near in used or fixed.get(near, i) != i or distance > goal - i or steps > NUMBRIX_STEPS:
                continue
            way.append(near)
            used.add(near)
            if goes_on():
                return True
            used.remove(way.pop())
        return False

    if goes_on():
        return way
    return [(-1, -1) if i not in known else cell for i, cell in enumerate(chain)] if steps > NUMBRIX_STEPS else None
