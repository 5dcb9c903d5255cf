"""Cipher: a text that was enciphered in one step or several."""

from __future__ import annotations

import random
import re
import string
from typing import Any

import verifiers as vf
from i3_logic.kind import LogicKind
from i3_logic.words import WORDS
from verifiers.rubrics.logic_task import Puzzle


class Cipher(LogicKind):
    """Read a text that was enciphered step by step."""

    name = "cipher"
    parts = ("text", "steps")
    answer_form = "Write the text before the first step, letters only."
    grows = "steps: 1, 1, 2, 2, 3; words of the text: 2, 3, 3, 4, 4"
    is_unique = True
    example = {"text": "IFMMP", "steps": [["shift", 1]]}
    example_answer = "HELLO"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        clear = "".join(rng.sample(WORDS, (2, 3, 3, 4, 4)[difficulty - 1])).upper()
        pool = ["shift", "mirror", "reverse"] if difficulty == 1 else sorted(STEPS)
        steps: list[list[Any]] = []
        for kind in rng.sample(pool, (1, 1, 2, 2, 3)[difficulty - 1]):
            argument: Any = {"shift": rng.randint(2, 24), "rails": rng.randint(2, 3 + difficulty // 3)}.get(kind, 0)
            if kind in ("keyed", "running"):
                argument = rng.choice(WORDS).upper()
            if kind == "columns":
                argument = rng.sample(range(1, 3 + difficulty), 2 + difficulty)
            steps.append([kind, argument])
        return {"text": _enciphered(clear, steps), "steps": steps}, clear

    def rules(self, puzzle: Puzzle) -> str:
        said = [f"{n}. {STEPS[kind].format(argument)}" for n, (kind, argument) in enumerate(puzzle["steps"], 1)]
        return "\n".join(
            ["A text of the letters A to Z, without spaces, was enciphered in this way, each step done to what the "
             "step before it gave:", *said, "This came out. What was the text?"]
        )  # fmt: skip

    def show(self, puzzle: Puzzle) -> str:
        return puzzle["text"]

    def check(self, puzzle: Puzzle, answer: str) -> None:
        clear = "".join(answer.split()).upper()
        if not re.fullmatch("[A-Z]{1,200}", clear):
            raise vf.WrongAnswer("the answer is no text of at most 200 letters from A to Z")
        if _enciphered(clear, puzzle["steps"]) != puzzle["text"]:
            raise vf.WrongAnswer("the answer, enciphered in this way, gives another text")


STEPS = {
    "shift": "Every letter was replaced by the one {} places later in the alphabet, A following Z.",
    "mirror": "Every letter was replaced by the one as far from the end of the alphabet: A by Z, B by Y and so on.",
    "reverse": "The text was written backwards.",
    "keyed": "A, B, C … were replaced by the letters of this row in turn: the different letters of {} in their order, "
    "then the rest of the alphabet in its order.",
    "running": "Under the text the word {} was written again and again, and each letter of the text was moved on in "
    "the alphabet by the letter under it: A by 0 places, B by 1 and so on, A following Z.",
    "rails": "The text was written in a zigzag over {} lines, one letter a column, beginning in the top line and going "
    "down first; then the lines were read one after the other, from the top.",
    "columns": "The text was written in rows under the numbers {}, one letter under each, the last row perhaps not "
    "full; then the columns were read from top to bottom, in the order of their numbers.",
}


def _enciphered(text: str, steps: list[list[Any]]) -> str:
    for kind, argument in steps:
        text = _step(text, kind, argument)
    return text


def _step(text: str, kind: str, argument: Any) -> str:
    alphabet = string.ascii_uppercase
    if kind == "reverse":
        return text[::-1]
    if kind == "running":
        return "".join(_moved(letter, ord(argument[i % len(argument)]) - ord("A")) for i, letter in enumerate(text))
    if kind == "rails":
        period = 2 * (argument - 1)
        return "".join(letter for rail in range(argument) for i, letter in enumerate(text)
                       if min(i % period, period - i % period) == rail)  # fmt: skip
    if kind == "columns":
        return "".join(text[argument.index(number) :: len(argument)] for number in sorted(argument))
    row = {
        "shift": "".join(_moved(letter, argument) for letter in alphabet) if kind == "shift" else "",
        "mirror": alphabet[::-1],
        "keyed": "".join(dict.fromkeys(argument + alphabet)) if kind == "keyed" else "",
    }[kind]
    return text.translate(str.maketrans(alphabet, row))


def _moved(letter: str, places: int) -> str:
    return chr((ord(letter) - ord("A") + places) % 26 + ord("A"))
