"""What a grading worker does with two mathematical answers that exact comparison left open: it compares their values.

Expressions are evaluated to 120 digits, at several points if they have variables. Runs in a worker process alone,
because some input takes for ever. What it cannot read either is for `math_verify_grader`.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from verifiers.rubrics.math_answers import compare
from verifiers.rubrics.math_exact import MIN_DECIMALS, decimal_places, same_number, significant_digits
from verifiers.rubrics.math_parse import Add, Call, Const, Mul, Node, Num, Pow, Quantity, Sym, children
from verifiers.rubrics.math_text import TooLarge

CANARY = ({"gold": r"\sqrt{8}", "answer": r"2\sqrt2"}, {"same": True, "reason": None})

DIGITS = 120
AGREEMENT = 80  # digits that must agree
POINTS = 5
MAX_EXPONENT = 10**9  # in bits of the result


def prepare() -> None:
    """Loads what grading needs, and runs it once."""
    grade(CANARY[0])


def grade(task: dict[str, str]) -> dict[str, Any]:
    """`{"same": True | False | None, "reason": ...}`; None without a reason is for another grader."""
    doubts: list[str] = []
    found = compare(task["gold"], task["answer"], lambda a, b: by_value(a, b, doubts))
    if found.same is None:
        return {"same": None, "reason": doubts[0] if doubts else None}
    return {"same": found.same, "reason": found.reason}


def by_value(gold: Node, answer: Node, doubts: list[str]) -> bool | None:
    """Equality of two expressions by their values. Raises TooLarge for the answer's."""
    verdict = same_number(gold, answer)
    if verdict is not None:
        return verdict
    samples: list[tuple[Any, Any]] = []
    for point in _points(sorted(_names(gold) | _names(answer))):
        wanted, found = _value(gold, point), _value(answer, point)
        if wanted.too_large and found.too_large:
            doubts.append(f"the reference is {wanted.too_large}")
            return None
        if found.too_large:
            raise TooLarge(found.too_large)
        if wanted.number is None and not wanted.too_large:
            continue  # the reference has no value here
        if found.number is None and point:
            continue
        samples.append((wanted.number, found.number))
    if not samples:
        return None
    if isinstance(gold, Call) and gold.name == "zero":
        return _are_proportional(samples)
    return all(_agree(a, b, gold, answer) for a, b in samples)


class _Value(NamedTuple):
    """A number, or why there is none."""

    number: Any
    too_large: str | None = None


def _value(node: Node, point: dict[str, Any]) -> _Value:
    evaluation = Evaluation(point)
    try:
        number = evaluation.of(node)
    except OverflowError as error:
        return _Value(None, str(error))
    except ArithmeticError:  # outside its domain, or of a kind that has no value
        return _Value(None)
    return _Value(None, "a sum of numbers too far apart in size") if evaluation.is_lossy else _Value(number)


class _OutsideDomain(ArithmeticError):
    """A root or logarithm of a negative value in a real expression: this point tells nothing."""


def _names(node: Node) -> set[str]:
    names = {node.name} if isinstance(node, Sym) else set()
    return names.union(*(_names(child) for child in children(node)))


def _points(names: list[str]) -> list[dict[str, Any]]:
    """Points with positive and with mixed signs, the same for the same names."""
    if not names:
        return [{}]
    from mpmath import mpf

    rng = random.Random(0)
    points = []
    for index in range(2 * POINTS):
        signs = [1 if index < POINTS else rng.choice((1, -1)) for _ in names]
        sizes = [mpf(rng.randrange(101, 2999)) / 997 for _ in names]
        points.append({name: sign * size for name, sign, size in zip(names, signs, sizes, strict=True)})
    return points


def _agree(left: Any, right: Any, gold: Node, answer: Node) -> bool:
    from mpmath import fabs, mpf

    if left is None or right is None:  # one of them is too large, or has no value: the other is not
        return False
    difference, size = fabs(left - right), max(fabs(left), fabs(right))
    if difference <= size * mpf(10) ** -AGREEMENT:
        return True
    if min(fabs(left), fabs(right)) == 0:  # \sin\pi comes out as about 10^-DIGITS
        return size < mpf(10) ** (AGREEMENT // 2 - DIGITS)
    return _is_rounded(left, right, answer) or _is_rounded(right, left, gold)


def _is_rounded(exact: Any, value: Any, literal: Node) -> bool:
    """Whether a decimal literal has enough digits and all of them right."""
    from mpmath import fabs, mpf

    places = decimal_places(literal)
    if places is None or significant_digits(abs(_literal(literal)), places) < MIN_DECIMALS:
        return False
    return fabs(exact - value) * mpf(10) ** places <= mpf("0.5")


def _literal(node: Node) -> Any:
    return -_literal(node.factors[1]) if isinstance(node, Mul) else node.value if isinstance(node, Num) else 0


def _are_proportional(samples: list[tuple[Any, Any]]) -> bool:
    from mpmath import fabs, mpf

    ratios = []
    for left, right in samples:
        if left is None or right is None:
            return False
        if fabs(left) == 0 or fabs(right) == 0:
            if fabs(left) != fabs(right):
                return False
            continue
        ratios.append(right / left)
    return bool(ratios) and all(fabs(ratio - ratios[0]) <= fabs(ratios[0]) * mpf(10) ** -AGREEMENT for ratio in ratios)


class Evaluation:
    """The value of an expression at one point. `is_lossy` once a sum has swallowed one of its terms."""

    def __init__(self, point: dict[str, Any]) -> None:
        import mpmath

        self.mp = mpmath.mp
        self.mp.dps = DIGITS
        self.point = point
        self.is_lossy = False

    def of(self, node: Node) -> Any:
        """Raises ArithmeticError where there is no value, OverflowError where it is too large."""
        if isinstance(node, Num):
            return self.mp.mpf(node.value.numerator) / node.value.denominator
        if isinstance(node, Sym):
            return self.point[node.name]
        if isinstance(node, Const):
            return self.constant(node.name)
        if isinstance(node, Add):
            return self.sum([self.of(term) for term in node.terms])
        if isinstance(node, Mul):
            product = self.mp.mpf(1)
            for factor in node.factors:
                product *= self.of(factor)
            return product
        if isinstance(node, Pow):
            return self.power(self.of(node.base), self.of(node.exponent), node)
        if isinstance(node, Call):
            return self.call(node.name, [self.of(arg) for arg in node.args])
        if isinstance(node, Quantity) and node.unit == "circ":
            return self.of(node.number) * self.mp.pi / 180
        raise ArithmeticError(f"{type(node).__name__} has no value")

    def constant(self, name: str) -> Any:
        if name == "inf":
            raise ArithmeticError("infinity")
        return {"pi": +self.mp.pi, "e": +self.mp.e, "i": self.mp.mpc(0, 1)}[name]

    def sum(self, terms: list[Any]) -> Any:
        sizes = [self.mp.fabs(term) for term in terms if term != 0]
        if sizes and max(sizes) > min(sizes) * self.mp.mpf(10) ** (AGREEMENT // 2):
            self.is_lossy = True
        return sum(terms[1:], terms[0])

    def power(self, base: Any, exponent: Any, node: Pow) -> Any:
        mp = self.mp
        if base == 0:
            if mp.re(exponent) <= 0 and exponent != 0:
                raise ZeroDivisionError
            return mp.mpf(exponent == 0)
        if mp.fabs(exponent) * (mp.fabs(mp.log(mp.fabs(base), 2)) + 1) > MAX_EXPONENT:
            raise OverflowError("a power beyond reason")
        if mp.im(base) == 0 and mp.re(base) < 0 and mp.im(exponent) == 0 and not mp.isint(exponent):
            inverse = 1 / exponent
            odd = int(mp.nint(inverse))
            if odd % 2 and mp.fabs(inverse - odd) < mp.mpf(10) ** -AGREEMENT:
                return -mp.power(-base, exponent)  # the real root
            if self.point:
                raise _OutsideDomain
        return mp.power(base, exponent)

    def call(self, name: str, args: list[Any]) -> Any:
        mp = self.mp
        first = args[0]
        if name == "zero":
            return first
        if name in ("ln", "log", "lg"):
            if any(arg == 0 for arg in args):
                raise ZeroDivisionError
            if self.point and any(mp.im(arg) == 0 and mp.re(arg) < 0 for arg in args):
                raise _OutsideDomain
            if name == "lg":
                return mp.log10(first)
            return mp.log(args[1]) / mp.log(first) if len(args) == 2 else mp.log(first)
        if name in ("factorial", "binom"):
            if max(mp.fabs(arg) for arg in args) > MAX_EXPONENT:
                raise OverflowError("a factorial beyond reason")
            return mp.factorial(first) if name == "factorial" else mp.binomial(*args)
        if name in ("max", "min"):
            return max(args) if name == "max" else min(args)
        if name in ("gcd", "lcm"):
            raise ArithmeticError("a divisor of what is no integer")
        names = {"abs": "fabs", "floor": "floor", "ceil": "ceil", "exp": "exp"}
        value = getattr(mp, names.get(name, name.replace("arc", "a")))(first)
        if self.point and mp.im(value) != 0 and mp.im(first) == 0:
            raise _OutsideDomain
        return value
