"""Stories to follow: objects that change, and a walk through a town."""

from __future__ import annotations

import random
import re
from typing import Any

import verifiers as vf
from i3_logic.kind import LogicKind, read_integers
from verifiers.rubrics.logic_task import Puzzle

COLOURS = ("red", "green", "blue", "white", "black")
MATERIALS = ("wooden", "glass", "metal", "paper")
THINGS = ("cup", "box", "ball", "toy")
FACING = ("north", "east", "south", "west")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
TURNS = {"right": 1, "around": 2, "left": 3}


class ObjectProperties(LogicKind):
    """Objects that are painted, thrown away and bought; how many of some sorts there are in the end."""

    name = "object_properties"
    parts = ("objects", "changes", "asked")
    answer_form = "Write the three numbers in the order of the questions, separated by spaces."
    grows = "objects: 5, 8, 11, 14, 17; changes: 2, 4, 6, 8, 10"
    is_unique = True
    example = {
        "objects": [["red", "glass", "cup"], ["blue", "wooden", "box"]],
        "changes": [["paint", "blue", "red"]],
        "asked": [["red", None, None], [None, "glass", None], ["blue", None, "box"]],
    }
    example_answer = "2 1 0"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        def drawn() -> list[str]:
            return [rng.choice(COLOURS), rng.choice(MATERIALS), rng.choice(THINGS)]

        while True:
            left = objects = [drawn() for _ in range(2 + 3 * difficulty)]
            changes: list[list[Any]] = []
            while left and len(changes) < 2 * difficulty:
                changes.append(self._change(rng, rng.choice(left), drawn()))
                left = _changed(left, changes[-1:])
            asked = [_partly(rng, drawn(), 1), _partly(rng, drawn(), 1), _partly(rng, drawn(), 2)]
            numbers = [_matching(left, one) for one in asked]
            if difficulty < len(left) < 10 * difficulty + 10 and numbers[0] and numbers[1] and asked[0] != asked[1]:
                puzzle = {"objects": objects, "changes": changes, "asked": asked}
                return puzzle, " ".join(map(str, numbers))

    def _change(self, rng: random.Random, there: list[str], new: list[str]) -> list[Any]:
        """A change that concerns an object which is there, so that none says nothing."""
        kind = rng.choice(("paint", "paint", "lose", "buy", "double"))
        if kind == "paint":
            return [kind, there[0], rng.choice([colour for colour in COLOURS if colour != there[0]])]
        return [kind, rng.randint(2, 4), new] if kind == "buy" else [kind, _partly(rng, there, 2)]

    def rules(self, puzzle: Puzzle) -> str:
        return "Somebody has some objects, and then things happen to them, one after the other."

    def show(self, puzzle: Puzzle) -> str:
        lines = ["At first there are: " + ", ".join(f"a {' '.join(one)}" for one in puzzle["objects"]) + "."]
        for kind, *rest in puzzle["changes"]:
            lines.append(
                {
                    "paint": lambda a, b: f"Everything {a} is painted {b}.",
                    "lose": lambda a: f"{_named(a)} is thrown away.",
                    "double": lambda a: f"For {_named(a).replace('Every', 'every')}, one more just like it is bought.",
                    "buy": lambda n, a: f"{n} more of this sort are bought: {' '.join(a)}.",
                }[kind](*rest)
            )
        asked = [f"{n}. How many are there in the end of: {_named(one)}?" for n, one in enumerate(puzzle["asked"], 1)]
        return "\n".join([*lines, *(line.replace("Every ", "") for line in asked)])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        left = _changed(puzzle["objects"], puzzle["changes"])
        numbers = [_matching(left, one) for one in puzzle["asked"]]
        for place, (found, wanted) in enumerate(zip(read_integers(answer, len(numbers)), numbers), 1):
            if found != wanted:
                raise vf.WrongAnswer(f"the answer to question {place} is not {found}")


class SpaceReasoning(LogicKind):
    """A walk through a town; where it ends and which way one then looks."""

    name = "space_reasoning"
    parts = ("places", "start", "facing", "moves")
    answer_form = "Write the name of the place and the direction, like: K7, north."
    grows = "side of the town: 3, 4, 5, 6, 7; moves: 6, 9, 12, 15, 18"
    is_unique = True
    example = {"places": [["A1", "B2"], ["C3", "D4"]], "start": "A1", "facing": "east", "moves": [1, "right", 1]}
    example_answer = "D4, south"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        size, how_many = 2 + difficulty, 3 + 3 * difficulty
        names = rng.sample(
            [f"{letter}{figure}" for letter in "BCDFGHJKLMNPQRSTVWXZ" for figure in range(2, 10)], size**2
        )
        places = [names[start : start + size] for start in range(0, size * size, size)]
        cell, facing = (rng.randrange(size), rng.randrange(size)), rng.randrange(4)
        puzzle: Puzzle = {"places": places, "start": places[cell[0]][cell[1]], "facing": FACING[facing], "moves": []}
        while len(puzzle["moves"]) < how_many:
            steps = [n for n in range(1, size) if _inside(_gone(cell, facing, n), size)]
            was_turn = puzzle["moves"] and isinstance(puzzle["moves"][-1], str)
            if steps and (was_turn or rng.random() < 0.3):
                puzzle["moves"].append(rng.choice(steps))
                cell = _gone(cell, facing, puzzle["moves"][-1])
            else:
                turn = rng.choice(("right", "left", "around"))
                puzzle["moves"].append(turn)
                facing = (facing + TURNS[turn]) % 4
        return puzzle, f"{places[cell[0]][cell[1]]}, {FACING[facing]}"

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "This is the map of a town, north at the top; a step leads from a place to the next one straight ahead. "
            "Follow the walk. Where does it end, and which way does one look then?"
        )

    def show(self, puzzle: Puzzle) -> str:
        moves = [f"turn {move}" if isinstance(move, str) else f"go {move}" for move in puzzle["moves"]]
        head = f"Start at {puzzle['start']}, looking {puzzle['facing']}. Then: {', '.join(moves)}."
        return "\n".join([*map(" ".join, puzzle["places"]), head])

    def check(self, puzzle: Puzzle, answer: str) -> None:
        read = re.fullmatch(r"\s*([A-Za-z][0-9])\s*[,;]?\s+(?:looking\s+|facing\s+)?([A-Za-z]{4,5})\s*\.?\s*", answer)
        if not read:
            raise vf.WrongAnswer("the answer is no place and direction")
        places, facing = puzzle["places"], FACING.index(puzzle["facing"])
        cell = next((r, row.index(puzzle["start"])) for r, row in enumerate(places) if puzzle["start"] in row)
        for move in puzzle["moves"]:
            if isinstance(move, str):
                facing = (facing + TURNS[move]) % 4
            else:
                cell = _gone(cell, facing, move)
        if read[1].upper() != places[cell[0]][cell[1]] or read[2].lower() != FACING[facing]:
            raise vf.WrongAnswer(f"the walk does not end at {read[1].upper()}, looking {read[2].lower()}")


def _gone(cell: tuple[int, int], facing: int, steps: int) -> tuple[int, int]:
    return cell[0] + steps * MOVES[facing][0], cell[1] + steps * MOVES[facing][1]


def _inside(cell: tuple[int, int], size: int) -> bool:
    return 0 <= cell[0] < size and 0 <= cell[1] < size


def _partly(rng: random.Random, sort: list[str], how_many: int) -> list[str | None]:
    """A sort of which only so many properties matter, the others being None."""
    kept = rng.sample(range(3), how_many)
    return [value if place in kept else None for place, value in enumerate(sort)]


def _named(sort: list[str | None]) -> str:
    colour, material, thing = sort
    return " ".join(["Every", *filter(None, (colour, material)), thing or "object"])


def _is(one: list[str], sort: list[str | None]) -> bool:
    return all(wanted in (None, value) for value, wanted in zip(one, sort))


def _matching(objects: list[list[str]], sort: list[str | None]) -> int:
    return sum(_is(one, sort) for one in objects)


def _changed(objects: list[list[str]], changes: list[list[Any]]) -> list[list[str]]:
    for kind, *rest in changes:
        if kind == "paint":
            objects = [[rest[1] if colour == rest[0] else colour, *others] for colour, *others in objects]
        elif kind == "lose":
            objects = [one for one in objects if not _is(one, rest[0])]
        elif kind == "double":
            objects = objects + [one for one in objects if _is(one, rest[0])]
        else:
            objects = objects + [rest[1]] * rest[0]
    return objects
