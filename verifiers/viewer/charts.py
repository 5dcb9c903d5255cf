"""Small charts as SVG, drawn here so that they need no script."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verifiers.statistics import PairedDifference
from verifiers.viewer.html import Child, Html, tag
from verifiers.viewer.squares import Scale
from verifiers.viewer.wording import count, number, signed

BINS = 20
_WIDTH, _HEIGHT = 10, 40  # of a bin


def reward_histogram(rewards: Sequence[float], scale: Scale) -> Html | None:
    """How the rewards are spread, coloured like their squares. `None` without any."""
    return _histogram(rewards, scale, "reward", lambda middle: f"rv-q{scale.shade(middle)}")


def length_histogram(lengths: Sequence[float], unit: str) -> Html | None:
    """How long the rollouts are, from nothing to the longest. `None` where that is nothing."""
    if not any(lengths):
        return None
    return _histogram(lengths, Scale(0.0, max(lengths)), unit, lambda middle: "rv-neutral")


def _histogram(values: Sequence[float], scale: Scale, what: str, shade: Callable[[float], str]) -> Html | None:
    if not values:
        return None
    span = scale.high - scale.low
    bins = [0] * BINS
    for value in values:
        bins[min(BINS - 1, int((value - scale.low) / span * BINS))] += 1
    highest = max(bins)
    bars: list[Child] = []
    for n, in_bin in enumerate(bins):
        low, high = scale.low + span * n / BINS, scale.low + span * (n + 1) / BINS
        height = max(1.5, in_bin / highest * _HEIGHT) if in_bin else 0
        title = tag("title", f"{what} {number(low)} to {number(high)}: {count(in_bin, 'rollout')}")
        bars.append(
            tag("rect", title, x=n * _WIDTH + 1, y=f"{_HEIGHT - height:.1f}", width=_WIDTH - 2, height=f"{height:.1f}",
                class_=shade((low + high) / 2))
        )  # fmt: skip
    low, high = number(scale.low), number(scale.high)
    chart = tag(
        "svg",
        tag("line", x1=0, y1=_HEIGHT, x2=BINS * _WIDTH, y2=_HEIGHT, class_="rv-axis"),
        *bars,
        viewBox=f"0 0 {BINS * _WIDTH} {_HEIGHT + 1}",
        preserveAspectRatio="none",
        class_="rv-histogram",
        role="img",
        aria_label=f"Distribution of {what} over {count(len(values), 'rollout')}, from {low} to {high}",
    )
    ends = tag("figcaption", tag("span", low), tag("span", what), tag("span", high))
    return tag("figure", chart, ends, class_="rv-figure")


def interval_plot(difference: PairedDifference) -> Html | None:
    """The difference with its interval on a line, and where zero is. `None` without an interval."""
    if difference.mean is None or difference.interval is None:
        return None
    low, high = difference.interval.low, difference.interval.high
    reach = max(abs(low), abs(high), 1e-12) * 1.15

    def x(value: float) -> str:
        return f"{50 + 50 * value / reach:.2f}"

    sign = "rv-more" if low > 0 else "rv-less" if high < 0 else "rv-same"
    return tag(
        "svg",
        tag("line", x1=0, y1=10, x2=100, y2=10, class_="rv-axis"),
        tag("line", x1=50, y1=1, x2=50, y2=19, class_="rv-zero"),
        tag("rect", x=x(low), y=7, width=f"{50 * (high - low) / reach:.2f}", height=6, class_="rv-reach"),
        tag("rect", x=f"{float(x(difference.mean)) - 0.4:.2f}", y=3, width=0.8, height=14, class_="rv-at"),
        viewBox="0 0 100 20",
        preserveAspectRatio="none",
        class_=f"rv-interval {sign}",
        role="img",
        aria_label=f"Difference {signed(difference.mean)}, interval {signed(low)} to {signed(high)}",
    )
