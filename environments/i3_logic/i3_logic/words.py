"""Words: sorted by an alphabet of their own, and hidden in a grid of letters."""

from __future__ import annotations

import random
import re
import string

import verifiers as vf
from i3_logic.board import Cell, at, cells_of
from i3_logic.kind import LogicKind
from verifiers.rubrics.logic_task import Puzzle, read_names, read_number

_WORDS = """
anchor apple arrow autumn bakery barrel basket beacon beetle bottle branch breeze bridge bronze bucket butter cabin
camel candle canyon carpet castle cellar cherry circle clover cobalt copper cotton cradle crystal dagger daisy
desert dragon eagle ember engine fabric falcon feather fennel fiddle finger forest fossil fountain garden garlic
ginger glacier goblet granite hammer harbor helmet hollow honey island ivory jacket jungle kettle kitten ladder
lagoon lantern lemon lizard magnet maple marble market meadow mirror monkey mortar mountain needle nickel oasis
onion orchid oyster paddle palace paper parrot pebble pepper pencil pillow planet pocket prairie puddle quarry
quiver rabbit raven ribbon river rocket saddle salmon sandal shadow shovel silver spider spring stable stone summer
tailor temple thicket thunder ticket tiger timber tunnel turtle valley velvet violin walnut weather whistle willow
window winter wizard yellow zephyr zipper
"""
WORDS = _WORDS.split()


class WordSorting(LogicKind):
    """Words in the order of an alphabet of its own."""

    name = "word_sorting"
    parts = ("words", "alphabet")
    answer_form = "Write the words in order, with commas between."
    grows = "words: 5, 8, 11, 14, 17; letters that have moved in the alphabet: 1, 3, 6, 12, all"
    is_unique = True
    example = {"words": ["apple", "zebra", "mango"], "alphabet": "z" + string.ascii_lowercase[:-1]}
    example_answer = "zebra, apple, mango"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        alphabet = list(string.ascii_lowercase)
        for letter in rng.sample(alphabet, (1, 3, 6, 12, 26)[difficulty - 1]):
            alphabet.remove(letter)
            alphabet.insert(rng.randrange(26), letter)
        words = rng.sample(WORDS, 2 + 3 * difficulty)
        found = sorted(words, key=lambda word: [alphabet.index(letter) for letter in word])
        return {"words": words, "alphabet": "".join(alphabet)}, ", ".join(found)

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Sort these words as a dictionary would whose alphabet has the order given here: by the first letter, then "
            "by the second, and so on; a word comes before the longer ones that begin with it."
        )

    def show(self, puzzle: Puzzle) -> str:
        return f"Alphabet: {' '.join(puzzle['alphabet'])}\nWords: {', '.join(puzzle['words'])}"

    def check(self, puzzle: Puzzle, answer: str) -> None:
        words = read_names(answer, puzzle["words"])
        keys = [[puzzle["alphabet"].index(letter) for letter in word] for word in words]
        for one, other, first, second in zip(keys, keys[1:], words, words[1:]):
            if one > other:
                raise vf.WrongAnswer(f"{first} does not come before {second}")


class WordSearch(LogicKind):
    """Where words are hidden in a grid of letters."""

    name = "word_search"
    parts = ("rows", "words")
    answer_form = (
        "Write one line for each word, with the (row, column) of its first and of its last letter, like: "
        "word: (1, 2) to (1, 5)."
    )
    grows = "side of the grid: 6, 7, 8, 10, 12; words: 3, 4, 5, 6, 8; directions: 2, 4, 4, 8, 8"
    example = {"rows": ["CATX", "QZOB", "WVKL", "HUIY"], "words": ["cat"]}
    example_answer = "cat: (1, 1) to (1, 3)"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size, how_many = (6, 7, 8, 10, 12)[difficulty - 1], (3, 4, 5, 6, 8)[difficulty - 1]
        ways = WAYS[: (2, 4, 4, 8, 8)[difficulty - 1]]
        grid, ends = dict[Cell, str](), dict[str, tuple[Cell, Cell]]()
        for word in rng.sample([word for word in WORDS if len(word) <= 7], len(WORDS) // 2):
            for _ in range(20):
                start, (dr, dc) = (rng.randrange(size), rng.randrange(size)), rng.choice(ways)
                cells = [(start[0] + i * dr, start[1] + i * dc) for i in range(len(word))]
                if all(0 <= r < size and 0 <= c < size and grid.get((r, c), letter) == letter
                       for (r, c), letter in zip(cells, word)):  # fmt: skip
                    grid |= dict(zip(cells, word))
                    ends[word] = cells[0], cells[-1]
                    break
            if len(ends) == how_many:
                break
        letters = [grid.get(cell) or rng.choice(string.ascii_lowercase) for cell in cells_of(size, size)]
        rows = ["".join(letters[start : start + size]).upper() for start in range(0, size * size, size)]
        words = rng.sample(sorted(ends), how_many)
        lines = [
            f"{word}: ({a + 1}, {b + 1}) to ({c + 1}, {d + 1})" for word in words for (a, b), (c, d) in [ends[word]]
        ]
        return {"rows": rows, "words": words}, "\n".join(lines)

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Find each of the words in this grid of letters. A word stands in a straight line, in any of the eight "
            "directions, also backwards. Rows are counted from the top, columns from the left, from 1."
        )

    def show(self, puzzle: Puzzle) -> str:
        return "\n".join([*map(" ".join, puzzle["rows"]), f"Words: {', '.join(puzzle['words'])}"])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        rows, wanted = puzzle["rows"], {word.casefold(): word for word in puzzle["words"]}
        found = set[str]()
        for line in filter(str.strip, answer.splitlines()):
            read = len(line) <= 200 and re.fullmatch(_PLACED, line.strip())
            word = wanted.get(read[1].casefold()) if read else None
            if not read or word is None or word in found:
                raise vf.WrongAnswer(f"{line.strip()[:60]!r} is no place of a word, or of one that was placed before")
            found.add(word)
            start, end = [(read_number(read[n]) - 1, read_number(read[n + 1]) - 1) for n in (2, 4)]
            if _between(rows, start, end) != word.upper():
                raise vf.WrongAnswer(f"{word} does not stand between {at(start)} and {at(end)}")
        if len(found) < len(wanted):
            raise vf.WrongAnswer(f"the answer has {len(found)} of {len(wanted)} words")


WAYS = ((0, 1), (1, 0), (1, 1), (-1, 1), (0, -1), (-1, 0), (-1, -1), (1, -1))
_PLACE = r"\(?\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)?"
_PLACED = rf"[-*\s]*([A-Za-z]+)\s*:?\s*{_PLACE}\s*(?:to|,|;|-|->|→)?\s*{_PLACE}\.?"


def _between(rows: list[str], start: Cell, end: Cell) -> str:
    """The letters from start to end, where these are cells of the grid and on one line; else nothing."""
    (a, b), (c, d), size = start, end, len(rows)
    length = max(abs(c - a), abs(d - b))
    if not all(0 <= n < size for n in (*start, *end)) or {abs(c - a), abs(d - b)} - {0, length}:
        return ""
    dr, dc = (c > a) - (c < a), (d > b) - (d < b)
    return "".join(rows[a + i * dr][b + i * dc] for i in range(length + 1))
