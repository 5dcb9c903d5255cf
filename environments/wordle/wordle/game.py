"""The rules: what a guess is, and how it is marked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

LENGTH = 5
GREEN, YELLOW, GREY = "G", "Y", "X"
_WORD = re.compile(f"[a-z]{{{LENGTH}}}")


@dataclass(frozen=True)
class Turn:
    """One guess with its marks, or the reason why there is none."""

    guess: str = ""
    marks: str = ""
    problem: str = ""

    @property
    def is_solved(self) -> bool:
        return self.marks == GREEN * LENGTH


def marked(guess: str, answer: str) -> str:
    """A mark for each letter of `guess`: G in its place, Y elsewhere in the word, X not in it.

    A letter gets no more G and Y together than it has places in `answer`; G come first, then Y from the left.

    >>> marked("eerie", "beige")
    'XGXYG'
    """
    unmatched = Counter(a for g, a in zip(guess, answer, strict=True) if g != a)
    marks = []
    for g, a in zip(guess, answer, strict=True):
        if g == a:
            marks.append(GREEN)
        elif unmatched[g] > 0:
            unmatched[g] -= 1
            marks.append(YELLOW)
        else:
            marks.append(GREY)
    return "".join(marks)


def turn_of(written: Sequence[str | None], before: Sequence[Turn], answer: str) -> Turn:
    """The turn that a reply makes; `written` are the first and the last guess in it, None where there is none."""
    guesses = {guess.lower() for guess in written if guess}
    if not guesses:
        return Turn(problem="I found no guess. Write one word like this: <guess>word</guess>")
    if len(guesses) > 1:
        return Turn(problem="I found several guesses. Write one.")
    guess = guesses.pop()
    if not _WORD.fullmatch(guess):
        return Turn(problem=f"A guess has exactly {LENGTH} letters from A to Z.")
    if any(turn.guess == guess for turn in before):
        return Turn(problem=f"You have guessed {guess.upper()} before.")
    return Turn(guess, marked(guess, answer))


def closeness(marks: str) -> float:
    """From 0 to 1: a green letter counts one, a yellow one half."""
    return (marks.count(GREEN) + marks.count(YELLOW) / 2) / LENGTH
