"""Exact rational values of expressions, and when a decimal stands for a fraction that never ends."""

from __future__ import annotations

import math
from fractions import Fraction

from verifiers.rubrics.math_parse import MINUS_ONE, Add, Based, Call, Const, Mul, Node, Num, Pow
from verifiers.rubrics.math_text import TooLarge

MAX_BITS = 20_000  # of an exact integer
MAX_FACTORIAL = 1_500
MIN_DECIMALS = 6  # significant digits from which on a decimal stands for the number it rounds

INFINITIES = (Const("inf"), Mul((MINUS_ONE, Const("inf"))))


class NotRational(Exception):
    """Has no exact rational value, or none that is found here."""


def same_number(gold: Node, answer: Node) -> bool | None:
    """Decides rational numbers, in microseconds; None for the rest. Raises TooLarge for an answer without bounds."""
    if gold in INFINITIES or answer in INFINITIES:
        return gold == answer
    try:
        wanted = rational(gold)
    except (NotRational, TooLarge):
        return None
    try:
        found = rational(answer)
    except NotRational:
        return None
    return wanted == found or _rounds(gold, wanted, answer, found)


def _rounds(gold: Node, wanted: Fraction, answer: Node, found: Fraction) -> bool:
    """Whether one is a decimal that stands for the other, with enough digits and a fraction that never ends."""
    for decimal, exact, literal, other in ((found, wanted, answer, gold), (wanted, found, gold, answer)):
        places = decimal_places(literal)
        if places is None or decimal_places(other) is not None or _terminates(exact):
            continue
        if significant_digits(decimal, places) >= MIN_DECIMALS and abs(decimal - exact) * 10**places <= Fraction(1, 2):
            return True
    return False


def decimal_places(node: Node) -> int | None:
    """Digits after the point of a decimal literal, its sign aside; `None` for anything else."""
    if isinstance(node, Mul) and len(node.factors) == 2 and node.factors[0] == MINUS_ONE:
        node = node.factors[1]
    return node.decimals if isinstance(node, Num) else None


def significant_digits(value: Fraction, places: int) -> int:
    return len(str(abs(int(value * 10**places))).lstrip("0"))


def _terminates(value: Fraction) -> bool:
    bottom = value.denominator
    for prime in (2, 5):
        while bottom % prime == 0:
            bottom //= prime
    return bottom == 1


def rational(node: Node) -> Fraction:
    """The exact value. Raises NotRational, or TooLarge before anything large is computed."""
    if isinstance(node, Num):
        return node.value
    if isinstance(node, Add):
        return sum((rational(term) for term in node.terms), Fraction(0))
    if isinstance(node, Mul):
        value = Fraction(1)
        for factor in node.factors:
            value *= rational(factor)
            if _bits(value) > MAX_BITS:
                raise TooLarge("a product beyond reason")
        return value
    if isinstance(node, Pow):
        return _rational_power(rational(node.base), rational(node.exponent))
    if isinstance(node, Call):
        return _rational_call(node)
    if isinstance(node, Based):
        return Fraction(int(node.digits, node.base))
    raise NotRational


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _rational_power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator == 1:
        if base == 0 and exponent < 0:
            raise NotRational
        if base in (0, 1, -1):
            return base if exponent % 2 or base != -1 else Fraction(1)
        if abs(exponent.numerator) * _bits(base) > MAX_BITS:
            raise TooLarge("a power beyond reason")
        return base**exponent.numerator
    if base < 0 or exponent.denominator > 64:
        raise NotRational
    top, bottom = _root(base.numerator, exponent.denominator), _root(base.denominator, exponent.denominator)
    return _rational_power(Fraction(top, bottom), Fraction(exponent.numerator))


def _root(value: int, index: int) -> int:
    """The exact integer root. Raises NotRational when there is none."""
    guess = 1 << (value.bit_length() // index + 1) if value else 0
    while guess:
        better = ((index - 1) * guess + value // guess ** (index - 1)) // index
        if better >= guess:
            break
        guess = better
    if guess**index != value:
        raise NotRational
    return guess


def _rational_call(node: Call) -> Fraction:
    args = [rational(arg) for arg in node.args]
    if node.name == "abs":
        return abs(args[0])
    if node.name in ("floor", "ceil"):
        return Fraction(math.floor(args[0]) if node.name == "floor" else math.ceil(args[0]))
    if node.name in ("max", "min"):
        return max(args) if node.name == "max" else min(args)
    if any(arg.denominator != 1 or arg < 0 for arg in args):
        raise NotRational
    numbers = [arg.numerator for arg in args]
    if node.name in ("gcd", "lcm"):
        return Fraction(math.gcd(*numbers) if node.name == "gcd" else math.lcm(*numbers))
    if node.name == "factorial":
        if numbers[0] > MAX_FACTORIAL:
            raise TooLarge("a factorial beyond reason")
        return Fraction(math.factorial(numbers[0]))
    if node.name == "binom":
        if numbers[0] > MAX_BITS:
            raise TooLarge("a binomial coefficient beyond reason")
        return Fraction(math.comb(*numbers))
    raise NotRational
