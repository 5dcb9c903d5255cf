"""Why a rollout got its reward: every reward function with weight and what it adds, reasons, judges, errors."""

from __future__ import annotations

import math

from verifiers.records import RolloutRecord, Score
from verifiers.viewer.html import Child, Html, join, tag
from verifiers.viewer.messages import fold
from verifiers.viewer.squares import Scale, chip
from verifiers.viewer.texts import Texts
from verifiers.viewer.values import as_json
from verifiers.viewer.wording import STATUS_WORDS, number, signed

SHORT_ANSWER = 400  # characters shown unfolded


def render_reward(record: RolloutRecord, texts: Texts, scale: Scale) -> Html:
    weighted = [(n, score) for n, score in enumerate(record.scores) if score.weight]
    reported = [(n, score) for n, score in enumerate(record.scores) if not score.weight]
    note = None
    if record.reward is None:
        note = tag("p", STATUS_WORDS.get(record.status, record.status), class_="rv-said")
    return tag(
        "section",
        tag("h3", "Reward ", chip(record.reward, record.status, scale)),
        note,
        _table(record, weighted, texts) if weighted else None,
        _odd_sum(record, [score for _, score in weighted]),
        tag("h4", "Only reported") if reported else None,
        _reported(reported, texts) if reported else None,
        class_="rv-box",
    )


def _table(record: RolloutRecord, scores: list[tuple[int, Score]], texts: Texts) -> Html:
    head = tag("tr", *(tag("th", name, scope="col") for name in ("function", "value", "weight", "adds")))
    rows: list[Child] = []
    for n, score in scores:
        adds = None if score.value is None else score.value * score.weight
        rows.append(
            tag(
                "tr",
                tag("th", score.name, scope="row"),
                tag("td", number(score.value)),
                tag("td", f"×{number(score.weight)}"),
                tag("td", number(adds)),
            )
        )
        if (said := _said(n, score, texts)) is not None:
            rows.append(tag("tr", tag("td", said, colspan=4)))
    total = tag("tr", tag("th", "reward", scope="row"), tag("td"), tag("td"), tag("td", number(record.reward)))
    table = tag("table", tag("thead", head), tag("tbody", *rows), tag("tfoot", total), class_="rv-scores")
    return tag("div", table, class_="rv-scroll")


def _reported(scores: list[tuple[int, Score]], texts: Texts) -> Html:
    rows: list[Child] = []
    for n, score in scores:
        rows.append(tag("tr", tag("th", score.name, scope="row"), tag("td", number(score.value))))
        if (said := _said(n, score, texts)) is not None:
            rows.append(tag("tr", tag("td", said, colspan=2)))
    return tag("div", tag("table", tag("tbody", *rows), class_="rv-scores"), class_="rv-scroll")


def _said(n: int, score: Score, texts: Texts) -> Html | None:
    """Status, reason and judge of a score that has any of them."""
    found: list[Child] = []
    if score.status != "scored":
        side = f" ({score.side})" if score.side else ""
        found.append(tag("span", f"{score.status}{side}", class_=f"rv-badge rv-{score.status}"))
    if score.reason:
        found.append(tag("p", texts.show(score.reason, f"scores.{n}.reason"), class_="rv-said"))
    if score.judge is not None:
        judge, body = score.judge, list[Child]()
        if judge.response is not None:
            body += [tag("h4", "was shown (end)"), texts.block(judge.response, f"scores.{n}.judge.response")]
        if judge.reply is not None:
            body += [tag("h4", "said (end)"), texts.block(judge.reply, f"scores.{n}.judge.reply")]
        body.append(tag("p", f"prompt {judge.prompt_hash}", class_="rv-muted"))
        found.append(fold(["judge ", tag("span", judge.model, class_="rv-name")], *body))
    return join(found) if found else None


def _odd_sum(record: RolloutRecord, scores: list[Score]) -> Html | None:
    """An environment may compute its reward otherwise; then the table must not look as if it added up."""
    values = [score.value * score.weight for score in scores if score.value is not None]
    if record.reward is None or len(values) != len(scores) or not values:
        return None
    total = math.fsum(values)
    if math.isclose(total, record.reward, rel_tol=1e-6, abs_tol=1e-9):
        return None
    return tag(
        "p",
        f"The parts add up to {number(total)} ({signed(record.reward - total)} to the reward): "
        "the environment computed the reward in its own way.",
        class_="rv-said",
    )


def render_errors(record: RolloutRecord, texts: Texts) -> Html | None:
    if not record.errors:
        return None
    shown = [
        tag(
            "li",
            tag("span", error.side, class_="rv-badge rv-bad"),
            " ",
            tag("b", error.type),
            texts.block(error.message, f"errors.{n}"),
        )
        for n, error in enumerate(record.errors[:20])
    ]
    return tag("section", tag("h3", "Errors"), tag("ul", *shown), class_="rv-box rv-errors")


def render_answer(record: RolloutRecord, texts: Texts) -> Html | None:
    """The reference answer, the row's info and the columns of the state that were saved."""
    shown: list[Child] = []
    if record.answer is not None:
        answer = record.answer if isinstance(record.answer, str) else as_json(record.answer)
        block = texts.block(answer, "answer")
        shown += [tag("h3", "Answer"), block if len(answer) <= SHORT_ANSWER else fold(answer[:80], block)]
    if record.info is not None:
        shown.append(fold("info", texts.block(as_json(record.info), "info")))
    if record.state_columns:
        shown.append(fold("state columns", texts.block(as_json(record.state_columns), "state_columns")))
    return tag("section", *shown, class_="rv-box") if shown else None
