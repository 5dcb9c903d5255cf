r"""Whether two mathematical answers say the same: exactly, or by asking `leaf` about two expressions.

The verdict is True, False, or `None` where the notation or the values are beyond what is decided here. Bare lists have
no order, tuples do, braces are sets. A unit may be left out on one side but not contradict. Several answers for one,
a range round the answer, a chain of unequal numbers are wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from verifiers.rubrics.math_exact import same_number
from verifiers.rubrics.math_parse import (
    MINUS_ONE,
    Add,
    Based,
    Call,
    Const,
    Group,
    Matrix,
    Mul,
    Node,
    Num,
    PlusMinus,
    Pow,
    Quantity,
    Relation,
    Sym,
    Words,
    children,
    read_answer,
)
from verifiers.rubrics.math_ranges import (
    has_condition,
    has_symbol,
    merged,
    pieces,
    solution_set,
    united,
    variable,
    variables,
)
from verifiers.rubrics.math_text import NoAnswer, TooLarge, Unreadable, plain
from verifiers.rubrics.math_units import conversion

MAX_LIST = 64  # entries of a list that are matched in any order

Leaf = Callable[[Node, Node], "bool | None"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`same` is None where it could not be decided; `reason` says why it is not True, where there is more to say."""

    same: bool | None
    reason: str | None = None


class BrokenGold(ValueError):
    """The reference answer itself is no answer: a fault of the data."""


def compare(gold: str, answer: str, leaf: Leaf | None = None) -> Comparison:
    r"""Compares the text of an answer with the reference. Raises BrokenGold.

    >>> compare(r"\frac{1}{2}", "0.5").same, compare("3", r"3 \text{ or } 4").same
    (True, False)
    """
    reference = read_gold(gold)
    stripped = answer.strip()
    if not stripped:
        return Comparison(False, "the answer is empty")
    if stripped == gold.strip():
        return Comparison(True)
    text = plain(stripped) if len(stripped) <= 50_000 else stripped
    if not _is_balanced(text):
        return Comparison(False, "the answer has braces that do not pair up")
    if text and _squeezed(text) == reference.squeezed:
        return Comparison(True)
    if reference.choice is not None:
        return Comparison(_chosen(text) == reference.choice)
    try:
        node = read_answer(stripped, bare_units=reference.has_unit)
    except NoAnswer as error:
        return Comparison(False, str(error))
    except TooLarge as error:
        return Comparison(False, f"the answer is too large to check: {error}")
    except Unreadable as error:
        return Comparison(None, f"unknown notation: {error}")
    if reference.node is None:
        # words that are not the reference's notation are still no formula
        return Comparison(False) if isinstance(node, Words) else Comparison(None, "unknown notation in the reference")
    try:
        return Comparison(same(reference.node, node, leaf or same_number))
    except TooLarge as error:
        return Comparison(False, f"the answer is too large to check: {error}")


@dataclass(frozen=True, slots=True)
class Gold:
    """A reference answer, read once for all tries of its example."""

    squeezed: str
    node: Node | None  # None: in a notation that is not read here
    choice: str | None  # the letter of a multiple-choice reference
    has_unit: bool


@lru_cache(maxsize=4096)
def read_gold(gold: str) -> Gold:
    """Raises BrokenGold for a reference that is empty or breaks off."""
    text = plain(gold)
    if not text or not re.search(r"\w|\\(?:emptyset|varnothing|infty)|\\\{\s*\\\}", text):
        raise BrokenGold(f"the reference answer {gold!r:.60} is empty")
    if not _is_balanced(text):
        raise BrokenGold(f"the reference answer {gold!r:.60} has braces that do not pair up")
    node: Node | None = None
    try:
        node = read_answer(gold)
    except (Unreadable, TooLarge):
        pass
    except NoAnswer as error:
        if not re.search(r"[A-Za-z]", text):
            raise BrokenGold(f"the reference answer {gold!r:.60} is no single answer: {error}") from None
    bare = _without_text_macros(text).strip("() ")
    choice = bare if re.fullmatch(r"[A-J]", bare) else None
    return Gold(_squeezed(text), node, choice, isinstance(node, Quantity))


def _is_balanced(text: str) -> bool:
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text):
        depth += (brace == "{") - (brace == "}")
        if depth < 0:
            return False
    return depth == 0


_TEXT_MACRO = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf|it|sf)|operatorname|mbox)\s*\{([^{}]*)\}")


def _without_text_macros(text: str) -> str:
    return _TEXT_MACRO.sub(r"\1", text)


def _squeezed(text: str) -> str:
    """Equal for texts that differ in spaces and text macros alone."""
    text = " ".join(_without_text_macros(text).replace("\u2009", " ").split())
    return re.sub(r"(?<![A-Za-z0-9.,]) | (?![A-Za-z0-9.,])", "", text)


_CHOICE = re.compile(r"\(?\s*(?:option\s+|choice\s+)?([A-Ja-j])\s*(?:\)\s*[.:]?|[.:])?\s*", re.IGNORECASE)


def _chosen(text: str) -> str | None:
    """The one letter that a multiple-choice answer names, alone or before the text of its option."""
    text = _without_text_macros(text).replace("\u2009", " ").strip()
    match = _CHOICE.match(text)
    if match is None:
        return None
    rest, mark = text[match.end() :], match[0].rstrip()[-1:]
    if rest and mark not in ".:)":
        return None  # "A or B", "Aab"
    if re.match(r"(?i)(?:and|or|\(?[a-j]\)?\s*(?:$|[.,:;)]))", rest):
        return None  # another letter follows
    return match[1].upper()


# --- the shape of answers


def same(gold: Node, answer: Node, leaf: Leaf) -> bool | None:
    """Three-valued equality of two trees."""
    if gold == answer:
        return True
    gold, answer = _spread(gold), _spread(answer)
    if has_condition(gold) or has_condition(answer):
        left, right = pieces(_membership(gold)), pieces(_membership(answer))
        if left is not None and right is not None and len(variables(gold) | variables(answer)) == 1:
            return left == right
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _same_relation(gold, answer, leaf)
    if isinstance(gold, Quantity) or isinstance(answer, Quantity):
        return _same_quantity(gold, answer, leaf)
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return _same_matrix(gold, answer, leaf)
    if isinstance(gold, Group) or isinstance(answer, Group):
        return _same_group(gold, answer, leaf)
    if isinstance(gold, Words) or isinstance(answer, Words):
        return _letters(gold) == _letters(answer) if _letters(gold) else False
    if isinstance(gold, Based) or isinstance(answer, Based):
        return _same_based(gold, answer)
    return leaf(gold, answer)


def _letters(node: Node) -> str | None:
    if isinstance(node, Words):
        return node.text
    return node.name.lower() if isinstance(node, (Sym, Const)) else None


def _same_based(gold: Node, answer: Node) -> bool:
    if isinstance(gold, Based) and isinstance(answer, Based):
        return int(gold.digits, gold.base) == int(answer.digits, answer.base)
    based, other = (gold, answer) if isinstance(gold, Based) else (answer, gold)
    if not isinstance(based, Based) or not isinstance(other, Num):
        return False
    return based is gold and other.decimals is None and str(other.value) == based.digits  # the base was asked for


def _same_quantity(gold: Node, answer: Node, leaf: Leaf) -> bool | None:
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        factor = conversion(answer.unit, gold.unit)
        if factor is None:
            return False
        converted = answer.number if factor == 1 else Mul((answer.number, Num(factor)))
        return same(gold.number, converted, leaf)
    carrier, bare = (gold, answer) if isinstance(gold, Quantity) else (answer, gold)
    assert isinstance(carrier, Quantity)
    pair = (carrier.number, bare) if carrier is gold else (bare, carrier.number)
    verdict = same(*pair, leaf)
    if carrier.unit == "circ" and _has_pi(bare):  # 2π/3 is 120°, and never a number of degrees
        worth: tuple[Node, ...] = (Const("pi"), Num(Fraction(1, 180)))
    elif carrier.unit == "percent" and verdict is not True:
        worth = (Num(Fraction(1, 100)),)
    else:
        return verdict
    number = Mul((carrier.number, *worth))
    converted = same(*((number, bare) if carrier is gold else (bare, number)), leaf)
    return converted if carrier.unit == "circ" else _either(verdict, converted)


def _has_pi(node: Node) -> bool:
    return node == Const("pi") or any(_has_pi(child) for child in children(node))


def _either(left: bool | None, right: bool | None) -> bool | None:
    return True if left or right else None if left is None or right is None else False


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    unknown = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unknown |= verdict is None
    return None if unknown else True


def _spread(node: Node) -> Node:
    """±a as the list of both values; an interval written with an inequality stays what it is."""
    if isinstance(node, Group) and node.kind in ("list", "set"):
        items: list[Node] = []
        for item in node.items:
            spread = _spread(item)
            items += spread.items if isinstance(spread, Group) and spread.kind == "list" else [spread]
        return Group(node.kind, tuple(items)) if items != list(node.items) else node
    if isinstance(node, Relation) and len(node.sides) == 2 and node.signs == ("=",):
        right = _spread(node.sides[1])
        if isinstance(right, Group) and right.kind == "list":
            return Group("list", tuple(Relation((node.sides[0], item), ("=",)) for item in right.items))
        return node
    if isinstance(node, Quantity):
        number = _spread(node.number)
        if isinstance(number, Group) and number.kind == "list":
            return Group("list", tuple(Quantity(item, node.unit) for item in number.items))
        return node
    if _has_plus_minus(node):
        return Group("list", (_signed(node, 1), _signed(node, -1)))
    return node


def _has_plus_minus(node: Node) -> bool:
    return isinstance(node, PlusMinus) or any(_has_plus_minus(child) for child in children(node))


def _signed(node: Node, sign: int) -> Node:
    if isinstance(node, PlusMinus):
        right = _signed(node.right, sign)
        return Add((_signed(node.left, sign), right if sign == node.sign else Mul((MINUS_ONE, right))))
    if isinstance(node, Add):
        return Add(tuple(_signed(term, sign) for term in node.terms))
    if isinstance(node, Mul):
        return Mul(tuple(_signed(factor, sign) for factor in node.factors))
    if isinstance(node, Pow):
        return Pow(_signed(node.base, sign), _signed(node.exponent, sign))
    if isinstance(node, Call):
        return Call(node.name, tuple(_signed(arg, sign) for arg in node.args))
    return node


# --- lists, sets, tuples, intervals, unions, ratios


def _same_group(gold: Node, answer: Node, leaf: Leaf) -> bool | None:
    if not isinstance(gold, Group):
        # {3} for 3; anything else is several answers for one
        if isinstance(answer, Group) and answer.kind == "set" and len(answer.items) == 1:
            return same(gold, answer.items[0], leaf)
        return _same_ratio(gold, answer, leaf)
    if not isinstance(answer, Group):
        if gold.kind == "set" and len(gold.items) == 1:
            return same(gold.items[0], answer, leaf)
        return _same_ratio(gold, answer, leaf)
    kinds = {gold.kind, answer.kind}
    if "ratio" in kinds:
        return _same_ratio(gold, answer, leaf)
    if "union" in kinds:
        return _same_union(gold, answer, leaf)
    if kinds <= {"list", "set"}:
        return _same_in_any_order(_distinct(gold), _distinct(answer), leaf)
    if kinds == {"tuple"} and not _are_brackets_alike(gold, answer):
        return False
    if "set" in kinds:
        return False
    if len(gold.items) != len(answer.items):
        return False
    return _all(same(a, b, leaf) for a, b in zip(gold.items, answer.items, strict=True))


def _are_brackets_alike(gold: Group, answer: Group) -> bool:
    """Two entries may be an interval, where brackets matter; more are a vector."""
    return gold.brackets == answer.brackets or len(gold.items) != 2


def _distinct(group: Group) -> list[Node]:
    if group.kind == "list":
        return list(group.items)
    found: list[Node] = []
    for item in group.items:
        if item not in found:
            found.append(item)
    return found


def _same_in_any_order(gold: list[Node], answer: list[Node], leaf: Leaf) -> bool | None:
    if len(gold) != len(answer):
        return False
    if len(gold) > MAX_LIST:
        return _all(same(a, b, leaf) for a, b in zip(gold, answer, strict=True)) or None
    left, unknown = list(answer), False
    for wanted in gold:
        doubtful = False
        for candidate in left:
            verdict = same(wanted, candidate, leaf)
            if verdict:
                left.remove(candidate)
                break
            doubtful |= verdict is None
        else:
            if not doubtful:
                return False
            unknown = True
    return None if unknown else True


def _same_ratio(gold: Node, answer: Node, leaf: Leaf) -> bool | None:
    """`3:4` equals `6:8` and 3/4; a clock time equals itself alone."""
    gold_parts = gold.items if isinstance(gold, Group) and gold.kind == "ratio" else None
    answer_parts = answer.items if isinstance(answer, Group) and answer.kind == "ratio" else None
    if gold_parts is None and answer_parts is None:
        return False
    if gold_parts and answer_parts:
        verdict = len(gold_parts) == len(answer_parts) and _all(
            same(a, b, leaf) for a, b in zip(gold_parts, answer_parts, strict=True)
        )
        if verdict is not False or _may_be_clock(gold_parts) or _may_be_clock(answer_parts):
            return verdict
        if len(gold_parts) != 2 or len(answer_parts) != 2:
            return False
        return same(_quotient(gold_parts), _quotient(answer_parts), leaf)
    parts = gold_parts or answer_parts
    if parts is None or len(parts) != 2 or _may_be_clock(parts):
        return False
    other = answer if gold_parts else gold
    return False if isinstance(other, Group) else same(other, _quotient(parts), leaf)


def _quotient(parts: tuple[Node, ...]) -> Node:
    return Mul((parts[0], Pow(parts[1], MINUS_ONE)))


def _may_be_clock(parts: tuple[Node, ...]) -> bool:
    return any(not isinstance(part, Num) for part in parts) or any(
        isinstance(part, Num) and part.value >= 10 for part in parts[1:]
    )


def _same_union(gold: Group, answer: Group, leaf: Leaf) -> bool | None:
    gold_items, answer_items = united(gold), united(answer)
    left, right = merged(gold_items), merged(answer_items)
    if left is not None and right is not None:
        return left == right
    if gold_items == (gold,) or answer_items == (answer,) or len(gold_items) != len(answer_items):
        return None
    verdict = _same_in_any_order(list(gold_items), list(answer_items), leaf)
    return verdict or (None if left is None or right is None else False)


def _same_matrix(gold: Node, answer: Node, leaf: Leaf) -> bool | None:
    if not isinstance(gold, Matrix) or not isinstance(answer, Matrix):
        return _same_vector(gold, answer, leaf)
    if gold.kind != answer.kind or [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
        return False
    pairs = ((a, b) for rows in zip(gold.rows, answer.rows, strict=True) for a, b in zip(*rows, strict=True))
    return _all(same(a, b, leaf) for a, b in pairs)


def _same_vector(gold: Node, answer: Node, leaf: Leaf) -> bool | None:
    """A column or row is the tuple of its entries; a determinant is left to the caller's other reader."""
    matrix, other = (gold, answer) if isinstance(gold, Matrix) else (answer, gold)
    assert isinstance(matrix, Matrix)
    if matrix.kind == "determinant":
        return None
    if not isinstance(other, Group) or other.kind != "tuple":
        return False
    entries = [row[0] for row in matrix.rows] if all(len(row) == 1 for row in matrix.rows) else list(matrix.rows[0])
    if len(entries) != len(other.items) or sum(map(len, matrix.rows)) != len(entries):
        return False
    pairs = zip(entries, other.items, strict=True) if matrix is gold else zip(other.items, entries, strict=True)
    return _all(same(a, b, leaf) for a, b in pairs)


# --- equations and inequalities

_MIRRORED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "=", r"\ne": r"\ne"}


def _same_relation(gold: Node, answer: Node, leaf: Leaf) -> bool | None:
    gold, answer = _membership(gold), _membership(answer)
    gold_is, answer_is = isinstance(gold, Relation), isinstance(answer, Relation)
    if not gold_is and not answer_is:
        return same(gold, answer, leaf)
    if gold_is and answer_is:
        assert isinstance(gold, Relation) and isinstance(answer, Relation)
        return _same_relations(gold, answer, leaf)
    if gold_is:
        assert isinstance(gold, Relation)
        value = _named_value(gold)
        if value is not None:
            return same(value, answer, leaf)
        as_set = solution_set(gold)
        return same(as_set, answer, leaf) if as_set is not None and isinstance(answer, Group) else False
    assert isinstance(answer, Relation)
    value = _claimed_value(answer)
    if value is not None:
        return same(gold, value, leaf)
    as_set = solution_set(answer)
    return same(gold, as_set, leaf) if as_set is not None and isinstance(gold, Group) else False


def _membership(node: Node) -> Node:
    r"""`x \in S` names S."""
    if isinstance(node, Relation) and node.signs == (r"\in",) and _is_name(node.sides[0]):
        return node.sides[1]
    return node


def _is_name(node: Node) -> bool:
    """A variable, `a_n`, `f(x)`, or words."""
    if isinstance(node, Mul):
        return all(isinstance(factor, (Sym, Const)) for factor in node.factors)
    return isinstance(node, (Sym, Words))


def _named_value(relation: Relation) -> Node | None:
    """What a reference `x = 5` gives a value to."""
    if relation.signs != ("=",):
        return None
    left, right = relation.sides
    if _is_name(left):
        return right
    return left if _is_name(right) and not has_symbol(left) else None


def _claimed_value(relation: Relation) -> Node | None:
    """The value in `a + b = 7` or `x = 2 + 1 = 3`; `None` for `3 = 5` and everything that is no such claim."""
    if any(sign != "=" for sign in relation.signs):
        return None
    if len(relation.sides) == 2:
        left, right = relation.sides
        if has_symbol(left):
            return right
        return left if has_symbol(right) else _agreed(relation.sides)
    rest = relation.sides[1:] if has_symbol(relation.sides[0]) else relation.sides
    return _agreed(rest)


def _agreed(sides: tuple[Node, ...]) -> Node | None:
    """The last of sides that are all the same number, as in `1/2 = 0.5`."""
    verdicts = [same(sides[-1], side, same_number) for side in sides[:-1]]
    return sides[-1] if all(verdict is True for verdict in verdicts) else None


def _same_relations(gold: Relation, answer: Relation, leaf: Leaf) -> bool | None:
    candidates = [answer]
    if all(sign in _MIRRORED for sign in answer.signs):
        candidates.append(Relation(answer.sides[::-1], tuple(_MIRRORED[sign] for sign in answer.signs[::-1])))
    verdict: bool | None = False
    for candidate in candidates:
        if candidate.signs == gold.signs:
            sides = zip(gold.sides, candidate.sides, strict=True)
            verdict = _either(verdict, _all(same(a, b, leaf) for a, b in sides))
    if verdict:
        return True
    left, right = solution_set(gold), solution_set(answer)
    if left is not None and right is not None:
        return variable(gold) == variable(answer) and same(left, right, leaf)
    if gold.signs == answer.signs == ("=",):
        if _is_name(gold.sides[0]) and _is_name(answer.sides[0]) and gold.sides[0] == answer.sides[0]:
            return verdict
        value = _claimed_value(answer)  # x = 2 + 1 = 3 for x = 3
        if len(answer.sides) > 2 and value is not None and answer.sides[0] == gold.sides[0]:
            return same(gold.sides[1], value, leaf)
        return _same_equation(gold, answer, leaf)
    if len(answer.sides) > 2 and gold.signs == ("=",) and answer.sides[0] == gold.sides[0]:
        value = _claimed_value(answer)
        return False if value is None else same(gold.sides[1], value, leaf)
    return None if set(gold.signs) == set(answer.signs) else False


def _same_equation(gold: Relation, answer: Relation, leaf: Leaf) -> bool | None:
    """Equations of one curve differ by a constant factor: their two differences are proportional."""
    return leaf(
        Call("zero", (Add((gold.sides[0], Mul((MINUS_ONE, gold.sides[1])))),)),
        Call("zero", (Add((answer.sides[0], Mul((MINUS_ONE, answer.sides[1])))),)),
    )
