"""Numbers and names as a page shows them."""

from __future__ import annotations

import math

STATUS_WORDS = {
    "scored": "scored",
    "undecided": "undecided: a reward function could not tell",
    "fault": "fault: a reward function, judge or grader failed",
    "failed": "failed: the rollout broke off",
    "pending": "pending: waits for its group to be scored",
    "unscored": "unscored: scoring was switched off",
}
STATUS_MARKS = {"failed": "✕", "fault": "!", "undecided": "?", "pending": "…", "unscored": "–", "scored": "–"}


def number(value: float | None, digits: int = 3) -> str:
    """At most `digits` after the point, no trailing zeros; what would round to nothing keeps two figures.

    >>> number(0.25), number(1.0), number(-0.00012), number(None)
    ('0.25', '1', '−0.00012', '–')
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return str(value)
    if value < 0:
        return f"−{number(-value, digits)}"
    if value and value < 0.5 * 10**-digits:
        return f"{value:.2g}"
    if value >= 1e9:
        return f"{value:.3g}"
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def signed(value: float | None) -> str:
    text = number(value)
    return f"+{text}" if value is not None and value > 0 else text


def short(value: float) -> str:
    """At most four characters, to stand in a square: 1, 0, .75, −.5, 12, 1e3.

    >>> short(0.75), short(1.0), short(-0.5), short(1234.0)
    ('.75', '1', '−.5', '1e3')
    """
    if abs(value) >= 1000:
        mantissa, _, power = f"{value:.0e}".partition("e")
        return f"{mantissa}e{int(power)}".replace("-", "−")
    text = number(value, 0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 2)
    return text.replace("0.", ".", 1) if abs(value) < 1 and "." in text else text


def seconds(value: float) -> str:
    """
    >>> seconds(0.0042), seconds(3.14159), seconds(83), seconds(7300)
    ('4.2 ms', '3.1 s', '1 min 23 s', '2 h 1 min')
    """
    if value < 0.1:
        return f"{number(value * 1000, 1)} ms"
    if value < 59.95:
        return f"{number(value, 1)} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def count(n: int, noun: str) -> str:
    """
    >>> count(1, "try"), count(2, "try"), count(3, "turn")
    ('1 try', '2 tries', '3 turns')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else many}"
