"""The list of a run's examples with their tries, and the form that filters it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from verifiers.viewer.filters import FIELDS
from verifiers.viewer.html import Child, Html, tag
from verifiers.viewer.links import Key, Links
from verifiers.viewer.messages import fold
from verifiers.viewer.rows import DEFAULT_ORDER, ORDERS, Example, SampleRow
from verifiers.viewer.selection import Selection
from verifiers.viewer.squares import strip
from verifiers.viewer.wording import count, number, seconds

PAGE_SIZE = 100  # examples
MAX_NAMES = 30  # of reward functions, in the help
MAX_TRIES = 64  # squares of one example

FILTER_EXAMPLES = (
    ("reward<0.5 and turns>3", "numbers: reward turns errors tokens duration example try"),
    ("status=failed,fault", "one of several; also stop, model, title"),
    ("error:tool", "a side (model, environment, tool, reward, judge, sandbox) or the name of an exception"),
    ("truncated or stop~max", "~ is part of a text"),
    ('not "the answer is"', "a text anywhere in the conversation"),
)


@dataclass(frozen=True, kw_only=True)
class ListState:
    """What a reader asked the list for, as it stands in its address."""

    query: str = ""
    order: str = DEFAULT_ORDER
    page: int = 1
    n_pages: int | None = None  # None: the rows are those of all pages; else of this one alone, which the host cut out
    error: str | None = None  # why the filter cannot be read

    @property
    def fields(self) -> dict[str, str | None]:
        """The fields of the address, but for the page."""
        return {"q": self.query, "sort": None if self.order == DEFAULT_ORDER else self.order}


def render_examples(
    rows: Iterable[SampleRow] | Selection,
    *,
    links: Links,
    selected: Key | None = None,
    state: ListState | None = None,
    is_narrow: bool = False,
) -> Html:
    """Examples of these rows (those that passed the filter), one page of them.

    Of a `Selection` tries that did not pass are shown too, as outlines, and its order counts. With `selected` the page
    is the one that this rollout is on. `is_narrow` leaves out all but id and squares.
    """
    state = state or ListState()
    selection = rows if isinstance(rows, Selection) else Selection(rows, order=state.order)
    examples = selection.examples
    squares = _Squares(links, state, selection, selected)
    n_pages, page, shown = state.n_pages or 1, state.page, examples
    if state.n_pages is None:
        n_pages = max(1, -(-len(examples) // PAGE_SIZE))
        if selected is not None:
            page = selection.example_position.get(selected[0], 0) // PAGE_SIZE + 1
        page = min(max(1, page), n_pages)
        shown = examples[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    if not shown:
        body: Child = tag("p", "No rollout matches." if state.query else "No rollouts yet.", class_="rv-nothing")
    elif is_narrow:
        body = tag("ol", *(_narrow(example, squares) for example in shown), class_="rv-list")
    else:
        body = _table(shown, squares)
    return tag(
        "section",
        body,
        _pages(page, n_pages, links, state) if n_pages > 1 else None,
        class_=f"rv rv-examples{' rv-narrow' if is_narrow else ''}",
        aria_label="Examples",
    )


@dataclass(frozen=True)
class _Squares:
    """Draws the tries of the examples of one list."""

    links: Links
    state: ListState
    selection: Selection
    selected: Key | None

    def of(self, example: Example) -> list[Child]:
        shown = example.tries[:MAX_TRIES]
        scale, matching = self.selection.scale, self.selection.matching
        squares = strip(shown, self.links, scale, selected=self.selected, matching=matching, **self.state.fields)
        left_out = len(example.tries) - MAX_TRIES
        if left_out <= 0:
            return [squares]
        return [squares, tag("a", f"+{left_out:,}", href=self.links.list_url(q=f"example={example.example_id}"))]

    def is_selected(self, example: Example) -> bool:
        return self.selected is not None and example.example_id == self.selected[0]

    def first_url(self, example: Example) -> str:
        """Of the first try that the filter let through."""
        row = next((row for row in example.tries if row.key in self.selection.matching), example.tries[0])
        return self.links.rollout_url(row.key, **self.state.fields)


def _table(shown: list[Example], squares: _Squares) -> Html:
    names = ("example", "tries", "mean", "turns", "tokens", "time", "question")
    head = tag("tr", *(tag("th", name, scope="col", class_=f"rv-col-{name}") for name in names))
    body = [_row(example, squares) for example in shown]
    table = tag("table", tag("thead", head), tag("tbody", *body), class_="rv-table")
    return tag("div", table, class_="rv-scroll", tabindex=0, role="region", aria_label="Table of examples")


def _row(example: Example, squares: _Squares) -> Html:
    tries = example.tries
    tokens = [row.tokens for row in tries if row.tokens is not None]
    errors = sum(row.n_errors for row in tries)
    badge = tag("span", count(errors, "error"), class_="rv-badge rv-bad") if errors else None
    title = tag("a", example.title or "(no text)", href=squares.first_url(example))
    cells: dict[str, Child] = {
        "tries": squares.of(example),
        "mean": number(example.mean),
        "turns": _range([row.turns for row in tries]),
        "tokens": f"{sum(tokens):,}" if tokens else "–",
        "time": seconds(max(row.duration_s for row in tries)),
        "question": [badge, " " if badge else None, title],
    }
    return tag(
        "tr",
        tag("th", example.example_id, scope="row", class_="rv-col-example"),
        *(tag("td", cell, class_=f"rv-col-{name}") for name, cell in cells.items()),
    )


def _narrow(example: Example, squares: _Squares) -> Html:
    return tag(
        "li",
        tag("span", example.example_id, class_="rv-id"),
        tag("span", *squares.of(example)),
        tag("span", example.title, class_="rv-title"),
        class_="rv-here" if squares.is_selected(example) else None,
    )


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _pages(page: int, n_pages: int, links: Links, state: ListState) -> Html:
    def to(number: int, label: str, rel: str | None = None) -> Html:
        if not 1 <= number <= n_pages:
            return tag("span", label, class_="rv-off")
        return tag("a", label, href=links.list_url(**state.fields, page=str(number)), rel=rel)

    return tag(
        "nav",
        to(page - 1, "← earlier"),
        tag("span", f"page {page:,} of {n_pages:,}"),
        to(page + 1, "later →"),
        class_="rv-pages",
        aria_label="Pages of examples",
    )


def render_filter(links: Links, state: ListState, *, n_shown: int, n_all: int, score_names: Iterable[str] = ()) -> Html:
    """The form, by GET to the list, and what it understands, with the names of the reward functions."""
    kept = [tag("input", type="hidden", name=name, value=value) for name, value in links.kept.items()]
    options = [tag("option", label, value=name, selected=name == state.order) for name, (label, _) in ORDERS.items()]
    error_id = "rv-filter-error" if state.error else None
    field = tag(
        "input",
        type="search",
        name="q",
        id="rv-filter",
        value=state.query,
        placeholder="reward<0.5 and turns>3",
        autocomplete="off",
        autocapitalize="none",
        spellcheck="false",
        maxlength=2000,
        aria_describedby=error_id,
        aria_invalid="true" if state.error else None,
    )
    form = tag(
        "form",
        *kept,
        tag("label", "Filter", for_="rv-filter"),
        field,
        tag(
            "span",
            tag("label", "Sort", for_="rv-sort"),
            tag("select", *options, name="sort", id="rv-sort"),
            class_="rv-field",
        ),
        tag("button", "Apply", type="submit"),
        tag("a", "Clear", href=links.list_url()) if state.query or state.order != DEFAULT_ORDER else None,
        tag("span", f"{n_shown:,} of {count(n_all, 'rollout')}", class_="rv-note"),
        method="get",
        action=links.listing,
        class_="rv-form",
        role="search",
    )
    error = tag("p", state.error, class_="rv-problem", id=error_id, role="alert") if state.error else None
    rows = [
        tag("li", tag("a", tag("code", text), href=links.list_url(q=text)), " ", tag("span", what, class_="rv-muted"))
        for text, what in [*FILTER_EXAMPLES, *_about_scores(score_names)]
    ]
    help_ = fold("What a filter can say", tag("ul", *rows), kind="rv-help")
    return tag("div", form, error, help_, class_="rv rv-filter")


def _about_scores(names: Iterable[str]) -> list[tuple[str, str]]:
    """An example with a reward function of this run, and the names of the others."""
    words = [f'"{name}"' if not name.isidentifier() or name in FIELDS else name for name in names if '"' not in name]
    if not words:
        return []
    return [(f"{words[0]}<1", f"a reward function by its name: {', '.join(words[:MAX_NAMES])}")]
