"""Ranges: the numbers that conditions on one variable, intervals and finite sets name.

Where all ends are rational, equal ranges are found however they are written: `x < -1 or x > 1`, a union of intervals,
`x ≠ 1`. Ends of another kind are left to who compares expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from verifiers.rubrics.math_exact import INFINITIES, NotRational, rational
from verifiers.rubrics.math_parse import Group, Node, Relation, Sym, Words, children
from verifiers.rubrics.math_text import TooLarge

_Piece: TypeAlias = "tuple[float | Fraction, bool, float | Fraction, bool]"  # low, is open there, high, is closed there


@dataclass(frozen=True, slots=True)
class _Interval:
    low: Node
    high: Node
    has_low: bool
    has_high: bool


def _interval(node: Node) -> _Interval | None:
    if not isinstance(node, Group) or node.kind != "tuple" or len(node.items) != 2:
        return None
    low, high = node.items
    return _Interval(low, high, node.brackets[0] == "[", node.brackets[1] == "]")


def united(group: Group) -> tuple[Node, ...]:
    """What is united: `x < -1 or x > 1` too."""
    if group.kind == "union":
        return group.items
    sets = [solution_set(item) if isinstance(item, Relation) else None for item in group.items]
    ranges = tuple(item for item in sets if item is not None)
    is_union = group.kind == "list" and group.brackets == "or" and len(variables(group)) == 1
    return ranges if is_union and len(ranges) == len(sets) else (group,)


def has_condition(node: Node) -> bool:
    """`x < 3`, `x ≠ 3`, or a list with one."""
    if isinstance(node, Relation):
        return any(sign in ("<", ">", r"\le", r"\ge", r"\ne") for sign in node.signs)
    return isinstance(node, Group) and node.kind == "list" and any(has_condition(item) for item in node.items)


def variables(node: Node) -> set[Node | None]:
    """Of the relations in it."""
    if isinstance(node, Relation):
        return {variable(node)}
    return set().union(*(variables(item) for item in node.items)) if isinstance(node, Group) else set()


def pieces(node: Node) -> list[_Piece] | None:
    """The numbers that a condition or a set names, where its ends are rational; `None` for what is neither.

    Commas between conditions say "or" when they have nothing in common, else "and". A condition that adds nothing to
    the others is no description but a second answer: `x > 3 or x > 2`.
    """
    if isinstance(node, Relation):
        return _pieces_of_relation(node)
    if not isinstance(node, Group):
        return None
    if node.kind != "list":
        return merged(node.items if node.kind == "union" else (node,))
    parts = [pieces(item) if isinstance(item, Relation) else None for item in node.items]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    common = known[0]
    for part in known[1:]:
        common = _common(common, part)
    is_and = node.brackets == "and" or (node.brackets == "" and common)
    found = common if is_and else _joined([piece for part in known for piece in part])
    return None if found in known else found


def _pieces_of_relation(relation: Relation) -> list[_Piece] | None:
    interval = solution_set(relation)
    if interval is not None:
        return merged((interval,))
    name = variable(relation)
    if name is None or relation.signs not in (("=",), (r"\ne",)):
        return None
    value = end(relation.sides[1] if relation.sides[0] == name else relation.sides[0])
    if value is None:
        return None
    if relation.signs == ("=",):
        return [(value, False, value, True)]
    return [(float("-inf"), True, value, False), (value, True, float("inf"), False)]


def _common(left: list[_Piece], right: list[_Piece]) -> list[_Piece]:
    found = []
    for a in left:
        for b in right:
            low, high = max(a[:2], b[:2]), min(a[2:], b[2:])
            if low[0] < high[0] or (low[0] == high[0] and not low[1] and high[1]):
                found.append((*low, *high))
    return found


def merged(items: tuple[Node, ...]) -> list[_Piece] | None:
    """Intervals and finite sets with rational ends as disjoint, sorted pieces; `None` for any other."""
    found: list[_Piece] = []
    for item in items:
        interval = _interval(item)
        if interval is not None:
            low, high = end(interval.low), end(interval.high)
            if low is None or high is None:
                return None
            # closed ends sort first below and last above
            found.append((low, not interval.has_low, high, interval.has_high))
        elif isinstance(item, Group) and item.kind == "set":
            for point in item.items:
                value = end(point)
                if value is None:
                    return None
                found.append((value, False, value, True))
        else:
            return None
    return _joined(found)


def _joined(given: list[_Piece]) -> list[_Piece]:
    found: list[_Piece] = []
    for piece in sorted(given):
        if found:
            low, low_open, high, high_closed = found[-1]
            if piece[0] < high or (piece[0] == high and (high_closed or not piece[1])):
                found[-1] = (low, low_open, *max((high, high_closed), (piece[2], piece[3])))
                continue
        found.append(piece)
    return found


def end(node: Node) -> Fraction | float | None:
    if node in INFINITIES:
        return float("inf") if node == INFINITIES[0] else float("-inf")
    try:
        return rational(node)
    except (NotRational, TooLarge):
        return None


def variable(relation: Relation) -> Node | None:
    names = [side for side in relation.sides if isinstance(side, Sym)]
    return names[0] if len(names) == 1 else None


def solution_set(relation: Relation) -> Group | None:
    r"""The interval that `1 < x \le 4` or `x > 3` describes; `None` for any other relation."""
    name = variable(relation)
    if name is None or any(sign not in ("<", ">", r"\le", r"\ge") for sign in relation.signs):
        return None
    at = relation.sides.index(name)
    low: tuple[Node, str] = (INFINITIES[1], "(")
    high: tuple[Node, str] = (INFINITIES[0], ")")
    neighbours = [(at - 1, True), (at, False)]
    if len(relation.sides) > 3:
        return None
    for index, is_before in neighbours:
        if not 0 <= index < len(relation.signs):
            continue
        sign = relation.signs[index]
        bound = relation.sides[index] if is_before else relation.sides[index + 1]
        if has_symbol(bound):
            return None
        is_low = sign in ("<", r"\le") if is_before else sign in (">", r"\ge")
        is_closed = sign in (r"\le", r"\ge")
        if is_low:
            low = (bound, "[" if is_closed else "(")
        else:
            high = (bound, "]" if is_closed else ")")
    if len(relation.sides) == 3 and at != 1:
        return None
    return Group("tuple", (low[0], high[0]), low[1] + high[1])


def has_symbol(node: Node) -> bool:
    return isinstance(node, (Sym, Words)) or any(has_symbol(child) for child in children(node))
