"""`why_wrong`: whether calls are the asked ones, by names, types and allowed values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bfcl.rows import CATEGORIES, tool_name

Answer = Mapping[str, Mapping[str, Sequence[Any]]]  # function → parameter → allowed values; "" among them: optional

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "float": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "tuple": (list,),
    "dict": (dict,),
    "object": (dict,),
}
_IGNORED = re.compile(r"[ ,./\-_*^]")


class Call(NamedTuple):
    name: str
    arguments: dict[str, Any]


def why_wrong(
    calls: Sequence[Call],
    category: str,
    functions: Sequence[Mapping[str, Any]],
    answers: Sequence[Answer],
    said_something: bool,
) -> str | None:
    """`None` when they are right. In parallel categories the order of calls does not matter."""
    wants = CATEGORIES[category].wants
    if wants == "none":
        if calls:
            return f"{calls[0].name} was called, and no function fits"
        return None if said_something else "the reply is empty"
    known = {tool_name(function["name"]): function for function in functions}
    unknown = [call.name for call in calls if tool_name(call.name) not in known]
    if unknown:
        return f"there is no function {unknown[0]}"
    if wants == "any":
        return None if calls else "no function was called"
    if len(calls) != len(answers):
        return f"{len(calls)} calls, {len(answers)} are asked for"
    reasons_CA = [[_why_other(call, known[tool_name(call.name)], answer) for answer in answers] for call in calls]
    if _can_be_paired([[reason is None for reason in reasons_A] for reasons_A in reasons_CA]):
        return None
    return next((r for reasons_A in reasons_CA if all(reasons_A) for r in reasons_A if r), "two calls answer the same")


def _why_other(call: Call, function: Mapping[str, Any], answer: Answer) -> str | None:
    (name, allowed), *_ = answer.items()
    if tool_name(name) != tool_name(call.name):
        return f"{call.name} was called, not {name}"
    properties = function["parameters"]["properties"]
    for parameter in function["parameters"].get("required") or ():
        if parameter not in call.arguments:
            return f"{call.name} lacks {parameter}"
    for parameter, value in call.arguments.items():
        if parameter not in properties or parameter not in allowed:
            return f"{call.name} has no parameter {parameter} here"
        wrong = _why_not_allowed(value, allowed[parameter], properties[parameter])
        if wrong:
            return f"{call.name}, {parameter}: {wrong}"
    for parameter, values in allowed.items():
        if parameter not in call.arguments and "" not in values:
            return f"{call.name} lacks {parameter}"
    return None


def _why_not_allowed(value: Any, allowed: Sequence[Any], schema: Mapping[str, Any]) -> str | None:
    # some answers are of another type than the function says: a variable's name, or true for a text
    is_as_answered = any(type(one) is type(value) and one != "" for one in allowed)
    if not is_as_answered and not has_type(value, schema):
        return f"{value!r:.60} is not of type {schema.get('type', 'any')}"
    return None if any(same(value, one) for one in allowed) else f"{value!r:.60} is none of {list(allowed)!r:.80}"


def has_type(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value fits a parameter's type and its items' type; a bool is no number, a float no integer.

    >>> has_type([1, 2], {"type": "array", "items": {"type": "float"}}), has_type(True, {"type": "integer"})
    (True, False)
    """
    wanted = _TYPES.get(str(schema.get("type")))
    if wanted is None:
        return True
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        return False
    items = schema.get("items")
    return not isinstance(items, Mapping) or not isinstance(value, list) or all(has_type(v, items) for v in value)


def same(value: Any, allowed: Any) -> bool:
    """Texts without case and without spaces and marks that do not matter; numbers by value; the rest part by part."""
    if isinstance(value, str) and isinstance(allowed, str):
        return bool(allowed == value) or (allowed != "" and _bare(value) == _bare(allowed))
    if isinstance(value, bool) or isinstance(allowed, bool):
        return value is allowed
    if isinstance(value, Mapping) and isinstance(allowed, Mapping):
        return _same_dict(value, allowed)
    if isinstance(value, list) and isinstance(allowed, list):
        return len(value) == len(allowed) and all(map(same, value, allowed))
    return type(allowed) is not str and type(value) is not str and value == allowed


def _same_dict(value: Mapping[str, Any], allowed: Mapping[str, Any]) -> bool:
    """An answer's dict holds a list of allowed values for each key, "" among them where it may be left out."""
    if any(key not in allowed for key in value):
        return False
    for key, values in allowed.items():
        listed = values if isinstance(values, list) else [values]
        if key not in value:
            if "" not in listed:
                return False
        elif not any(same(value[key], one) for one in listed) and not same(value[key], values):
            return False
    return True


def _bare(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')


def _can_be_paired(fits: Sequence[Sequence[bool]]) -> bool:
    """Whether every call can be given an answer of its own: augmenting paths, so that the order plays no part."""
    taken: dict[int, int] = {}  # answer → call

    def place(call: int, tried: set[int]) -> bool:
        for answer, is_fit in enumerate(fits[call]):
            if is_fit and answer not in tried:
                tried.add(answer)
                if answer not in taken or place(taken[answer], tried):
                    taken[answer] = call
                    return True
        return False

    return all(place(call, set()) for call in range(len(fits)))
