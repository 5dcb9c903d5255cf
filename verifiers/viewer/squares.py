"""Tries as small squares, coloured by reward and marked so that they can be told apart without colours."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from verifiers.viewer.html import Child, Html, tag
from verifiers.viewer.links import Key, Links
from verifiers.viewer.rows import SampleRow
from verifiers.viewer.wording import STATUS_MARKS, STATUS_WORDS, count, number, short

STEPS = 5  # shades from the lowest reward to the highest


@dataclass(frozen=True)
class Scale:
    """From which reward to which the shades go: 0 to 1, unless a run has others."""

    low: float = 0.0
    high: float = 1.0

    @classmethod
    def of(cls, rows: Iterable[SampleRow]) -> Scale:
        rewards = [row.reward for row in rows if row.reward is not None]
        return cls(min([0.0, *rewards]), max([1.0, *rewards]))

    def shade(self, reward: float) -> int:
        return min(STEPS - 1, max(0, round((reward - self.low) / (self.high - self.low) * (STEPS - 1))))


def square(
    row: SampleRow,
    links: Links,
    scale: Scale,
    *,
    is_selected: bool = False,
    is_faint: bool = False,
    **query: str | None,
) -> Html:
    """A link to the rollout; its text is the reward, or the mark of its status."""
    if row.reward is None:
        mark, shade = STATUS_MARKS.get(row.status, "–"), f"rv-{row.status}"
    else:
        mark, shade = short(row.reward), f"rv-q{scale.shade(row.reward)}"
    return tag(
        "a",
        tag("span", mark, aria_hidden="true"),
        tag("span", description(row), class_="rv-sr"),
        href=links.rollout_url(row.key, **query),
        class_=f"rv-try {shade}{' rv-faint' if is_faint else ''}",
        title=description(row),
        aria_current="page" if is_selected else None,
    )


def description(row: SampleRow) -> str:
    outcome = STATUS_WORDS.get(row.status, row.status) if row.reward is None else f"reward {number(row.reward)}"
    stopped = f", stopped by {row.stop_condition}" if row.stop_condition else ""
    return f"Example {row.example_id}, try {row.rollout_index}: {outcome}, {count(row.turns, 'turn')}{stopped}"


def chip(reward: float | None, status: str, scale: Scale) -> Html:
    """The reward as a word in a sentence, coloured like its square."""
    if reward is None:
        return tag("span", STATUS_MARKS.get(status, "–"), " ", status, class_=f"rv-chip rv-{status}")
    return tag("span", number(reward), class_=f"rv-chip rv-q{scale.shade(reward)}")


def strip(
    rows: Iterable[SampleRow],
    links: Links,
    scale: Scale,
    *,
    selected: Key | None = None,
    matching: Container[Key] | None = None,
    **query: str | None,
) -> Html:
    """The tries of one example, side by side; those that a filter left out are faint."""
    squares: list[Child] = []
    for row in rows:
        is_faint = matching is not None and row.key not in matching
        squares.append(square(row, links, scale, is_selected=row.key == selected, is_faint=is_faint, **query))
    return tag("span", *squares, class_="rv-tries")
