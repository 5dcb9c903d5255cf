"""The list of runs that `vf view` found, to open one or to compare two."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from verifiers.viewer.html import Html, tag
from verifiers.viewer.runs import Run
from verifiers.viewer.values import as_dict
from verifiers.viewer.wording import number

_COLUMNS = ("baseline", "candidate", "run", "environment", "model", "reward", "rollouts", "written")


def run_url(run: Run) -> str:
    return f"/run/{quote(run.id)}"


def render_runs(runs: Sequence[Run]) -> Html:
    """A form that goes to the comparison of the two that are chosen; at first of the newest with the one before."""
    if not runs:
        return tag("p", "No runs here yet.", class_="rv-nothing")
    head = tag("tr", *(tag("th", name, scope="col") for name in _COLUMNS))
    rows = [_run_row(run, n) for n, run in enumerate(runs)]
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="rv-table rv-runs")
    scroll = tag("div", table, class_="rv-scroll", tabindex=0, role="region", aria_label="Table of runs")
    button = tag("button", "Compare candidate with baseline", type="submit") if len(runs) > 1 else None
    return tag("form", scroll, tag("p", button), method="get", action="/compare", class_="rv rv-form-runs")


def _run_row(run: Run, n: int) -> Html:
    known = run.metadata
    reward = known.get("avg_reward")
    counts = as_dict(known.get("counts"))
    done, total = counts.get("finished"), counts.get("total")
    status = str(known.get("status") or "")

    def choice(name: str, chosen: bool) -> Html:
        role = {"a": "baseline", "b": "candidate"}[name]
        label = f"{run.id} as {role}"
        return tag("input", type="radio", name=name, value=run.id, checked=chosen, aria_label=label)

    return tag(
        "tr",
        tag("td", choice("a", n == 1)),
        tag("td", choice("b", n == 0)),
        tag("th", tag("a", run.id, href=run_url(run)), scope="row"),
        tag("td", str(known.get("env_id") or "–")),
        tag("td", str(known.get("model") or "–")),
        tag("td", number(reward) if isinstance(reward, (int, float)) else "–", class_="rv-col-mean"),
        tag(
            "td",
            f"{done} of {total}" if done is not None else "–",
            tag("span", f" {status}", class_="rv-badge rv-undecided") if status not in ("", "done") else None,
        ),
        tag("td", run.written.strftime("%Y-%m-%d %H:%M UTC")),
    )
