"""Expressions to work out: operations with a new meaning, and true or false ones."""

from __future__ import annotations

import random
from typing import Any

import verifiers as vf
from i3_logic.kind import LogicKind, read_integer
from verifiers.rubrics.logic_statements import TRUTH
from verifiers.rubrics.logic_task import Puzzle, one_of, read_values

LETTERS = "ABCDEFGH"  # one for each boolean expression

# A new operation: its sign, how it is said, and what it does with two numbers and the constants p and q.
OPERATIONS: dict[str, str] = {
    "weighed": "{a} {sign} {b} = {p} times {a}, plus {q} times {b}",
    "product": "{a} {sign} {b} = {a} times {b}, less {p}",
    "split": "{a} {sign} {b} = {a} less {b} if {a} is greater than {b}, else {a} plus {b} plus {p}",
    "larger": "{a} {sign} {b} = {p} times the larger of {a} and {b}, less the smaller of them",
    "rest": "{a} {sign} {b} = the rest that {a} plus {q} times {b} leaves when it is divided by {m} (from 0 to {n})",
}
SIGNS = ("@", "#", "&", "%")


class Operation(LogicKind):
    """Signs with a new meaning; what an expression comes to."""

    name = "operation"
    parts = ("operations", "expression")
    answer_form = "Write the whole number that the expression comes to."
    grows = "operations to carry out: 3, 5, 7, 9, 11"
    is_unique = True
    example = {"operations": {"@": ["weighed", 2, 3]}, "expression": ["@", ["@", 1, 1], 4]}
    example_answer = "22"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        while True:
            signs = SIGNS[: 2 + difficulty // 2]
            kinds = rng.sample(sorted(OPERATIONS), len(signs))
            operations = {sign: [kind, rng.randint(2, 4), rng.randint(2, 5)] for sign, kind in zip(signs, kinds)}
            parts: list[Any] = [rng.randint(1, 12) for _ in range(2 + 2 * difficulty)]
            while len(parts) > 1:
                one, other = (parts.pop(rng.randrange(len(parts))) for _ in range(2))
                parts.append([rng.choice(signs), one, other])
            value = _carried_out(operations, parts[0])
            if 10 <= abs(value) <= 10**6 and str(abs(value)) not in str(parts[0]):
                return {"operations": operations, "expression": parts[0]}, str(value)

    def rules(self, puzzle: Puzzle) -> str:
        said = [
            OPERATIONS[kind].format(sign=sign, a="a", b="b", p=p, q=q, m=p + q + 5, n=p + q + 4)
            for sign, (kind, p, q) in puzzle["operations"].items()
        ]
        return "\n".join(
            ["Signs get a new meaning here. For whole numbers a and b:", *said, "Work out the expression."]
        )

    def show(self, puzzle: Puzzle) -> str:
        text = _bracketed(puzzle["expression"])
        return text[1:-1] if text.startswith("(") else text

    def check(self, puzzle: Puzzle, answer: str) -> None:
        value, found = _carried_out(puzzle["operations"], puzzle["expression"]), read_integer(answer)
        if found != value:
            raise vf.WrongAnswer(f"the expression does not come to {found}")


class BooleanExpressions(LogicKind):
    """Which of several expressions are true."""

    name = "boolean_expressions"
    parts = ("expressions",)
    answer_form = "Write for every letter whether its expression is true or false, like: A: true, B: false."
    grows = "expressions: 4, 5, 6, 7, 8, with 3, 5, 7, 9, 11 comparisons each"
    is_unique = True
    example = {"expressions": [["not", ["<", 3, 2]], ["and", ["=", 4, 4], [">", 1, 6]]]}
    example_answer = "A: true, B: false"

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        while True:
            expressions = [_statement(rng, 1 + 2 * difficulty) for _ in range(3 + difficulty)]
            values = [_is_true(expression) for expression in expressions]
            if len(set(values)) == 2:
                break
        answer = ", ".join(f"{LETTERS[i]}: {str(value).lower()}" for i, value in enumerate(values))
        return {"expressions": expressions}, answer

    def rules(self, puzzle: Puzzle) -> str:
        return (
            "Which of these expressions are true, which false? `xor` is true when exactly one of its two sides is, "
            "`implies` is false only when its left side is true and its right side false."
        )

    def show(self, puzzle: Puzzle) -> str:
        return "\n".join(f"{LETTERS[i]}: {_bracketed(one)}" for i, one in enumerate(puzzle["expressions"]))

    def check(self, puzzle: Puzzle, answer: str) -> None:
        expressions = puzzle["expressions"]
        read = read_values(answer, list(LETTERS[: len(expressions)]))
        for i, expression in enumerate(expressions):
            if one_of(read[LETTERS[i]], TRUTH) != _is_true(expression):
                raise vf.WrongAnswer(f"{LETTERS[i]} is not {read[LETTERS[i]]}")


def _bracketed(expression: Any) -> str:
    """Nested lists as text: `["@", 1, ["@", 2, 3]]` is `(1 @ (2 @ 3))`."""
    if not isinstance(expression, list):
        return str(expression)
    sign, *parts = expression
    if len(parts) == 1:
        return f"not {_bracketed(parts[0])}"
    return f"({_bracketed(parts[0])} {sign} {_bracketed(parts[1])})"


def _carried_out(operations: dict[str, list[Any]], expression: Any) -> int:
    if not isinstance(expression, list):
        return expression
    sign, left, right = expression
    a, b = _carried_out(operations, left), _carried_out(operations, right)
    kind, p, q = operations[sign]
    return {
        "weighed": p * a + q * b,
        "product": a * b - p,
        "split": a - b if a > b else a + b + p,
        "larger": p * max(a, b) - min(a, b),
        "rest": (a + q * b) % (p + q + 5),
    }[kind]


def _statement(rng: random.Random, comparisons: int) -> list[Any]:
    if comparisons == 1:
        found: list[Any] = [rng.choice("<>="), rng.randint(1, 30), rng.randint(1, 30)]
        if found[0] == "=" and rng.random() < 0.6:  # else hardly one would be true
            found[2] = found[1]
    else:
        left = rng.randint(1, comparisons - 1)
        sign = rng.choice(("and", "or", "xor", "implies"))
        found = [sign, _statement(rng, left), _statement(rng, comparisons - left)]
    return ["not", found] if rng.random() < 0.25 else found


def _is_true(expression: list[Any]) -> bool:
    sign, *parts = expression
    if sign in ("<", ">", "="):
        one, other = parts
        return {"<": one < other, ">": one > other, "=": one == other}[sign]
    values = [_is_true(part) for part in parts]
    if sign == "not":
        return not values[0]
    one, other = values
    return {"and": one and other, "or": one or other, "xor": one != other, "implies": not one or other}[sign]
