"""How numbers are written for people: short, aligned, the same in the display and in the table."""

from __future__ import annotations

import re

from verifiers.statistics import Interval, Ungraded

_BREAKS = re.compile(r"[\x00-\x1f\x7f]+ *")  # line breaks, and what would move the terminal's cursor


def number(value: float | None, digits: int = 3) -> str:
    """`None` is a dash: unknown is not zero."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(value: Interval | None) -> str:
    return "" if value is None else f"[{value.low:.3f}, {value.high:.3f}]"


def weight(value: float) -> str:
    return f"×{value:g}"


def count(value: float) -> str:
    """1234567 → 1.2M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.1f}{unit}"
    return f"{value:.0f}"


def ungraded(found: Ungraded) -> str:
    """The share that could not be graded, of late and before; nothing while there is none."""
    if not found.n_ungraded:
        return ""
    text = f"ungraded {found.recent_share or 0.0:.0%} of the last {found.n_recent}"
    if found.earlier_share is not None:
        text += f" ({found.earlier_share:.0%} before)"
    return f"ALARM: {text}" if found.is_alarming else text


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 60 else duration(value)


def money(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def cut(text: str, width: int) -> str:
    """One line of at most `width` characters."""
    text = _BREAKS.sub(" ", text)
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
