"""Is every solution paid in full, and nothing else? What is paid is held against the rules written a second time, in
another way, and against all answers there are."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from itertools import combinations, permutations, product
from typing import Any

import pytest
from i3_logic import KINDS, load_environment, logic_rubric, make_row
from i3_logic.kinds import OWN
from i3_logic.rows import is_told
from i3_logic.search import Search, TooManySteps, clues, sums_to

import verifiers as vf
from verifiers.rubrics.logic_task import MAX_CHARS

OWN_NAMES = [task.name for task in OWN]
RUBRIC = logic_rubric()


row_of = cache(make_row)  # several tests look at the same puzzles; none changes them


def paid(reply: str, row: dict[str, Any]) -> float:
    return RUBRIC.is_solved(RUBRIC.parser, reply, row["info"])


def paid_answer(answer: str, kind: str, puzzle: Any) -> float:
    return paid(f"So:\n<answer>\n{answer}\n</answer>", {"info": {"logic_task": kind, "puzzle": puzzle}})


# 4. every solution is paid in full


@pytest.mark.parametrize("difficulty", [1, 3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_solutions_are_paid_and_mutations_only_where_they_solve_too(kind, difficulty):
    rng = random.Random(f"{kind}/{difficulty}")
    for seed in range(20 if kind in OWN_NAMES else 4):
        row = row_of(kind, difficulty, seed)
        puzzle, right = json.loads(row["info"]["puzzle"]), row["answer"]
        assert paid(f"<think>hm</think>So: <answer>\n{right}\n</answer>", row) == 1.0
        assert paid(f"So \\boxed{{{right}}}.", row) == 1.0
        if kind in AGAIN:
            assert AGAIN[kind](puzzle, right)
        for wrong in mutations(right, rng):
            if KINDS[kind].is_unique:
                assert paid_answer(wrong, kind, puzzle) == 0.0, wrong
            elif kind in AGAIN:
                assert paid_answer(wrong, kind, puzzle) == float(holds_again(kind, puzzle, wrong)), wrong


def mutations(right: str, rng: random.Random) -> list[str]:
    """The answer with one character replaced, or two of its words exchanged."""
    found: list[str] = []
    places = [i for i, char in enumerate(right) if char.isalnum()] or range(len(right))  # brackets alone have none
    for _ in range(5):
        place = rng.choice(places)
        chars = [right[other] for other in places if right[other].isdigit() == right[place].isdigit()]
        char = rng.choice([*chars, "0", "1"] if right[place].isdigit() else chars)
        found.append(right[:place] + char + right[place + 1 :])
    words = list(re.finditer(r"[^\s,]+", right))
    if len(words) > 1:
        one, other = sorted(rng.sample(words, 2), key=lambda word: word.start())
        between = right[one.end() : other.start()]
        found.append(right[: one.start()] + other[0] + between + one[0] + right[other.end() :])
    return [text for text in found if meaning(text) != meaning(right)]


def meaning(answer: str) -> list[str]:
    """Parts that can be told apart; where they are pairs of a name and its value, their order says nothing."""
    parts = [part.strip().casefold() for part in re.split(r"[,\n]", answer)]
    return sorted(parts) if all(":" in part or "=" in part for part in parts) else " ".join(parts).split()


def holds_again(kind: str, puzzle: Any, answer: str) -> bool:
    try:
        return AGAIN[kind](puzzle, answer)
    except (ValueError, KeyError, IndexError):  # not in the form in which the generators write
        return False


# The rules of kinds whose puzzles can have more than one solution, a second time.


def numbers(text: str) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in text.splitlines()]


def ones(text: str) -> set[tuple[int, int]]:
    if not set(text) <= set("01 \n"):
        raise ValueError(text)
    return {(r, c) for r, line in enumerate(numbers(text)) for c, value in enumerate(line) if value}


def sizes(cells: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """For every cell, the number of cells that it hangs together with: names spread until they stay."""
    name = {cell: cell for cell in cells}
    changed = True
    while changed:
        changed = False
        for r, c in list(name):
            for near in ((r + 1, c), (r, c + 1)):
                if near in name and name[near] != name[r, c]:
                    name[near] = name[r, c] = min(name[near], name[r, c])
                    changed = True
    count = Counter(name.values())
    return {cell: count[name[cell]] for cell in name}


def thermometers_again(puzzle: Any, answer: str) -> bool:
    filled = numbers(answer)
    lines = ["".join(str(filled[r][c]) for r, c in line) for line in puzzle["thermometers"]]
    sums = [sum(row) for row in filled], [sum(column) for column in zip(*filled)]
    return all(re.fullmatch("1*0*", line) for line in lines) and sums == (puzzle["rows"], puzzle["columns"])


def hitori_again(puzzle: Any, answer: str) -> bool:
    grid, shaded = puzzle["grid"], ones(answer)
    left = [[0 if (r, c) in shaded else value for c, value in enumerate(row)] for r, row in enumerate(grid)]
    twice = any(Counter(line)[value] > 1 for line in (*left, *zip(*left)) for value in line if value)
    rest = {(r, c) for r, row in enumerate(left) for c, value in enumerate(row) if value}
    return not twice and max(sizes(shaded).values(), default=1) == 1 and set(sizes(rest).values()) == {len(rest)}


def norinori_again(puzzle: Any, answer: str) -> bool:
    shaded = ones(answer)
    count = Counter(puzzle["regions"][r][c] for r, c in shaded)
    regions = {number for row in puzzle["regions"] for number in row}
    return count == dict.fromkeys(regions, 2) and set(sizes(shaded).values()) == {2}


def number_wall_again(puzzle: Any, answer: str) -> bool:
    grid, wall = puzzle["grid"], ones(answer)
    land = {(r, c) for r in range(len(grid)) for c in range(len(grid))} - wall
    numbered = {(r, c): value for r, row in enumerate(grid) for c, value in enumerate(row) if value}
    island = sizes(land)
    blocks = any({(r, c), (r, c + 1), (r + 1, c), (r + 1, c + 1)} <= wall for r, c in wall)
    # as many islands as numbers, each number the size of its own, is one number an island
    alone = all(not joined(land, one, other) for one, other in combinations(numbered, 2))
    fits = all(island.get(cell) == value for cell, value in numbered.items())
    return (
        fits
        and alone
        and sum(numbered.values()) == len(land)
        and not blocks
        and set(sizes(wall).values()) == {len(wall)}
    )


def joined(cells: set[tuple[int, int]], one: tuple[int, int], other: tuple[int, int]) -> bool:
    reached, before = {one}, 0
    while len(reached) > before:
        before = len(reached)
        reached |= {(r + a, c + b) for r, c in reached for a, b in ((0, 1), (1, 0), (0, -1), (-1, 0))} & cells
    return other in reached


def star_placement_again(puzzle: Any, answer: str) -> bool:
    regions, stars = puzzle["regions"], [(row, int(word) - 1) for row, word in enumerate(answer.split())]
    if not all(0 <= column < len(regions) for _, column in stars):
        return False
    apart = all(b != d and (abs(a - c) > 1 or abs(b - d) > 1) for (a, b), (c, d) in combinations(stars, 2))
    return len(stars) == len(regions) == len({regions[r][c] for r, c in stars}) and apart


def campsite_again(puzzle: Any, answer: str) -> bool:
    tents, trees = ones(answer), [tuple(tree) for tree in puzzle["trees"]]
    sums = [sum(row) for row in numbers(answer)], [sum(column) for column in zip(*numbers(answer))]

    def paired(trees: list[Any], tents: set[Any]) -> bool:
        if not trees:
            return not tents
        near = [tent for tent in tents if abs(tent[0] - trees[0][0]) + abs(tent[1] - trees[0][1]) == 1]
        return any(paired(trees[1:], tents - {tent}) for tent in near)

    apart = all(abs(a - c) > 1 or abs(b - d) > 1 for (a, b), (c, d) in combinations(tents, 2))
    return sums == (puzzle["rows"], puzzle["columns"]) and apart and not tents & set(trees) and paired(trees, tents)


def arrow_maze_again(puzzle: Any, answer: str) -> bool:
    """Every arrow is walked back to its number."""
    grid, rows = puzzle["grid"], [line.split() for line in answer.splitlines()]
    back = {"U": (1, 0), "D": (-1, 0), "L": (0, 1), "R": (0, -1)}
    count: Counter[tuple[int, int]] = Counter()
    for r, row in enumerate(grid):
        for c, value in enumerate(row):
            if value >= 0:
                if rows[r][c] != str(value):
                    return False
                continue
            (dr, dc), at = back[rows[r][c]], (r, c)
            while 0 <= at[0] < len(grid) and 0 <= at[1] < len(grid) and rows[at[0]][at[1]] == rows[r][c]:
                at = at[0] + dr, at[1] + dc
            if not (0 <= at[0] < len(grid) and 0 <= at[1] < len(grid)):
                return False
            count[at] += 1
    return all(count[r, c] == max(value, 0) for r, row in enumerate(grid) for c, value in enumerate(row))


def word_search_again(puzzle: Any, answer: str) -> bool:
    lines = [line.split(":") for line in answer.splitlines()]
    if sorted(word.lower() for word, _ in lines) != sorted(puzzle["words"]):
        return False
    for word, place in lines:
        if not re.fullmatch(r" \([0-9]+, [0-9]+\) to \([0-9]+, [0-9]+\)", place):
            return False
        a, b, c, d = (int(number) - 1 for number in re.findall(r"[0-9]+", place))
        found = [
            all(
                0 <= a + i * dr < len(puzzle["rows"])
                and 0 <= b + i * dc < len(puzzle["rows"])
                and puzzle["rows"][a + i * dr][b + i * dc] == letter
                for i, letter in enumerate(word.upper())
            )
            for dr, dc in product((-1, 0, 1), repeat=2)
            if (a + (len(word) - 1) * dr, b + (len(word) - 1) * dc) == (c, d)
        ]
        if not any(found):
            return False
    return True


def math_path_again(puzzle: Any, answer: str) -> bool:
    pattern = re.escape(puzzle["equation"]).replace(r"\?", "[0-9]")
    if not re.fullmatch(pattern, answer) or re.search(r"\b0[0-9]", answer):
        return False
    left, right = answer.split("=")
    return eval(left) == int(right)


def time_sequence_again(puzzle: Any, answer: str) -> bool:
    day, clock = answer.split()
    hours, minutes = clock.split(":")
    begins = 60 * int(hours) + int(minutes)
    used = set(range(begins, begins + puzzle["minutes"]))
    taken = {minute for busy in puzzle["busy"].values() for start, end in busy[day] for minute in range(start, end)}
    return int(minutes) < 60 and len(minutes) == 2 and used <= set(range(540, 1020)) - taken


AGAIN: dict[str, Callable[[Any, str], bool]] = {
    "arrow_maze": arrow_maze_again,
    "campsite": campsite_again,
    "hitori": hitori_again,
    "math_path": math_path_again,
    "norinori": norinori_again,
    "number_wall": number_wall_again,
    "star_placement": star_placement_again,
    "thermometers": thermometers_again,
    "time_sequence": time_sequence_again,
    "word_search": word_search_again,
}


def test_each_own_kind_has_one_solution_or_is_checked_again():
    assert set(AGAIN) == {name for name in OWN_NAMES if not KINDS[name].is_unique}


def every_grid(values: Iterable[int], rows: int, columns: int) -> Iterable[str]:
    for drawn in product(values, repeat=rows * columns):
        yield "\n".join(" ".join(map(str, drawn[r * columns : (r + 1) * columns])) for r in range(rows))


def every_latin_square(size: int) -> Iterable[str]:
    for rows in product(permutations(range(1, size + 1)), repeat=size):
        if all(len(set(column)) == size for column in zip(*rows)):
            yield "\n".join(" ".join(map(str, row)) for row in rows)


def every_survo() -> Iterable[str]:
    for drawn in permutations(range(1, 7)):
        yield "\n".join(" ".join(map(str, drawn[r : r + 3])) for r in (0, 3))


def every_word_order(puzzle: Any) -> Iterable[str]:
    return (", ".join(words) for words in permutations(puzzle["words"]))


CANDIDATES: dict[str, Callable[[Any], Iterable[str]]] = {
    "boolean_expressions": lambda puzzle: (
        ", ".join(f"{letter}: {value}" for letter, value in zip("ABCD", values))
        for values in product(("true", "false"), repeat=4)
    ),
    "calcudoku": lambda puzzle: every_latin_square(3),
    "dyck_language_errors": lambda puzzle: map(str, range(20)),
    "kukurasu": lambda puzzle: every_grid((0, 1), 3, 3),
    "skyscrapers": lambda puzzle: every_latin_square(3),
    "survo": lambda puzzle: every_survo(),
    "web_of_lies": lambda puzzle: (
        ", ".join(f"{name}: {value}" for name, value in zip(puzzle["said"], values))
        for values in product(("truth", "lie"), repeat=5)
    ),
    "word_sorting": every_word_order,
}


@pytest.mark.parametrize("kind", CANDIDATES)
def test_of_all_possible_answers_one_alone_is_paid_where_one_solution_is_promised(kind):
    for seed in range(3):
        row = row_of(kind, 1, seed)
        puzzle = json.loads(row["info"]["puzzle"])
        solved = [answer for answer in CANDIDATES[kind](puzzle) if paid_answer(answer, kind, puzzle) == 1.0]
        assert [answer.split() for answer in solved] == [row["answer"].split()]


@pytest.mark.parametrize("kind", ["binario", "kakuro", "numbrix", "cryptarithm"])
def test_a_plain_search_finds_the_one_solution_and_no_other(kind):
    plain = {"binario": plain_binario, "kakuro": plain_kakuro, "numbrix": plain_numbrix, "cryptarithm": plain_sum}[kind]
    for seed in range(3):
        row = row_of(kind, 1, seed)
        found = list(plain(json.loads(row["info"]["puzzle"])))
        assert [answer.split() for answer in found] == [row["answer"].split()]


def written(values: list[int], columns: int) -> str:
    rows = [values[start : start + columns] for start in range(0, len(values), columns)]
    return "\n".join(" ".join(map(str, row)) for row in rows)


def plain_binario(puzzle: Any) -> Iterable[str]:
    lines = [line for line in product((0, 1), repeat=4) if sum(line) == 2]  # which never has three alike in a row
    fitting = [[line for line in lines if all(g in (None, v) for g, v in zip(given, line))] for given in puzzle["grid"]]
    for rows in product(*fitting):
        if all(column in lines for column in zip(*rows)):
            yield written([value for row in rows for value in row], 4)


def plain_kakuro(puzzle: Any) -> Iterable[str]:
    walls = {tuple(cell) for cell in puzzle["walls"]}
    ways = []
    for target, run in puzzle["runs"]:
        cells = [tuple(cell) for cell in run]
        ways.append([dict(zip(cells, p)) for p in permutations(range(1, 10), len(cells)) if sum(p) == target])

    def joined_ways(known: dict[Any, int], left: list[Any]) -> Iterable[dict[Any, int]]:
        if not left:
            yield known
            return
        for way in left[0]:
            if all(known.get(cell, value) == value for cell, value in way.items()):
                yield from joined_ways(known | way, left[1:])

    given = {(r, c): value for r, row in enumerate(puzzle["grid"]) for c, value in enumerate(row) if value}
    for full in joined_ways(given, ways):
        yield written([0 if (r, c) in walls else full[r, c] for r in range(3) for c in range(3)], 3)


def plain_numbrix(puzzle: Any) -> Iterable[str]:
    grid = puzzle["grid"]

    def walked(way: list[tuple[int, int]]) -> Iterable[list[tuple[int, int]]]:
        r, c = way[-1]
        if grid[r][c] not in (0, len(way)):
            return
        if len(way) == 9:
            yield way
        for near in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if min(near) >= 0 and max(near) < 3 and near not in way:
                yield from walked([*way, near])

    for row, column in product(range(3), repeat=2):
        for way in walked([(row, column)]):
            if all(grid[r][c] in (0, i + 1) for i, (r, c) in enumerate(way)):
                yield written([way.index((r, c)) + 1 for r in range(3) for c in range(3)], 3)


def plain_sum(puzzle: Any) -> Iterable[str]:
    one, other = puzzle["addends"]
    total, known = puzzle["total"], puzzle["known"]
    letters = sorted(set(one + other + total))
    for a, b in product(range(10, 100), repeat=2):
        text = f"{a}{b}{a + b}"
        value = dict(zip(one + other + total, text))
        same = len(str(a + b)) == len(total) and all(value[x] == y for x, y in zip(one + other + total, text))
        if same and len(set(value.values())) == len(letters) and all(value[x] == str(y) for x, y in known.items()):
            yield ", ".join(f"{letter} = {value[letter]}" for letter in letters)


TWO = [
    ("arrow_maze", {"grid": [[1, -1], [-1, 1]]}, ["1 R\nL 1", "1 U\nD 1"], ["1 R\nD 1", "1 D\nL 1"]),
    (
        "campsite",
        {"trees": [[0, 0], [1, 1], [2, 2]], "rows": [1, 1, 1], "columns": [1, 1, 1]},
        [],
        ["0 1 0\n0 0 1\n1 0 0"],
    ),
    (
        "campsite",
        {"trees": [[0, 1], [2, 1]], "rows": [1, 0, 1], "columns": [1, 0, 1]},
        ["1 0 0\n0 0 0\n0 0 1", "0 0 1\n0 0 0\n1 0 0"],
        ["1 0 0\n0 0 0\n1 0 0"],
    ),
    (
        "hitori",
        {"grid": [[1, 1, 2], [2, 3, 1], [3, 2, 3]]},
        ["1 0 0\n0 0 0\n0 0 1", "0 1 0\n0 0 0\n0 0 1"],
        ["1 1 0\n0 0 0\n0 0 1", "0 0 0\n0 0 0\n0 0 0"],
    ),
    (
        "math_path",
        {"equation": "1? + ?2 = 35"},
        ["13 + 22 = 35", "13+22=35"],
        ["12 + 23 = 35", "13 + 32 = 35", "13 - 22 = 35"],
    ),
    ("math_path", {"equation": "? + ? = 5"}, ["1 + 4 = 5", "0 + 5 = 5"], ["2 + 2 = 5", "10 - 5 = 5"]),
    ("norinori", {"regions": [[0, 0], [0, 0]]}, ["1 1\n0 0", "0 0\n1 1", "10\n10"], ["1 0\n0 1", "1 1\n1 0"]),
    (
        "number_wall",
        {"grid": [[2, 0, 0], [0, 0, 0], [0, 0, 2]]},
        ["0 0 1\n1 1 1\n1 0 0", "0 1 1\n0 1 0\n1 1 0"],
        ["0 0 1\n0 1 1\n1 1 0"],
    ),
    (
        "star_placement",
        {"regions": [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]]},
        ["2 4 1 3", "3, 1, 4, 2"],
        ["1 2 3 4", "2 4 1", "2 4 1 5"],
    ),
    (
        "thermometers",
        {"thermometers": [[[0, 0]], [[0, 1]], [[1, 0]], [[1, 1]]], "rows": [1, 1], "columns": [1, 1]},
        ["1 0\n0 1", "01\n10"],
        ["1 1\n0 0", "1 0\n1 0"],
    ),
    (
        "time_sequence",
        {"minutes": 60, "days": ["Monday"], "busy": {"Ada": {"Monday": [[600, 1000]]}}},
        ["Monday 9:00", "monday, 09:00", "Monday at 9:00."],
        ["Monday 9:01", "Monday 16:41", "Tuesday 9:00", "Monday 8:60"],
    ),
    (
        "word_search",
        {"rows": ["CATX", "AZOB", "TVKL", "HUIY"], "words": ["cat"]},
        ["cat: (1, 1) to (1, 3)", "CAT (1,1) - (3,1)"],
        ["cat: (1, 3) to (1, 1)", "cat: (1, 1) to (3, 3)", "cat: (1, 1) to (1, 9)"],
    ),
    (
        "word_sorting",
        {"words": ["ab", "a", "b"], "alphabet": "bacdefghijklmnopqrstuvwxyz"},
        ["b, a, ab", "b -> a -> ab"],
        ["b, ab, a", "a, ab, b", "b, a"],
    ),
    ("dyck_language", {"brackets": "([]<"}, ["([]<>)", "( [ ] < > )"], ["([]<)>", "([]<>)()", "([]<>", "[[]<>]"]),
    (
        "space_reasoning",
        {"places": [["A1", "B2"]], "start": "A1", "facing": "east", "moves": [1, "around"]},
        ["B2, west", "b2 West"],
        ["A1, west", "B2, east", "B2"],
    ),
    (
        "operation",
        {"operations": {"@": ["product", 9, 1]}, "expression": ["@", 1, 2]},
        ["-7", "−7"],
        ["7", "--7", "-7.0"],
    ),
    (
        "goods_exchange",
        {"had": {"Ada": "hat", "Ben": "jar"}, "exchanges": [["mixed", "Ada", "hat"], ["goods", "hat", "jar"]]},
        ["Ada: jar, Ben: hat", '{"Ada": "jar", "Ben": "hat"}', "Ada = the jar\nBen = the hat"],
        ["Ada: hat, Ben: jar", "Ada: jar"],
    ),
]


@pytest.mark.parametrize(("kind", "puzzle", "right", "wrong"), TWO)
def test_each_of_several_solutions_is_paid_in_whatever_usual_form(kind, puzzle, right, wrong):
    assert [paid_answer(answer, kind, puzzle) for answer in right] == [1.0] * len(right)
    assert [paid_answer(answer, kind, puzzle) for answer in wrong] == [0.0] * len(wrong)


NEAR = [
    ("arrow_maze", {"grid": [[1, -1], [-1, 1]]}, "1 R", "1 rows, not 2"),
    ("arrow_maze", {"grid": [[0, -1], [0, 0]]}, "0 D\n0 0", "an arrow belongs to no number"),
    ("binario", {"grid": [[None, None], [None, None]]}, "2 3\n3 2", "neither 0 nor 1"),
    ("binario", {"grid": [[0, None], [None, None]]}, "1 0\n0 1", "row 1, column 1 is 0 in the puzzle"),
    (
        "campsite",
        {"trees": [[0, 0], [2, 2]], "rows": [1, 0, 1], "columns": [1, 0, 1]},
        "1 0 0\n0 0 0\n0 0 1",
        "is a tree",
    ),
    ("campsite", {"trees": [[0, 0], [1, 1]], "rows": [1, 1], "columns": [1, 1]}, "0 1\n1 0", "touches another"),
    (
        "campsite",
        {"trees": [[0, 0], [0, 3]], "rows": [1, 0, 0, 1], "columns": [0, 1, 0, 1]},
        "0 1 0 0\n0 0 0 0\n0 0 0 0\n0 0 0 1",
        "not every tree",
    ),
    ("cipher", {"text": "IFMMP", "steps": [["shift", 1]]}, "HELL0", "no text"),
    (
        "cryptarithm",
        {"addends": ["AB", "CD"], "total": "EF", "known": {}},
        "A = 0, B = 8, C = 2, D = 9, E = 3, F = 7",
        "a number begins with 0",
    ),
    (
        "kakuro",
        {"walls": [[0, 0]], "runs": [[5, [[0, 1], [1, 1]]], [5, [[1, 0], [1, 1]]]], "grid": [[0, 1], [0, 0]]},
        "0 4\n4 1",
        "row 1, column 2 is 1 in the puzzle",
    ),
    ("kukurasu", {"row_sums": [1, 2], "column_sums": [1, 2], "known": [[0, 0, 0]]}, "1 0\n0 1", "was given"),
    ("math_path", {"equation": "?5 + 1 = ?6"}, "05 + 1 = 06", "begins with 0"),
    ("norinori", {"regions": [[0, 0], [1, 1]]}, "1 1\n0 0", "region B has 0 shaded cells"),
    ("number_wall", {"grid": [[0, 0, 0], [0, 0, 0], [0, 0, 1]]}, "1 1 1\n1 1 1\n1 1 0", "2x2 block"),
    ("number_wall", {"grid": [[1, 0, 0], [0, 1, 0], [0, 0, 0]]}, "1 1 1\n1 0 1\n1 1 1", "a cell with a number is wall"),
    ("survo", {"grid": [[0, 0], [0, 0]], "row_sums": [3, 7], "column_sums": [4, 6]}, "2 1\n2 5", "each number once"),
    (
        "thermometers",
        {"thermometers": [[[0, 0], [0, 1]], [[1, 0], [1, 1]]], "rows": [1, 1], "columns": [1, 1]},
        "0 1\n1 0",
        "has a gap",
    ),
    ("thermometers", {"thermometers": [[[0, 0]]], "rows": [1], "columns": [1]}, "2", "neither 0 nor 1"),
    ("word_search", {"rows": ["CAT", "XUY", "ZZB"], "words": ["cat", "tub"]}, "cat: (1, 1) to (1, 3)", "1 of 2 words"),
]


@pytest.mark.parametrize(("kind", "puzzle", "answer", "reason"), NEAR)
def test_an_answer_that_breaks_one_rule_alone_is_told_which(kind, puzzle, answer, reason):
    found = paid_answer(answer, kind, puzzle)
    assert found == 0.0 and reason in getattr(found, "reason", "")


# 5. nothing else is paid


@pytest.mark.parametrize("kind", KINDS)
def test_empty_echoed_hedged_cut_and_repeated_answers_are_paid_nothing(kind):
    rows = [
        row
        for row in (row_of(kind, difficulty, seed) for difficulty in (1, 3) for seed in range(4))
        if not is_told(row)
    ]
    assert len(rows) >= 4
    for row in rows:
        right = row["answer"]
        other = row_of(kind, row["info"]["difficulty"], row["info"]["seed"] + 5)["answer"]
        replies = [
            "",
            " ",
            "I don't know.",
            right,
            row["question"],
            f"<answer>{row['question']}</answer>",
            "<answer></answer>",
            f"<answer>{right}",
            f"\\boxed{{{right}",
            f"<think><answer>{right}</answer>",
            f"<think>{right}</think>",
            f"<answer>{right} or {other}</answer>",
            f"<answer>{other} or {right}</answer>",
            f"<answer>{right}, {other}</answer>",
            f"<answer>{other}\n{right}</answer>",
            f"<answer>{right}\n{right}</answer>",
            f"<answer>{right}</answer> or <answer>{other} ?</answer>",
        ]
        assert [reply for reply in replies if paid(reply, row)] == []


MALFORMED = [
    "?",
    "0",
    "[]",
    "{}",
    "null",
    "NaN",
    "Infinity",
    "[[NaN]]",
    "[[1e999]]",
    "[[true]]",
    '[["1"]]',
    "[[[1]]]",
    "{[1]}",
    '{"A": NaN}',
    '{"A": [1]}',
    '{"A": {"A": 1}}',
    "[" * 9_000,
    "(" * 9_000 + "1" + ")" * 9_000,
    "[[" + "9" * 9_000 + "]]",
    "9" * 19_000,
    "-" * 19_000,
    "1 " * 9_500,
    "1\n" * 9_500,
    "a" + " " * 19_000 + "b",
    "A: true, " * 2_000,
    "½ ² ٣ ١",
    "１ ２ ３",
    "\x00",
    "\u202e1",
    "A" * 19_000,
    "9**9**9**9",
    "__import__('os').system('true')",
    "1 = 1",
    "=",
    ",",
    ":",
    "-1",
    "+",
    "- -",
    "Ada: ",
    "(0, 0) to (0, 0)",
    "cat: (0, 0) to (0, 0)",
    "Monday 99:99",
    "Monday 24:00",
    "A0, north",
    "1" * (MAX_CHARS + 1),
]


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_answers_are_paid_nothing_and_never_raise(kind):
    row = row_of(kind, 1, 3)
    right = row["answer"]
    wide = right.translate(str.maketrans("0123456789", "０１２３４５６７８９"))
    malformed = [*MALFORMED, f"{right} {'9' * 30}", right + "\n" + "x" * 9_000, right[: len(right) // 2]]
    malformed += [wide] if wide != right else []
    assert [answer for answer in malformed if paid(f"<answer>{answer}</answer>", row)] == []


@pytest.mark.parametrize("kind", OWN_NAMES)
def test_an_answer_of_odd_tokens_never_breaks_a_good_puzzle(kind):
    rng, row = random.Random(kind), row_of(kind, 1, 2)
    tokens = [
        *re.findall(r"[A-Za-z]+|[0-9]+|\S", row["answer"]),
        "-1",
        "99999999",
        "0",
        "x",
        ".",
        "[",
        "]",
        "\n",
        " ",
        "½",
        "=",
    ]
    for _ in range(60):
        answer = "".join(rng.choice(tokens) + rng.choice((" ", "", "\n", ", ")) for _ in range(rng.randint(1, 40)))
        assert paid(f"<answer>{answer}</answer>", row) in (0.0, 1.0)


async def test_a_rollout_of_the_right_answer_is_paid_and_a_broken_puzzle_is_a_fault():
    env = load_environment(num_eval_examples=2)
    row = env.eval_rows()[0]
    results = await env.generate([row], vf.ScriptedClient([f"<answer>{row['answer']}</answer>"]), "scripted")
    assert results["outputs"][0]["reward"] == 1.0
    row = {**row, "info": {**row["info"], "puzzle": "{}"}}
    results = await env.generate([row], vf.ScriptedClient(["<answer>1</answer>"]), "scripted")
    assert results["outputs"][0]["reward"] is None


# The search that promises single solutions


def test_search_finds_every_solution_and_gives_up_after_its_steps():
    search = Search([range(1, 7)] * 3)
    search.different(range(3))
    search.rule(range(3), sums_to(10, [1, 1, 1], 1, 6))
    wanted = sorted(list(drawn) for drawn in permutations(range(1, 7), 3) if sum(drawn) == 10)
    assert sorted(search.solutions(limit=99)) == wanted
    assert search.solutions(limit=9, given={0: 1, 1: 1}) == []
    with pytest.raises(TooManySteps):
        search.solutions(limit=99, steps=20)


def test_clues_leave_one_solution_also_when_the_search_gives_up(monkeypatch):
    search = Search([range(4)] * 6)
    search.different(range(4))
    known = clues(random.Random(1), search, [0, 1, 2, 3, 0, 0])
    assert search.solutions(limit=9, given={v: [0, 1, 2, 3, 0, 0][v] for v in known}) == [[0, 1, 2, 3, 0, 0]]
    monkeypatch.setattr(search, "solutions", lambda **asked: search_within(search, 5, **asked))
    assert len(clues(random.Random(1), search, [0, 1, 2, 3, 0, 0])) >= len(known)


def search_within(search: Search, steps: int, **asked: Any) -> list[list[int]]:
    return Search.solutions(search, steps=steps, **asked)
