"""The table at the end of a suite: a line for each evaluation, why some have no number, and where the runs are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifiers.eval import wording
from verifiers.eval.interrupts import INTERRUPTED
from verifiers.eval.report import SET_UP, Outcome

GAP = "  "
ARGUMENT_WIDTH = 40  # some are whole prompts
NOTE_WIDTH = 240  # of a reason: its end often says what to do, so it may wrap


@dataclass(frozen=True)
class Row:
    """One evaluation and what became of it."""

    number: int  # from 1
    env: str
    model: str
    arguments: dict[str, Any]  # in which it differs from others of the same environment and model
    outcome: Outcome | None  # None: its turn has not come
    found: dict[str, Any]  # metadata and summary of its run, perhaps of an earlier part; empty when there is none
    folder: Path | None  # of its run

    @property
    def arguments_text(self) -> str:
        shown = {
            key: "–" if value is None else wording.cut(str(value), ARGUMENT_WIDTH)
            for key, value in self.arguments.items()
        }
        return " ".join(f"{key}={value}" for key, value in shown.items())

    @property
    def name(self) -> str:
        return " · ".join(part for part in (self.env, self.model, self.arguments_text) if part)

    @property
    def state(self) -> str:
        """Empty for an evaluation that came to its end."""
        if self.outcome is None:
            return "not finished" if self.found else "not started"
        if self.outcome.code == INTERRUPTED:
            return "interrupted"
        if self.outcome.code == SET_UP:
            return "broke off" if self.found else "not run"
        return ""


def render_suite(rows: Sequence[Row], folder: Path | None, width: int | None) -> str:
    """The whole text. `width` is that of the terminal; `None`, for a file or a pipe, lets lines be as long as they are.

    Where the terminal is too narrow for a line an evaluation, names and numbers get one each.
    """
    parts = [_table(rows, width), _grid(rows, width), _reasons(rows), _places(rows, folder)]
    return "\n" + "\n\n".join("\n".join(lines) for lines in parts if lines)


def _table(rows: Sequence[Row], width: int | None) -> list[str]:
    total = _total(rows)
    labels = [f"{row.number:>{len(str(len(rows)))}}" for row in rows]
    names = [["", *labels, ""], ["environment", *(row.env for row in rows), "total"]]
    names.append(["model", *(row.model for row in rows), ""])
    names.append(["arguments", *(row.arguments_text for row in rows), ""])
    numbers = [column for column in _number_columns(rows, total) if any(column[1:])]
    states = ["", *(row.state for row in rows), ""]
    wide = _aligned([column for column in [*names, *numbers, states] if any(column[1:])])
    if width is None or max(map(len, wide)) <= width:
        return wide
    head, *lines = (" " * len(labels[0]) + line for line in _aligned([[""] * len(states), *numbers]))
    titles = [GAP.join(filter(None, (label, row.name, row.state))) for label, row in zip(labels, rows, strict=True)]
    titles.append(GAP.join((" " * len(labels[0]), "total")))
    pairs = zip(titles, lines, strict=True)
    return [wording.cut(line, width) for line in (head, *(line for pair in pairs for line in pair))]


def _aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return [GAP.join(cells).rstrip() for cells in zip(*padded, strict=True)]


def _number_columns(rows: Sequence[Row], total: dict[str, Any]) -> list[list[str]]:
    """Each with its heading first and its total last; a column that says nothing is empty below its heading."""
    most = {row.number: _most_tries(row) for row in rows}
    tries = {at["k"] for at in most.values() if at}
    k = str(next(iter(tries))) if len(tries) == 1 else "k"

    def column(heading: str, cell: Callable[[dict[str, Any]], str]) -> list[str]:
        return [heading, *(cell(row.found) if row.found else "" for row in rows), cell(total)]

    return [
        ["reward", *(reward_text(row.found) for row in rows), ""],
        column("scored", lambda found: f"{found['n_scored']}/{found['n_total']}"),
        [f"pass@{k}", *(_passes(most[row.number], k) for row in rows), ""] if tries - {1} else [""] * (len(rows) + 2),
        column("failed", lambda found: str(found["n_failed"])),
        column("tokens in/out", lambda found: _tokens(found["usage"])),
        column("cost", lambda found: "" if found["usage"]["cost"] is None else wording.money(found["usage"]["cost"])),
        column("time", lambda found: wording.seconds(found["time_s"])),
    ]


def reward_text(found: dict[str, Any]) -> str:
    """Mean and clustered standard error; a dash when nothing was scored."""
    if not found or found["reward"]["mean"] is None:
        return "–"
    error = found["reward"]["standard_error"]
    mean = wording.number(found["reward"]["mean"])
    return mean if error is None else f"{mean} ± {wording.number(error)}"


def _most_tries(row: Row) -> dict[str, Any] | None:
    known = [at for at in row.found.get("at_k", []) if at["pass_at_k"] is not None]
    return max(known, key=lambda at: at["k"], default=None)


def _passes(at: dict[str, Any] | None, k: str) -> str:
    if at is None:
        return ""
    text = wording.number(at["pass_at_k"])
    return text if k != "k" else f"{text} (k={at['k']})"


def _tokens(usage: dict[str, Any]) -> str:
    counts = usage["input_tokens"], usage["output_tokens"]
    return "" if None in counts else "/".join(wording.count(count) for count in counts)


def _total(rows: Sequence[Row]) -> dict[str, Any]:
    """Sums over the evaluations that ran; what one of them does not know, the total does not know."""
    found = [row.found for row in rows if row.found]
    known: dict[str, Any] = {name: sum(each[name] for each in found) for name in ("n_scored", "n_total", "n_failed")}
    called = [each["usage"] for each in found if each["n_finished"]]
    usage: dict[str, Any] = {}
    for name in ("input_tokens", "output_tokens", "cost"):
        values = [each[name] for each in called]
        usage[name] = None if not values or None in values else sum(values)
    return {**known, "usage": usage, "time_s": sum(each["time_s"] for each in found)}


def _grid(rows: Sequence[Row], width: int | None) -> list[str]:
    """Rewards with environments as lines and models as columns, where each pair of them was run exactly once."""
    lines = list(dict.fromkeys((row.env, row.arguments_text) for row in rows))
    models = list(dict.fromkeys(row.model for row in rows))
    cells = {(row.env, row.arguments_text, row.model): reward_text(row.found) for row in rows}
    if min(len(lines), len(models)) < 2 or not len(cells) == len(rows) == len(lines) * len(models):
        return []
    columns = [["reward", *(" ".join(filter(None, line)) for line in lines)]]
    columns += [[model, *(cells[*line, model] for line in lines)] for model in models]
    text = _aligned(columns)
    return text if width is None or max(map(len, text)) <= width else []


def _reasons(rows: Sequence[Row]) -> list[str]:
    reasons = [(row, _reason(row)) for row in rows]
    return [f"{row.number}{GAP}{wording.cut(reason, NOTE_WIDTH)}" for row, reason in reasons if reason]


def _reason(row: Row) -> str:
    """Why it has no number, or not the whole one; empty when there is nothing to say."""
    if row.outcome is None:
        return ""
    if row.outcome.error:
        return row.outcome.error
    found = row.found
    if not found or not found["n_failed"]:
        return ""
    text = f"{found['n_failed']} of {found['n_total']} without a score"
    first = next(iter(found["errors"]), None)
    return f"{text}: {first['side']} · {first['type']}: {first['message']}" if first else f"{text}: undecided"


def _places(rows: Sequence[Row], folder: Path | None) -> list[str]:
    saved = [(row.number, row.folder) for row in rows if row.folder]
    lines = [f"{'saved' if index == 0 else '':<7}{number:>2}  {path}" for index, (number, path) in enumerate(saved)]
    return [*lines, f"{'suite':<11}{folder}"] if folder else lines
