r"""Which reference answers rules can compare: numbers, with or without a unit, and formulas.

Rules would take "ATP" for a product, and "PTA" for the same one; so words, and chemical formulas, are for a judge.
"""

from __future__ import annotations

import re

MAX_CHARS = 100

_POWER = r"(?:\s*(?:\\times|\\cdot|×|\*)\s*10\^?(?:\{[-+]?\d+\}|[-+]?\d+)|[eE][-+]?\d+)"
_NUMBER = rf"[-+]?\s*(?:\d{{1,3}}(?:,\d{{3}})+|\d+)?(?:\.\d+)?(?:{_POWER})?"
_UNIT = r"(?:[A-Za-zµμΩ°%][A-Za-zµμΩ°%/*·^{}\-0-9 ]{0,24}|\\%|\\(?:mathrm|text)\{[^{}]{1,30}\})"
_QUANTITY = re.compile(rf"(?P<number>{_NUMBER})\s*(?P<unit>{_UNIT})?")
_SYMBOL = re.compile(r"\\[A-Za-z]+|\^|_|=|[-+*/<>≤≥]")
_COMMAND = re.compile(r"\\(?:text|mathrm)\{[^{}]*\}|\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{3,}")
_FUNCTIONS = re.compile(r"\b(?:sin|cos|tan|cot|log|ln|exp|lim|max|min|arcsin|arccos|arctan|sqrt)\b")
_ELEMENTS = re.compile(r"(?:[\[(]*[A-Z][a-z]?[\])]*(?:_?\{?\d+\}?)?(?:\^?\{?\d*[+-]\}?)?[\s·.=≡-]*){2,}")


def readable(reference: str) -> str | None:
    r"""The reference in the form that rules compare, its unit marked; `None` where they cannot.

    >>> readable("3.2 m/s"), readable("$x^2+1$"), readable("B"), readable("H_2SO_4"), readable("the cell wall")
    ('3.2\\text{ m/s}', 'x^2+1', 'B', None, None)
    """
    text = reference.strip().replace("$", "").strip().removesuffix(".").strip()
    text = re.sub(r"(?<=\d)\s*[x×]\s*(?=10\^)", r" \\times ", text)
    if not text or len(text) > MAX_CHARS:
        return None
    if re.fullmatch(r"\(?[A-J]\)?", text):  # a choice
        return text.strip("()")
    quantity = _QUANTITY.fullmatch(text)
    if quantity and re.search(r"\d", quantity["number"]):
        unit = quantity["unit"]
        if unit is None:
            return text
        if unit.startswith("\\") or unit in ("%", "°"):
            return text
        return f"{quantity['number'].strip()}\\text{{ {unit.strip()}}}" if not _says_more(unit) else None
    return text if _is_formula(text) else None


def _says_more(unit: str) -> bool:
    """Whether what follows a number is more than a unit: "12 or more", "3 of the 4"."""
    return len(unit.split()) > 2 or re.search(r"\b(?:or|and|to|of|per|for|is|are|the|times)\b", unit) is not None


def _is_formula(text: str) -> bool:
    if _ELEMENTS.fullmatch(text):
        return False
    plain = _FUNCTIONS.sub(" ", _COMMAND.sub(" ", text))
    is_whole = re.search(r"[-+*/=^_<>]\s*$", text) is None
    return is_whole and _SYMBOL.search(text) is not None and _WORD.search(plain) is None
