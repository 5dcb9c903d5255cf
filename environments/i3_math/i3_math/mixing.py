"""Rows of several sets as one: no question twice, each set in its share."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]

_SETTING = re.compile(
    r"\\(?:left|right|displaystyle|quad|qquad|[,;:! ()\[\]])|\\(?:text|mathrm|mathbf)(?=\{)|[$\s~]|[.?:;]+\s*$"
)


def normalised(question: str) -> str:
    r"""Equal for questions that differ in spaces, case and type-setting alone.

    >>> normalised(r"Find \( x \) if $\dfrac{x}{2} = 3$.") == normalised("find $x$ if $\\frac{x}{2}=3$")
    True
    """
    text = unicodedata.normalize("NFKC", question).casefold().strip()
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return _SETTING.sub("", text)


def without_repeats(pools: Mapping[str, list[Row]]) -> dict[str, list[Row]]:
    """The first row of each question, over all pools in their order."""
    seen: set[str] = set()
    kept: dict[str, list[Row]] = {name: [] for name in pools}
    for name, rows in pools.items():
        for row in rows:
            key = normalised(row["question"])
            if key not in seen:
                seen.add(key)
                kept[name].append(row)
    return kept


def mixed(pools: Mapping[str, list[Row]], shares: Mapping[str, float] | None, num: int, seed: int | None) -> list[Row]:
    """The first `num` rows (-1: all). Without shares the pools one after the other, shuffled together by a seed.

    With shares (of any sum) as many rows as keep them, spread so that each stretch of the result has the same mix.
    """
    if shares is None:
        rows = [row for pool in pools.values() for row in pool]
        rows = rows if seed is None else random.Random(seed).sample(rows, len(rows))
        return rows if num < 0 else rows[:num]
    if seed is not None:
        pools = {name: random.Random(f"{seed} {name}").sample(pool, len(pool)) for name, pool in pools.items()}
    counts = _counts({name: len(pool) for name, pool in pools.items()}, shares, num)
    placed = [
        ((place + 0.5) / counts[name], order, row)
        for order, (name, pool) in enumerate(pools.items())
        for place, row in enumerate(pool[: counts[name]])
    ]
    return [row for _, _, row in sorted(placed, key=lambda one: one[:2])]


def _counts(there: Mapping[str, int], shares: Mapping[str, float], num: int) -> dict[str, int]:
    """How many rows of each pool keep the shares; what rounding leaves goes to the largest remainders."""
    whole = sum(shares.values())
    wanted = {name: share / whole for name, share in shares.items()}
    most = int(min(there[name] / part for name, part in wanted.items()) + 1e-9)
    total = most if num < 0 else min(most, num)
    counts = {name: int(total * part + 1e-9) for name, part in wanted.items()}
    by_remainder = sorted(wanted, key=lambda name: counts[name] - total * wanted[name])
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] = min(counts[name] + 1, there[name])
    return counts
