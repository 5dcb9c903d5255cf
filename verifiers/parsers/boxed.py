r"""Answers marked inside plain text: ``\boxed{...}`` and ``#### ...``."""

import re
from typing import Any

# The possessive \s*+ keeps the search linear on long runs of spaces.
_BOX_OPENING = re.compile(r"\\(?:boxed|fbox)\s*+\{")
# An escaped brace (\{ or \}) is a printed brace, not a TeX group, so it is skipped as one token.
_BRACE_OR_ESCAPE = re.compile(r"\\.|[{}]", re.DOTALL)


def extract_boxed_answer(text: Any, strict: bool = False) -> str:
    r"""The content of the last ``\boxed{...}`` (or ``\fbox{...}``), braces balanced.

    Without one, or when the last one never closes, the text itself; ``""`` when `strict`.
    An earlier box does not stand in for a last one that was cut off. Linear in the length of the text.

    >>> extract_boxed_answer(r"First \boxed{5}, no: \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    """
    text = _as_text(text)
    content = _last_box(text)
    if content is None:
        return "" if strict else text
    return content


def extract_hash_answer(text: Any) -> str:
    """What follows the first ``####`` (up to another one), stripped; the text unchanged without the mark."""
    text = _as_text(text)
    parts = text.split("####", 2)
    return text if len(parts) == 1 else parts[1].strip()


def _last_box(text: str) -> str | None:
    openings = [match.end() for match in _BOX_OPENING.finditer(text)]
    if not openings:
        return None
    start, depth = openings[-1], 1
    for token in _BRACE_OR_ESCAPE.finditer(text, start):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
            if depth == 0:
                return text[start : token.start()]
    return None


def _as_text(value: Any) -> str:
    """Data sets hold numbers and gaps where a text is expected; neither may stop the scoring."""
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value)
