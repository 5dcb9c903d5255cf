"""`Site`: the pages of `vf view` as plain functions from an address to a reply; `server` puts them on a socket."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from verifiers.errors import ConfigError, ResultsError
from verifiers.records import RolloutRecord
from verifiers.viewer import (
    ASSETS,
    Comparison,
    ComparisonState,
    Links,
    ListState,
    SampleRow,
    asset_path,
    compare_rows,
    place_of,
    render_comparison,
    render_examples,
    render_filter,
    render_overview,
    render_pair,
    render_rollout,
    whole_text,
)
from verifiers.viewer.document import JSON, TEXT, NotFound, Reply, document
from verifiers.viewer.html import Child, Html, tag
from verifiers.viewer.links import with_query
from verifiers.viewer.rows import DEFAULT_ORDER, ORDERS
from verifiers.viewer.run_list import render_runs, run_url
from verifiers.viewer.runs import Run, Runs, matching_rows
from verifiers.viewer.selection import Selection
from verifiers.viewer.wording import count, seconds

FIRST_READ_S = 0.7  # of a large file: then the page shows how far it is, and goes on when it is loaded again


class Site:
    """The pages over some runs. `home` is where `/` leads when there is one run, or two to compare."""

    def __init__(self, runs: Runs, home: str = "") -> None:
        self._runs, self._home = runs, home
        # Cached by version of the rows: each step to the next rollout asks for the same list again.
        self._selection = lru_cache(maxsize=16)(self._select)
        self._overview = lru_cache(maxsize=16)(self._sum_up)
        self._compared = lru_cache(maxsize=4)(self._compare)

    def respond(self, path: str, query: Mapping[str, str]) -> Reply:
        """The reply to a GET of `path` (decoded). Never raises for what a reader can cause."""
        try:
            for pattern, page in self._routes():
                if (match := re.fullmatch(pattern, path)) is not None:
                    return page(query, *match.groups())
            raise NotFound(f"there is no page {path[:200]}")
        except (LookupError, ResultsError) as error:
            text = error.args[0] if error.args else "not found"
            return document("Not found", tag("p", str(text), class_="rv-problem"), status=404)

    def _routes(self) -> list[tuple[str, Callable[..., Reply]]]:
        return [
            (r"/", self._start),
            (r"/runs", self._list_of_runs),
            (r"/run/([\w.-]+)", self._list),
            (r"/run/([\w.-]+)/(-?\d{1,18})/(\d{1,9})", self._rollout),
            (r"/run/([\w.-]+)/(-?\d{1,18})/(\d{1,9})/text/([\w.]+)", self._text),
            (r"/run/([\w.-]+)/(-?\d{1,18})/(\d{1,9})/record\.json", self._record),
            (r"/compare", self._comparison),
            (r"/compare/example", self._pair),
            (r"/assets/([\w.]+)", self._asset),
        ]

    def _start(self, query: Mapping[str, str]) -> Reply:
        if self._home:
            return Reply(303, TEXT, b"", {"Location": self._home})
        return self._list_of_runs(query)

    def _list_of_runs(self, query: Mapping[str, str]) -> Reply:
        return document("Runs", render_runs(self._runs.scan()), heading="Runs")

    def _list(self, query: Mapping[str, str], id_: str) -> Reply:
        run = self._runs[id_]
        is_read = run.file.refresh(FIRST_READ_S)
        n_all = len(run.file.rows)
        links = _links(run)
        state, selection = self._asked(run, query)
        body = tag(
            "div",
            _notes(run, is_read),
            self._overview(run, run.file.version) if n_all else None,
            self._filter(run, state, len(selection.matching)) if n_all else None,
            render_examples(selection, links=links, state=state),
            class_="rv-stack",
        )
        return document(
            _title(run), body, heading=_heading(run), crumbs=[("Runs", "/runs")], again_s=None if is_read else 1
        )

    def _rollout(self, query: Mapping[str, str], id_: str, example_id: str, rollout_index: str) -> Reply:
        run, key = self._runs[id_], (int(example_id), int(rollout_index))
        run.file.refresh()
        record = run.file.record(key)
        links = _links(run)
        state, selection = self._asked(run, query)
        body = tag(
            "div",
            render_examples(selection, links=links, selected=key, state=state, is_narrow=True),
            render_rollout(record, links=links, place=place_of(key, selection, query=state.query)),
            class_="rv-workspace",
        )
        crumbs = [("Runs", "/runs"), (_title(run), links.list_url(**state.fields))]
        return document(f"Example {key[0]}, try {key[1]}: {_title(run)}", body, crumbs=crumbs)

    def _text(self, query: Mapping[str, str], id_: str, example_id: str, rollout_index: str, part: str) -> Reply:
        run = self._runs[id_]
        run.file.refresh()
        text = whole_text(run.file.record((int(example_id), int(rollout_index))), part)
        return Reply(200, TEXT, text.encode("utf-8", "backslashreplace"))

    def _record(self, query: Mapping[str, str], id_: str, example_id: str, rollout_index: str) -> Reply:
        run = self._runs[id_]
        run.file.refresh()
        return Reply(200, JSON, run.file.line((int(example_id), int(rollout_index))))

    def _comparison(self, query: Mapping[str, str]) -> Reply:
        baseline, candidate = self._two(query)
        comparison = self._compared(baseline, candidate, baseline.file.version, candidate.file.version)
        ids = {"a": baseline.id, "b": candidate.id}
        links = Links(
            rollout=_links(baseline).rollout,
            candidate=_links(candidate).rollout,
            listing="/compare",
            pair=lambda example_id: with_query("/compare/example", {**ids, "example": str(example_id)}),
            kept=ids,
        )
        names = _names(baseline, candidate)
        state = ComparisonState(names=names, show=query.get("show", ""), page=_page(query))
        swap = tag("a", "Swap the two", href=with_query("/compare", {"a": candidate.id, "b": baseline.id}))
        whose = [_which("baseline", baseline), _which("candidate", candidate), tag("p", swap, class_="rv-small")]
        body = tag("div", tag("div", *whose, class_="rv"), render_comparison(comparison, links=links, state=state))
        return document("Comparison", body, heading="Comparison", crumbs=[("Runs", "/runs")])

    def _pair(self, query: Mapping[str, str]) -> Reply:
        baseline, candidate = self._two(query)
        example_id = _whole_number(query.get("example", ""), "example")
        left = _side(baseline, example_id, "ta", query)
        right = _side(candidate, example_id, "tb", query)
        is_one = baseline == candidate
        body = render_pair(
            left.record,
            right.record,
            links=(left.links, right.links),
            names=_names(baseline, candidate),
            roles=("left", "right") if is_one else ("baseline", "candidate"),
            tries=(left.tries, right.tries),
        )
        up = with_query("/compare", {"a": baseline.id, "b": candidate.id})
        crumbs = [("Runs", "/runs"), (_title(baseline), _links(baseline).listing) if is_one else ("Comparison", up)]
        return document(f"Example {example_id}, side by side", body, heading=f"Example {example_id}", crumbs=crumbs)

    def _asset(self, query: Mapping[str, str], name: str) -> Reply:
        return Reply(200, ASSETS.get(name, TEXT), asset_path(name).read_bytes(), {"Cache-Control": "no-cache"})

    def _two(self, query: Mapping[str, str]) -> tuple[Run, Run]:
        missing = [name for name in ("a", "b") if not query.get(name)]
        if missing:
            raise NotFound("choose one run as the baseline and one as the candidate in the list of runs")
        baseline, candidate = self._runs[query["a"]], self._runs[query["b"]]
        baseline.file.refresh()
        candidate.file.refresh()
        return baseline, candidate

    def _asked(self, run: Run, query: Mapping[str, str]) -> tuple[ListState, Selection]:
        """What the address asks for, and the rows that it leaves: all of them where the filter cannot be read."""
        text = query.get("q", "").strip()
        order = query.get("sort", DEFAULT_ORDER)
        order = order if order in ORDERS else DEFAULT_ORDER
        error = None
        try:
            selection = self._selection(run, text, order, run.file.version)
        except ConfigError as problem:
            error = str(problem)
            selection = self._selection(run, "", order, run.file.version)
        return ListState(query=text, order=order, page=_page(query), error=error), selection

    def _select(self, run: Run, text: str, order: str, version: int) -> Selection:
        rows = run.file.rows
        if not text:
            return Selection(rows, order=order)
        return Selection(matching_rows(run.file, text), others=rows, order=order)

    def _filter(self, run: Run, state: ListState, n_shown: int) -> Html:
        names = run.file.weights
        return render_filter(_links(run), state, n_shown=n_shown, n_all=len(run.file.rows), score_names=names)

    def _compare(self, baseline: Run, candidate: Run, *versions: int) -> Comparison:
        return compare_rows(baseline.file.rows, candidate.file.rows)

    def _sum_up(self, run: Run, version: int) -> Html:
        return render_overview(run.file.rows, links=_links(run), weights=run.file.weights)


def _links(run: Run) -> Links:
    base = run_url(run)
    return Links(
        rollout=lambda example_id, rollout_index: f"{base}/{example_id}/{rollout_index}",
        listing=base,
        whole_text=lambda example_id, rollout_index, part: f"{base}/{example_id}/{rollout_index}/text/{part}",
        record=lambda example_id, rollout_index: f"{base}/{example_id}/{rollout_index}/record.json",
        beside=lambda example_id, left, right: with_query(
            "/compare/example",
            {"a": run.id, "b": run.id, "example": str(example_id), "ta": str(left), "tb": str(right)},
        ),
    )


@dataclass(frozen=True)
class _Side:
    """One of two rollouts that are shown beside each other, with the tries that could be in its place."""

    record: RolloutRecord
    links: Links
    tries: tuple[SampleRow, ...]


def _side(run: Run, example_id: int, field_: str, query: Mapping[str, str]) -> _Side:
    """`field_` of the query says which try; a link to another one keeps the other side as it is."""
    tries = tuple(row for row in run.file.rows if row.example_id == example_id)
    if not tries:
        raise NotFound(f"{run.path} has no example {example_id}")
    index = _whole_number(query.get(field_) or str(tries[0].rollout_index), field_)
    kept = {name: query[name] for name in ("a", "b", "example", "ta", "tb") if query.get(name)}

    def another(example_id: int, rollout_index: int) -> str:
        return with_query("/compare/example", {**kept, field_: str(rollout_index)})

    links = replace(_links(run), rollout=another, beside=None)
    return _Side(run.file.record((example_id, index)), links, tries)


def _page(query: Mapping[str, str]) -> int:
    text = query.get("page", "1")
    return int(text) if re.fullmatch(r"\d{1,7}", text) else 1


def _whole_number(text: str, name: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise NotFound(f"'{name}' in the address has to be a whole number")
    return int(text)


def _title(run: Run) -> str:
    known = run.metadata
    parts = [str(known.get("env_id") or run.path.parent.name), str(known.get("model") or "")]
    return " · ".join(part for part in parts if part)


def _names(baseline: Run, candidate: Run) -> tuple[str, str]:
    """What tells two runs apart: their models, or else their ids."""
    models = str(baseline.metadata.get("model") or ""), str(candidate.metadata.get("model") or "")
    return models if all(models) and models[0] != models[1] else (baseline.id, candidate.id)


def _which(role: str, run: Run) -> Html:
    link = tag("a", _title(run), href=_links(run).listing)
    return tag("p", tag("span", f"{role}: ", class_="rv-muted"), link, tag("span", f" {run.id}", class_="rv-muted"))


def _heading(run: Run) -> list[Child]:
    known = run.metadata
    facts = [str(known.get("status") or ""), run.id, run.written.strftime("%Y-%m-%d %H:%M UTC")]
    if isinstance(known.get("time"), (int, float)):
        facts.append(seconds(known["time"]))
    return [_title(run), tag("span", " · ".join(fact for fact in facts if fact), class_="rv-muted")]


def _notes(run: Run, is_read: bool) -> Html | None:
    notes: list[Child] = []
    if not is_read:
        text = f"Reading {run.path.name}: {run.file.share_read:.0%} so far. This page shows that part, and loads again."
        notes.append(tag("p", text, class_="rv-progress", role="status"))
    if run.file.n_damaged:
        more = " …" if run.file.n_damaged > len(run.file.notes) else ""
        text = f"{count(run.file.n_damaged, 'line')} of {run.path} left out: {'; '.join(run.file.notes)}{more}"
        notes.append(tag("p", text, class_="rv-problem"))
    return tag("div", *notes, class_="rv") if notes else None
