"""Two evaluations side by side: the difference with its interval, which examples changed, and their rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verifiers.records import RolloutRecord
from verifiers.statistics import PairedDifference
from verifiers.viewer.charts import interval_plot
from verifiers.viewer.comparison import Comparison, ExamplePair
from verifiers.viewer.html import Child, Html, tag
from verifiers.viewer.links import Links
from verifiers.viewer.listing import PAGE_SIZE
from verifiers.viewer.rollout import render_rollout
from verifiers.viewer.rows import Example, SampleRow
from verifiers.viewer.squares import Scale, strip
from verifiers.viewer.wording import count, number, signed

BUCKETS = {
    "changed": "changed sides",
    "gained": "only the candidate passes",
    "lost": "only the baseline passes",
    "both_pass": "both pass",
    "both_fail": "both fail",
    "not_comparable": "not comparable",
}
_SHORT = {
    "gained": "gained",
    "lost": "lost",
    "both_pass": "both pass",
    "both_fail": "both fail",
    "not_comparable": "not comparable",
}


@dataclass(frozen=True, kw_only=True)
class ComparisonState:
    """What a reader asked the comparison for, as it stands in its address."""

    names: tuple[str, str] = ("baseline", "candidate")
    show: str = ""  # one of `BUCKETS`; empty: all
    page: int = 1


def render_comparison(comparison: Comparison, *, links: Links, state: ComparisonState | None = None) -> Html:
    """Differences first, the largest on top. `links.candidate` and `links.pair` are used where they are given."""
    state = state or ComparisonState()
    pairs = comparison.in_order(state.show if state.show in BUCKETS else None)
    n_pages = max(1, -(-len(pairs) // PAGE_SIZE))
    page = min(max(1, state.page), n_pages)
    shown = pairs[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    rows = [row for pair in comparison.examples for e in (pair.baseline, pair.candidate) if e for row in e.tries]
    scale = Scale.of(rows)
    return tag(
        "section",
        _verdict(comparison, state),
        _warning(comparison),
        _buckets(comparison, links, state),
        _table(shown, links, scale, state) if shown else tag("p", "No such example.", class_="rv-nothing"),
        _pages(page, n_pages, links, state) if n_pages > 1 else None,
        class_="rv rv-comparison",
    )


def verdict(difference: PairedDifference) -> str:
    """The comparison in one sentence, no stronger than its interval."""
    if difference.mean is None:
        return "The two runs have no scored example in common."
    over = f"over {count(difference.n_examples, 'example')}"
    if difference.interval is None:
        return f"The candidate differs by {signed(difference.mean)} {over}: too few for an interval."
    low, high = difference.interval.low, difference.interval.high
    interval = f"95 % interval {signed(low)} to {signed(high)}"
    if low > 0 or high < 0:
        word = "better" if difference.mean > 0 else "worse"
        return f"The candidate is {word} by {number(abs(difference.mean))} {over} ({interval})."
    return f"No difference can be told: {signed(difference.mean)} {over} ({interval})."


def _verdict(comparison: Comparison, state: ComparisonState) -> Html:
    difference = comparison.difference
    interval = difference.interval
    figures = [
        (number(difference.baseline_mean), state.names[0]),
        (number(difference.candidate_mean), state.names[1]),
        (signed(difference.mean), "paired difference"),
    ]
    if interval is not None:
        figures.append((f"[{signed(interval.low)}, {signed(interval.high)}]", "95 % interval"))
    cells = [tag("div", tag("b", value), tag("span", label, class_="rv-muted")) for value, label in figures]
    said = tag("p", verdict(difference), class_="rv-verdict")
    return tag("div", tag("div", *cells, class_="rv-figures"), interval_plot(difference), said)


def _warning(comparison: Comparison) -> Html | None:
    n = comparison.n_other_questions
    if not n:
        return None
    verb = "asks" if n == 1 else "ask"
    return tag(
        "p",
        f"{count(n, 'example')} of equal id {verb} different questions in the two runs: are they over the same rows?",
        class_="rv-problem",
        role="alert",
    )


def _buckets(comparison: Comparison, links: Links, state: ComparisonState) -> Html:
    counts: dict[str, int] = {**comparison.counts}
    counts["changed"] = counts["gained"] + counts["lost"]
    items: list[Child] = [_bucket("", "all", len(comparison.examples), links, state)]
    items += [_bucket(name, label, counts[name], links, state) for name, label in BUCKETS.items()]
    return tag("ul", *items, class_="rv-facets", aria_label="Examples to show")


def _bucket(name: str, label: str, n: int, links: Links, state: ComparisonState) -> Html:
    here = "page" if state.show == name else None
    return tag("li", tag("a", label, tag("b", f"{n:,}"), href=links.list_url(show=name), aria_current=here))


def _table(shown: Sequence[ExamplePair], links: Links, scale: Scale, state: ComparisonState) -> Html:
    names = ("example", *state.names, "difference", "", "question")
    head = tag("tr", *(tag("th", name or tag("span", "outcome", class_="rv-sr"), scope="col") for name in names))
    table = tag("table", tag("thead", head), tag("tbody", *(_row(p, links, scale) for p in shown)), class_="rv-table")
    return tag("div", table, class_="rv-scroll", tabindex=0, role="region", aria_label="Table of examples")


def _row(pair: ExamplePair, links: Links, scale: Scale) -> Html:
    title: Child = pair.title or "(no text)"
    id_: Child = pair.example_id
    if links.pair is not None and pair.baseline and pair.candidate:
        url = links.pair(pair.example_id)
        id_, title = tag("a", id_, href=url), tag("a", title, href=url)
    difference = pair.difference
    sign = "" if not difference else " rv-more" if difference > 0 else " rv-less"
    return tag(
        "tr",
        tag("th", id_, scope="row", class_="rv-col-example"),
        tag("td", _tries(pair.baseline, links, scale, is_candidate=False), class_="rv-col-tries"),
        tag("td", _tries(pair.candidate, links, scale, is_candidate=True), class_="rv-col-tries"),
        tag("td", signed(difference), class_=f"rv-col-mean{sign}"),
        tag("td", tag("span", _SHORT[pair.bucket], class_=f"rv-badge rv-{pair.bucket.replace('_', '-')}")),
        tag("td", title, class_="rv-col-question"),
    )


def _tries(example: Example | None, links: Links, scale: Scale, *, is_candidate: bool) -> Child:
    if example is None:
        return "–"
    if is_candidate and links.candidate is not None:
        links = Links(rollout=links.candidate, listing=links.listing)
    return strip(example.tries, links, scale)


def _pages(page: int, n_pages: int, links: Links, state: ComparisonState) -> Html:
    def to(number: int, label: str) -> Html:
        if not 1 <= number <= n_pages:
            return tag("span", label, class_="rv-off")
        return tag("a", label, href=links.list_url(show=state.show, page=str(number)))

    here = tag("span", f"page {page:,} of {n_pages:,}")
    return tag("nav", to(page - 1, "← earlier"), here, to(page + 1, "later →"), class_="rv-pages", aria_label="Pages")


def render_pair(
    baseline: RolloutRecord | None,
    candidate: RolloutRecord | None,
    *,
    links: tuple[Links, Links],
    names: tuple[str, str] = ("baseline", "candidate"),
    roles: tuple[str, str] = ("baseline", "candidate"),
    tries: tuple[Sequence[SampleRow], Sequence[SampleRow]] = ((), ()),
) -> Html:
    """Two rollouts of one example in two columns. `tries` are those to choose from, by `Links.rollout` of each side.

    A record that is `None` is one that its run does not have.
    """
    scale = Scale.of([*tries[0], *tries[1]])
    columns: list[Child] = []
    for n, (record, role) in enumerate(zip((baseline, candidate), roles, strict=True)):
        key = None if record is None else record.key
        choice = strip(tries[n], links[n], scale, selected=key) if len(tries[n]) > 1 else None
        side = tag("p", names[n], " ", tag("span", role, class_="rv-muted"), " ", choice, class_="rv-side")
        if record is None:
            shown = tag("p", "This run does not have the example.", class_="rv-nothing")
        else:
            shown = render_rollout(record, links=links[n], prefix=("a-", "b-")[n], is_narrow=True)
        columns.append(tag("div", side, shown))
    return tag("section", *columns, class_="rv rv-pair")
