"""What a grading worker does with mathematical answers in notation that we do not read: it asks math-verify.

Sums, integrals, conditions. Worker processes alone may do that: math-verify's own timers are signals, which work in a
main thread alone and break no C code.
"""

from __future__ import annotations

from typing import Any

CANARY = ({"gold": r"\sqrt{8}", "answer": r"2\sqrt2"}, {"same": True, "reason": None})


def prepare() -> None:
    """Loads math-verify and runs it once, since its grammar is built on first use."""
    import logging

    logging.disable(logging.CRITICAL)  # it warns about the timers that are switched off here
    grade(CANARY[0])


def grade(task: dict[str, str]) -> dict[str, Any]:
    """`{"same": True | False, "reason": None}`, or `{"broken": ...}` for a reference that cannot be read."""
    import math_verify

    settings = [math_verify.LatexExtractionConfig(boxed_match_priority=0)]
    wanted, found = (
        math_verify.parse(rf"\boxed{{{task[side]}}}", settings, "no_fallback", parsing_timeout=None)  # type: ignore[arg-type]
        for side in ("gold", "answer")
    )
    if not wanted:
        return {"broken": f"the reference answer {task['gold']!r:.60} is in no notation that can be read"}
    same = bool(found) and math_verify.verify(wanted, found, timeout_seconds=None)
    return {"same": same and _is_no_rounding(wanted[0], found[0]), "reason": None}


def _is_no_rounding(wanted: Any, found: Any) -> bool:
    """math-verify rounds to six places after the point; different tiny values are not equal for that."""
    import sympy

    if not (isinstance(wanted, sympy.Expr) and isinstance(found, sympy.Expr) and wanted.is_number and found.is_number):
        return True
    left, right = sympy.N(wanted, 60), sympy.N(found, 60)
    size = max(abs(left), abs(right))
    tolerance = sympy.Float("1e-6") if wanted.has(sympy.Float) or found.has(sympy.Float) else sympy.Float("1e-40")
    return bool(abs(left - right) <= size * tolerance)
