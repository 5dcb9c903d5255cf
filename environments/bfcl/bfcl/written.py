"""Calls written in a reply, as a list in Python's form. Nothing is evaluated: values are literals."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from bfcl.checker import Call

MAX_CHARS = 20_000


class NoCalls(Exception):
    """What should be calls cannot be read."""


def read_calls(text: str) -> list[Call]:
    """The calls in `[f(a=1), g(b="x")]`; none in a text that does not begin like one. Raises NoCalls.

    >>> read_calls('[shop.order(item="tea", count=-2)]')
    [Call(name='shop.order', arguments={'item': 'tea', 'count': -2})]
    """
    text = re.sub(r"^```\w*\n(.*?)\n?```$", r"\1", text.strip(), flags=re.DOTALL).strip()
    if not re.match(r"\[|[\w.]+\(", text):
        return []
    try:
        if len(text) > MAX_CHARS:
            raise NoCalls(f"the reply has more than {MAX_CHARS} characters")
        parsed = ast.parse(text, mode="eval").body
        nodes = parsed.elts if isinstance(parsed, ast.List) else [parsed]
        return [_call(node) for node in nodes]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise NoCalls(f"the calls cannot be read: {error}") from None


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError(f"{ast.unparse(node)[:60]} is no call with arguments by name")
    names = [str(keyword.arg) for keyword in node.keywords]
    return Call(ast.unparse(node.func), dict(zip(names, (_value(k.value) for k in node.keywords), strict=True)))


def _value(node: ast.expr) -> Any:
    value = ast.literal_eval(node)
    return _lists(value)


def _lists(value: Any) -> Any:
    """JSON has no tuples and no sets."""
    if isinstance(value, (list, tuple)):
        return [_lists(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _lists(item) for key, item in value.items()}
    if isinstance(value, (set, bytes, complex)):
        raise ValueError(f"{value!r:.40} is no value of a parameter")
    return value


def in_python(calls: Sequence[Call]) -> str:
    """As `read_calls` reads it."""
    written = [f"{c.name}({', '.join(f'{name}={value!r}' for name, value in c.arguments.items())})" for c in calls]
    return f"[{', '.join(written)}]"
