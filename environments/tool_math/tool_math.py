"""`tool-math`: calculations too long for the head, with tools that are exact; the result goes in a box."""

from __future__ import annotations

import hashlib
import random
import re
from fractions import Fraction
from functools import partial
from typing import Any

import verifiers as vf

SYSTEM_PROMPT = """\
Solve the problem with the tools; they calculate exactly, with integers and fractions.
When you have the result, write it in \\boxed{}: an integer, or a fraction in the form 7/3. No rounding, no units."""

ERROR = "Error: "  # how a tool message starts that tells of a failed call
EVAL_SHARE = 4  # one problem in four is for evaluation
MAX_BITS = 2000  # of a numerator or denominator; about 600 digits
MAX_TEXT = 700  # characters of a number
_DECIMAL = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", re.ASCII)
_LATEX_FRACTION = re.compile(r"([+-]?)\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")


def load_environment(
    num_train_examples: int = 1000,
    num_eval_examples: int = 100,
    max_turns: int = 10,
    seed: int = 0,
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One problem, as many tool calls as it takes, one number in a box. See the README for the arguments."""
    _check_integer("num_train_examples", num_train_examples, least=1)
    _check_integer("num_eval_examples", num_eval_examples, least=1)
    _check_integer("max_turns", max_turns, least=1)
    _check_integer("seed", seed)
    parser = vf.MaybeThinkParser(extract_fn=partial(vf.extract_boxed_answer, strict=True))
    rubric = vf.Rubric(funcs=[correct], weights=[1.0], parser=parser)
    rubric.add_metric(failed_tool_calls)
    return vf.ToolEnv(
        tools=[add, subtract, multiply, divide, power, remainder],
        error_formatter=lambda error: f"{ERROR}{error}",
        dataset=lambda: rows("train", num_train_examples, seed),
        eval_dataset=lambda: rows("eval", num_eval_examples, seed),
        system_prompt=system_prompt,
        parser=parser,
        rubric=rubric,
        max_turns=max_turns,
    )


def correct(parser: vf.Parser, completion: vf.Messages, answer: str) -> float:
    """By the answer alone: whoever needs no tools is as right as who does."""
    try:
        return float(number(parser.parse_answer(completion)) == Fraction(answer))
    except ValueError:  # nothing in the box, or something that is no single number
        return 0.0


def failed_tool_calls(parser: vf.Parser, completion: vf.Messages) -> float:
    return float(sum(message["content"].startswith(ERROR) for message in parser.get_tool_messages(completion)))


# The tools. What they raise is told to the model.


def add(a: str, b: str) -> str:
    """The sum a + b.

    Args:
        a: a number, such as 12, -0.5 or 7/3
        b: a number
    """
    return written(number(a) + number(b))


def subtract(a: str, b: str) -> str:
    """The difference a - b.

    Args:
        a: a number, such as 12, -0.5 or 7/3
        b: a number
    """
    return written(number(a) - number(b))


def multiply(a: str, b: str) -> str:
    """The product a * b.

    Args:
        a: a number, such as 12, -0.5 or 7/3
        b: a number
    """
    return written(number(a) * number(b))


def divide(a: str, b: str) -> str:
    """The quotient a / b, as a fraction in lowest terms if it is no integer.

    Args:
        a: a number, such as 12, -0.5 or 7/3
        b: a number, not 0
    """
    return written(number(a) / _not_zero(number(b)))


def power(base: str, exponent: str) -> str:
    """The power base ** exponent.

    Args:
        base: a number, such as 12, -0.5 or 7/3
        exponent: an integer
    """
    b, e = number(base), number(exponent)
    if e.denominator != 1:
        raise ValueError(f"the exponent must be an integer, got {exponent}")
    if e < 0:
        _not_zero(b)
    size = abs(int(e)) * max(abs(b.numerator), b.denominator).bit_length()
    if abs(b) not in (0, 1) and size > 2 * MAX_BITS:  # refused before it is calculated: 9 ** 9 ** 9 would not end
        raise ValueError("the result is too large")
    return written(b ** int(e))


def remainder(a: str, b: str) -> str:
    """The remainder when a is divided by b.

    Args:
        a: an integer
        b: an integer, not 0
    """
    dividend, divisor = number(a), number(b)
    if dividend.denominator != 1 or divisor.denominator != 1:
        raise ValueError(f"remainder takes integers, got {a} and {b}")
    return written(dividend % _not_zero(divisor))


def number(text: Any) -> Fraction:
    r"""The exact value of 12, -0.5, 1,234, 3e8, 7/3 or \frac{7}{3}; models also write a bare number for the text.

    Raises ValueError for anything else: an expression is not a result.

    >>> number("-0.5"), number(r"\frac{14}{6}")
    (Fraction(-1, 2), Fraction(7, 3))
    """
    whole = str(text).strip().strip("$").replace("{,}", ",").replace("\u2212", "-")
    top, slash, bottom = _LATEX_FRACTION.sub(r"\1\2/\3", whole).partition("/")
    parts = [part.strip() for part in ((top, bottom) if slash else (top,))]
    if len(whole) > MAX_TEXT or not all(_DECIMAL.fullmatch(part) or _GROUPED.fullmatch(part) for part in parts):
        raise ValueError(f"not a number: {whole[:40]!r}. Write 12, -0.5 or 7/3")
    values = [Fraction(part.replace(",", "")) for part in parts]
    return values[0] / _not_zero(values[1]) if slash else values[0]


def written(value: Fraction) -> str:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ValueError("the result is too large")
    return str(value)


def _not_zero(value: Fraction) -> Fraction:
    if value == 0:
        raise ValueError("division by zero")
    return value


# The problems: each kind makes a question and its exact answer, by a way of at least three calls.


def expression(rng: random.Random) -> tuple[str, Fraction]:
    a, b, c, d = rng.randint(1000, 9999), rng.randint(1000, 9999), rng.randint(101, 999), rng.randint(10_000, 99_999)
    return f"What is ({a} + {b}) * {c} - {d}?", Fraction((a + b) * c - d)


def books(rng: random.Random) -> tuple[str, Fraction]:
    a, c, shops = rng.randint(120, 990), rng.randint(120, 990), rng.randint(12, 48)
    b, d = rng.sample(range(24, 97), 2)
    total = a * b + c * d
    damaged = 200 + (total - 200) % shops + shops * rng.randint(1, 20)
    question = (
        f"A printing house fills {a} boxes with {b} books each and {c} boxes with {d} books each. {damaged} books are "
        f"damaged, and the others are shared equally by {shops} shops. How many books does each shop get?"
    )
    return question, Fraction(total - damaged, shops)


def interest(rng: random.Random) -> tuple[str, Fraction]:
    amount, percent, years = rng.randint(100, 999), rng.randint(3, 19), rng.randint(3, 6)
    question = (
        f"{amount} coins are lent at {percent}% a year, and each year's interest is added to what is owed. "
        f"Exactly how many coins, as a fraction, are owed after {years} years?"
    )
    return question, amount * Fraction(100 + percent, 100) ** years


def shares(rng: random.Random) -> tuple[str, Fraction]:
    (p, q), (r, s) = (sorted(rng.sample(range(11, 60), 2)) for _ in range(2))
    a, b = rng.randint(1000, 9999), rng.randint(1000, 9999)
    return f"Take {p}/{q} of {a} and add {r}/{s} of {b}. What is the sum?", Fraction(p * a, q) + Fraction(r * b, s)


def power_remainder(rng: random.Random) -> tuple[str, Fraction]:
    base, exponent = rng.randint(12, 99), rng.randint(12, 60)
    added, modulus = rng.randint(10, 999), rng.randint(1000, 9999)
    question = f"What is the remainder when {base}^{exponent} + {added} is divided by {modulus}?"
    return question, Fraction((base**exponent + added) % modulus)


def average_speed(rng: random.Random) -> tuple[str, Fraction]:
    first, hours, second, speed = rng.randint(200, 900), rng.randint(2, 9), rng.randint(200, 900), rng.randint(60, 240)
    question = (
        f"A train covers {first} km in {hours} hours and then {second} km at {speed} km/h. "
        "Exactly what is its average speed over the whole way, in km/h, as a fraction?"
    )
    return question, (first + second) / (hours + Fraction(second, speed))


KINDS = (expression, books, interest, shares, power_remainder, average_speed)


def rows(split: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Different problems; none has its answer standing in the question."""
    rng = random.Random(f"{split}/{seed}")
    made: dict[str, dict[str, Any]] = {}
    while len(made) < count:
        kind = rng.choice(KINDS)
        question, answer = kind(rng)
        if _is_for_eval(question) == (split == "eval") and str(answer) not in re.findall(r"\d+", question):
            made[question] = {"question": question, "answer": str(answer), "info": {"kind": kind.__name__}}
    return list(made.values())


def _is_for_eval(question: str) -> bool:
    """A problem belongs to one split for good, whatever the seed."""
    return hashlib.sha256(question.encode()).digest()[0] % EVAL_SHARE == 0


def _check_integer(name: str, value: Any, *, least: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        bounds = "" if least is None else f", {least} or more"
        raise ValueError(f"{name}={value!r}: give a whole number{bounds}")
