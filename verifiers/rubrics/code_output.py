"""Whether what a program wrote, or a function returned, is what the test expects.

Text is compared line by line without the blanks round it; lines that differ, word by word, where numbers are equal as
exact decimals. Values are compared as JSON: a tuple counts as a list.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from itertools import zip_longest
from typing import Any

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)


def text_difference(expected: str, found: str, tolerance: float | None = None) -> str | None:
    """Where they differ; `None` when they do not. `tolerance` is relative; a zero is met within it.

    >>> text_difference("1.0 yes", " 1 yes  "), text_difference("1\\n2", "1")
    (None, 'line 2 is missing')
    """
    lines = zip_longest(expected.strip().split("\n"), found.strip().split("\n"))
    for number, (wanted, given) in enumerate(lines, 1):
        if given is None:
            return f"line {number} is missing"
        if wanted is None:
            return f"line {number} is one too many"
        if wanted.strip() != given.strip() and not _same_words(wanted.split(), given.split(), tolerance):
            return f"line {number} differs"
    return None


def _same_words(expected: list[str], found: list[str], tolerance: float | None) -> bool:
    return len(expected) == len(found) and all(
        wanted == given or _same_decimals(wanted, given, tolerance)
        for wanted, given in zip(expected, found, strict=True)
    )


def _same_decimals(expected: str, found: str, tolerance: float | None) -> bool:
    if not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(found)):
        return False
    if Decimal(expected) == Decimal(found):
        return True
    return tolerance is not None and _is_close(float(expected), float(found), tolerance)


def same_value(expected: Any, found: Any, tolerance: float | None = None) -> bool:
    """Of two JSON values. True is 1 and 1 is 1.0, as in Python; a text is never a number."""
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(found, (list, tuple))
            and len(expected) == len(found)
            and all(same_value(wanted, given, tolerance) for wanted, given in zip(expected, found, strict=True))
        )
    if isinstance(expected, dict):
        wanted = {str(key): value for key, value in expected.items()}
        return (
            isinstance(found, dict)
            and wanted.keys() == found.keys()
            and all(same_value(value, found[key], tolerance) for key, value in wanted.items())
        )
    if expected == found:
        return True
    if tolerance is None or not _is_number(expected) or not _is_number(found):
        return False
    try:
        return _is_close(float(expected), float(found), tolerance)
    except OverflowError:  # an integer beyond every float
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_close(expected: float, found: float, tolerance: float) -> bool:
    if not (math.isfinite(expected) and math.isfinite(found)):
        return False
    return abs(expected - found) <= tolerance * (abs(expected) or 1.0)
