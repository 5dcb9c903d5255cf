"""Generated problems: a `Problem` is a pure function of a seed, a difficulty and an index.

Each kind is a function of a random generator that writes a question, works out its exact answer as a `Fraction`, and
says how in one or two short sentences (`working`), which the worked examples of a prompt are made of.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Side = Literal["train", "eval"]
Kind = Callable[[random.Random], "Problem"]

WORKED_SEED = 4  # the worked examples are the same whatever the seed, so that scores of two seeds compare
EVAL_SHARE = 4  # one question in four belongs to the eval side
BARREN_TRIES = 400  # so many indices in a row without a new question: this difficulty has no more


@dataclass(frozen=True)
class Problem:
    question: str
    answer: Fraction
    working: str
    kind: str = ""

    @property
    def answer_text(self) -> str:
        return str(self.answer)  # "7", "-3/4"

    @property
    def worked_reply(self) -> str:
        return f"{self.working}. The answer is \\boxed{{{self.answer_text}}}."


def make_problem(seed: int | str, difficulty: int, index: int) -> Problem:
    rng = random.Random(f"{seed}/{difficulty}/{index}")
    kind = rng.choice(LEVELS[difficulty])
    made = kind(rng)
    return Problem(made.question, made.answer, made.working, kind.__name__)


def worked_problems(difficulty: int, count: int) -> list[Problem]:
    """Examples to show in the prompt: one of each kind in turn."""
    kinds = LEVELS[difficulty]
    rng = random.Random(f"worked/{WORKED_SEED}/{difficulty}")
    problems = [kinds[i % len(kinds)](rng) for i in range(count)]
    return [Problem(p.question, p.answer, p.working, kinds[i % len(kinds)].__name__) for i, p in enumerate(problems)]


def side_of(question: str) -> Side:
    """A question belongs to one side for good, so that no seed trains on what another evaluates."""
    return "eval" if hashlib.sha256(question.encode()).digest()[0] % EVAL_SHARE == 0 else "train"


def different_problems(
    seed: int, difficulty: int, side: Side, *, without: frozenset[str] = frozenset()
) -> Iterator[Problem]:
    """The side's different problems in order of index; ends when the difficulty has no more to give."""
    seen = set(without)
    index = barren = 0
    while barren < BARREN_TRIES:
        problem = make_problem(seed, difficulty, index)
        index += 1
        if problem.question in seen or side_of(problem.question) != side:
            barren += 1
            continue
        barren = 0
        seen.add(problem.question)
        yield problem


# 0: one digit


def sum_of_digits(rng: random.Random) -> Problem:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return _value(f"{a} + {b}", a + b)


def difference_of_digits(rng: random.Random) -> Problem:
    a, b = sorted((rng.randint(1, 9), rng.randint(1, 9)), reverse=True)
    return _value(f"{a} - {b}", a - b)


def product_of_digits(rng: random.Random) -> Problem:
    a, b = rng.randint(2, 9), rng.randint(2, 9)
    return _value(f"{a} * {b}", a * b)


# 1: two digits


def sum_of_two_digits(rng: random.Random) -> Problem:
    a, b = rng.randint(11, 99), rng.randint(11, 99)
    return _value(f"{a} + {b}", a + b)


def difference_of_two_digits(rng: random.Random) -> Problem:
    a, b = rng.randint(11, 99), rng.randint(11, 99)
    return _value(f"{a} - {b}", a - b)


def product_with_digit(rng: random.Random) -> Problem:
    a, b = rng.randint(11, 99), rng.randint(2, 9)
    return _value(f"{a} * {b}", a * b)


def exact_division(rng: random.Random) -> Problem:
    quotient, b = rng.randint(3, 19), rng.randint(2, 9)
    return _value(f"{quotient * b} / {b}", quotient)


# 2: several steps


def chain(rng: random.Random) -> Problem:
    a, b, c, d = (rng.randint(2, 30) for _ in range(4))
    shape, value = rng.choice(
        [
            (f"{a} + {b} * {c} - {d}", a + b * c - d),
            (f"{a} * ({b} - {c}) + {d}", a * (b - c) + d),
            (f"({a} + {b}) * ({c} - {d})", (a + b) * (c - d)),
            (f"{a} - {b} * ({c} + {d})", a - b * (c + d)),
        ]
    )
    return _value(shape, value)


def percentage(rng: random.Random) -> Problem:
    percent, base = rng.randint(1, 19) * 5, rng.randint(2, 60) * 10
    value = Fraction(percent * base, 100)
    return Problem(f"What is {percent}% of {base}?", value, f"{percent} * {base} / 100 = {value}")


def missing_number(rng: random.Random) -> Problem:
    x, a, b = rng.randint(-20, 60), rng.randint(2, 9), rng.randint(1, 50)
    right = a * x + b
    working = f"The number is ({right} - {b}) / {a} = {x}"
    return Problem(f"I multiply a number by {a}, add {b} and get {right}. What is the number?", Fraction(x), working)


def greatest_common_divisor(rng: random.Random) -> Problem:
    factor = rng.randint(2, 15)
    a, b = factor * rng.randint(2, 20), factor * rng.randint(2, 20)
    value = math.gcd(a, b)
    working = f"{a} = {value} * {a // value} and {b} = {value} * {b // value}"
    return Problem(f"What is the greatest common divisor of {a} and {b}?", Fraction(value), working)


# 3: fractions and linear equations


def fraction_arithmetic(rng: random.Random) -> Problem:
    p, q, r = (Fraction(rng.randint(1, 12), rng.randint(2, 12)) for _ in range(3))
    shape, value = rng.choice(
        [
            (f"{_in(p)} + {_in(q)} - {_in(r)}", p + q - r),
            (f"{_in(p)} * {_in(q)} + {_in(r)}", p * q + r),
            (f"({_in(p)} - {_in(q)}) / {_in(r)}", (p - q) / r),
        ]
    )
    return _value(shape, value)


def linear_equation(rng: random.Random) -> Problem:
    a, c = rng.sample([n for n in range(-9, 10) if n], 2)
    b, d = rng.randint(-20, 20), rng.randint(-20, 20)
    x = Fraction(d - b, a - c)
    question = f"Solve for x: {_times(a, 'x')} {_signed(b)} = {_times(c, 'x')} {_signed(d)}"
    return Problem(question, x, f"{_times(a - c, 'x')} = {d - b}, so x = {x}")


def percent_change(rng: random.Random) -> Problem:
    start, up, down = rng.randint(2, 40) * 10, rng.randint(1, 9) * 10, rng.randint(1, 9) * 10
    value = Fraction(start * (100 + up) * (100 - down), 10_000)
    question = f"A price of {start} rises by {up}%, and the new price falls by {down}%. What is it in the end?"
    return Problem(question, value, f"{start} * {100 + up}/100 * {100 - down}/100 = {value}")


def arithmetic_sequence(rng: random.Random) -> Problem:
    first, step, n = rng.randint(-20, 30), rng.choice([-7, -5, -4, -3, 3, 4, 6, 8, 11]), rng.randint(15, 60)
    value = first + (n - 1) * step
    terms = ", ".join(str(first + i * step) for i in range(4))
    question = f"An arithmetic sequence begins {terms}. What is its term number {n}?"
    return Problem(question, Fraction(value), f"The term is {first} + {n - 1} * ({step}) = {value}")


# 4: systems, remainders, quadratics


def linear_system(rng: random.Random) -> Problem:
    x, y = rng.randint(-12, 12), rng.randint(-12, 12)
    while True:
        a, b, c, d = (rng.choice([n for n in range(-7, 8) if n]) for _ in range(4))
        if a * d != b * c:  # one solution
            break
    first = f"{_times(a, 'x')} {_signed(b, 'y')} = {a * x + b * y}"
    second = f"{_times(c, 'x')} {_signed(d, 'y')} = {c * x + d * y}"
    question = f"Given {first} and {second}, what is x * y?"
    return Problem(question, Fraction(x * y), f"x = {x} and y = {y}, so x * y = {x * y}")


def remainder(rng: random.Random) -> Problem:
    a, b, c, m = rng.randint(20, 99), rng.randint(20, 99), rng.randint(100, 999), rng.randint(7, 31)
    value = (a * b + c) % m
    question = f"What is the remainder when {a} * {b} + {c} is divided by {m}?"
    return Problem(question, Fraction(value), f"{a} * {b} + {c} = {a * b + c} = {m} * {(a * b + c) // m} + {value}")


def larger_root(rng: random.Random) -> Problem:
    p, q = rng.sample(range(-15, 16), 2)
    question = f"What is the larger root of x^2 {_signed(-p - q, 'x')} {_signed(p * q)} = 0?"
    return Problem(question, Fraction(max(p, q)), f"The roots are {min(p, q)} and {max(p, q)}")


def quadratic_sequence(rng: random.Random) -> Problem:
    a, b, c = rng.choice([1, 2, 3, -1, -2]), rng.randint(-6, 6), rng.randint(-10, 10)
    terms = [a * n * n + b * n + c for n in range(1, 7)]
    shown = ", ".join(map(str, terms[:5]))
    question = f"The differences between neighbours in {shown}, ... form an arithmetic sequence. What is the next term?"
    step = terms[5] - terms[4]
    working = f"The next difference is {step}, and {terms[4]} + ({step}) = {terms[5]}"
    return Problem(question, Fraction(terms[5]), working)


# 5: where a plan is needed


def power_remainder(rng: random.Random) -> Problem:
    base, exponent, modulus = rng.randint(2, 19), rng.randint(40, 999), rng.randint(11, 60)
    value = pow(base, exponent, modulus)
    question = f"What is the remainder when {base}^{exponent} is divided by {modulus}?"
    return Problem(question, Fraction(value), f"Repeated squaring modulo {modulus} gives {value}")


def two_remainders(rng: random.Random) -> Problem:
    m, n = rng.choice([(7, 11), (9, 14), (11, 13), (8, 15), (13, 17), (12, 19)])
    r, s = rng.randrange(m), rng.randrange(n)
    value = next(x for x in range(1, m * n + 1) if x % m == r and x % n == s)
    question = f"What is the smallest positive integer that leaves remainder {r} modulo {m} and {s} modulo {n}?"
    return Problem(question, Fraction(value), f"{value} leaves {r} modulo {m} and {s} modulo {n}")


def roots_without_solving(rng: random.Random) -> Problem:
    a, b, c = rng.randint(2, 6), rng.choice([n for n in range(-12, 13) if n]), -rng.randint(1, 12)
    total, product = Fraction(-b, a), Fraction(c, a)
    asked, value = rng.choice(
        [("the sum of the squares", total**2 - 2 * product), ("the sum of the reciprocals", total / product)]
    )
    question = f"What is {asked} of the roots of {a}x^2 {_signed(b, 'x')} {_signed(c)} = 0?"
    return Problem(question, value, f"The roots add up to {total} and multiply to {product}, which gives {value}")


def divisible_by_either(rng: random.Random) -> Problem:
    limit, (a, b) = rng.randint(150, 999), rng.sample([4, 6, 9, 10, 14, 15, 21], 2)
    both = math.lcm(a, b)
    value = limit // a + limit // b - limit // both
    question = f"How many of the integers from 1 to {limit} are divisible by {a} or by {b} (or by both)?"
    working = f"{limit // a} + {limit // b} - {limit // both} = {value}, as {limit // both} are divisible by both"
    return Problem(question, Fraction(value), working)


LEVELS: tuple[tuple[Kind, ...], ...] = (
    (sum_of_digits, difference_of_digits, product_of_digits),
    (sum_of_two_digits, difference_of_two_digits, product_with_digit, exact_division),
    (chain, percentage, missing_number, greatest_common_divisor),
    (fraction_arithmetic, linear_equation, percent_change, arithmetic_sequence),
    (linear_system, remainder, larger_root, quadratic_sequence),
    (power_remainder, two_remainders, roots_without_solving, divisible_by_either),
)


def _value(expression: str, value: int | Fraction) -> Problem:
    return Problem(f"What is {expression}?", Fraction(value), f"{expression} = {value}")


def _in(value: Fraction) -> str:
    """A fraction inside an expression."""
    return str(value) if value.denominator == 1 else f"({value})"


def _times(factor: int, name: str) -> str:
    return {1: name, -1: f"-{name}"}.get(factor, f"{factor}{name}")


def _signed(value: int, name: str = "") -> str:
    """`+ 3x`, `- x`, `+ 0`: a later term of a sum."""
    size = abs(value)
    return f"{'-' if value < 0 else '+'} {name if name and size == 1 else f'{size}{name}'}"
