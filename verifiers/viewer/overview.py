"""A run in numbers: what stands above the list of its examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from verifiers.statistics import mean_scored, summarise
from verifiers.viewer.charts import length_histogram, reward_histogram
from verifiers.viewer.html import Child, Html, tag
from verifiers.viewer.links import Links
from verifiers.viewer.rows import SampleRow
from verifiers.viewer.squares import Scale
from verifiers.viewer.wording import count, number

MAX_FUNCTIONS = 40  # means shown


def render_overview(rows: Iterable[SampleRow], *, links: Links, weights: Mapping[str, float] | None = None) -> Html:
    """A run in numbers: reward with its interval, reward functions, their distribution, and what can be filtered by."""
    rows = list(rows)
    scale = Scale.of(rows)
    summary = summarise(((row.example_id, row.reward) for row in rows), reward_range=(scale.low, scale.high))
    interval = summary.interval
    figures: list[Child] = [
        tag("div", tag("b", number(summary.mean), class_="rv-mean"), tag("span", "mean reward", class_="rv-muted")),
    ]
    if interval is not None:
        text = f"[{number(interval.low)}, {number(interval.high)}]"
        figures.append(tag("div", tag("b", text), tag("span", "95 % interval", class_="rv-muted")))
    if summary.n_unscored and summary.bounds is not None:
        text = f"{number(summary.bounds.lower)} to {number(summary.bounds.upper)}"
        figures.append(tag("div", tag("b", text), tag("span", "bounds, unscored included", class_="rv-muted")))
    figures.append(
        tag("div", tag("b", summary.scored_text), tag("span", count(summary.n_examples, "example"), class_="rv-muted"))
    )
    k = summary.at_k[-1] if summary.at_k else None
    if k is not None and k.k > 1 and k.pass_at_k is not None:
        text = f"{number(k.pass_at_k)} · {number(k.pass_hat_k)}"
        label = f"pass@{k.k} · pass^{k.k}"
        if k.n_examples < summary.n_examples:
            label += f" of {count(k.n_examples, 'example')}"
        figures.append(tag("div", tag("b", text), tag("span", label, class_="rv-muted")))
    tokens = [row.tokens for row in rows if row.tokens is not None]
    return tag(
        "section",
        tag("div", *figures, class_="rv-figures"),
        tag(
            "div",
            reward_histogram([row.reward for row in rows if row.reward is not None], scale),
            length_histogram(tokens, "tokens") if tokens else length_histogram([row.turns for row in rows], "turns"),
            class_="rv-charts",
        ),
        _functions(rows, weights or {}),
        _facets(rows, links),
        class_="rv rv-overview",
        aria_label="The run in numbers",
    )


def _functions(rows: list[SampleRow], weights: Mapping[str, float]) -> Html | None:
    names = dict.fromkeys(name for row in rows for name in row.scores)
    means: dict[str, float | None] = {}
    for name in list(names)[:MAX_FUNCTIONS]:
        means[name] = mean_scored(row.scores.get(name) for row in rows)
    if not means:
        return None
    cells: list[Child] = []
    for name, value in means.items():
        weight = f" ×{number(weights[name])}" if weights.get(name) else None
        shown = tag("dd", number(value), tag("span", weight, class_="rv-muted") if weight else None)
        cells.append(tag("div", tag("dt", name), shown))
    return tag("dl", *cells, class_="rv-means")


def _facets(rows: list[SampleRow], links: Links) -> Html:
    kinds: dict[str, Counter[str]] = {
        "status": Counter(row.status for row in rows),
        "stop": Counter(row.stop_condition or "none" for row in rows),
        "error": Counter(side for row in rows for side in row.error_sides),
    }
    if truncated := sum(row.is_truncated for row in rows):
        kinds["truncated"] = Counter({"yes": truncated})
    shown: list[Child] = []
    for field, counts in kinds.items():
        for value, n in counts.most_common(12):
            quoted = value if value.replace("_", "").isalnum() else '"' + value.replace('"', '\\"') + '"'
            url = links.list_url(q=f"{field}={quoted}")
            shown.append(tag("li", tag("a", f"{field} {value}", tag("b", f"{n:,}"), href=url)))
    return tag("ul", *shown, class_="rv-facets", aria_label="Filter by")
