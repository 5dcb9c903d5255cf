"""Sums as text: whole numbers, + - * / and brackets, read and worked out exactly without evaluating any code."""

from __future__ import annotations

import re
from fractions import Fraction

MAX_CHARS = 500
MAX_DEPTH = 50
MAX_DIGITS = 9


class BadSum(ValueError):
    """Why a text is no sum."""


def work_out(text: str) -> tuple[Fraction, list[int]]:
    """The value of a sum, and the numbers in it in order. Raises BadSum for anything else, and for a division by 0.

    There are no powers, and length, depth and figures are bounded, so that it takes no time.

    >>> work_out("(8 - 4) × 6")
    (Fraction(24, 1), [8, 4, 6])
    """
    if len(text) > MAX_CHARS:
        raise BadSum(f"the sum has {len(text)} characters")
    for name, sign in _SIGNS.items():
        text = text.replace(name, sign)
    reader = _Reader(_TOKEN.findall(text))
    value = reader.sum(0)
    if reader.rest:
        raise BadSum(f"{reader.rest[-1]!r} is not expected in the sum")
    return value, reader.numbers


_SIGNS = {
    "\\times": "*", "\\cdot": "*", "\\div": "/", "\\left": "", "\\right": "", "×": "*", "·": "*", "⋅": "*", "÷": "/",
    "−": "-", "–": "-", "[": "(", "]": ")",
}  # fmt: skip
_TOKEN = re.compile(r"[0-9]+|\S")


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.rest = tokens[::-1]
        self.numbers: list[int] = []

    def take(self, *wanted: str) -> str | None:
        return self.rest.pop() if self.rest and self.rest[-1] in wanted else None

    def sum(self, depth: int) -> Fraction:
        value = self.product(depth)
        while sign := self.take("+", "-"):
            other = self.product(depth)
            value = value + other if sign == "+" else value - other
        return value

    def product(self, depth: int) -> Fraction:
        value = self.atom(depth)
        while sign := self.take("*", "/"):
            other = self.atom(depth)
            if sign == "/" and other == 0:
                raise BadSum("the sum divides by 0")
            value = value * other if sign == "*" else value / other
        return value

    def atom(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise BadSum("the sum is nested too deeply")
        if self.take("("):
            value = self.sum(depth + 1)
            if not self.take(")"):
                raise BadSum("a bracket is not closed")
            return value
        token = self.rest.pop() if self.rest else ""
        if not re.fullmatch(rf"[0-9]{{1,{MAX_DIGITS}}}", token):
            raise BadSum(f"{token!r:.20} is no number" if token else "the sum ends too early")
        self.numbers.append(int(token))
        return Fraction(int(token))
