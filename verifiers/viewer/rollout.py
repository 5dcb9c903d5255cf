"""One rollout as a page: the conversation, and beside it why it got its reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from verifiers.records import RolloutRecord
from verifiers.viewer.html import Child, Html, tag
from verifiers.viewer.links import Key, Links
from verifiers.viewer.messages import fold, render_messages
from verifiers.viewer.reward import render_answer, render_errors, render_reward
from verifiers.viewer.rows import DEFAULT_ORDER, SampleRow, sample_row
from verifiers.viewer.selection import Selection
from verifiers.viewer.spending import render_facts, render_time, render_tokens
from verifiers.viewer.squares import Scale, chip, strip
from verifiers.viewer.texts import OneText, Texts
from verifiers.viewer.wording import count, seconds

MAX_CONTEXTS = 200  # turns in other contexts that are shown


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rollout stands in the list that it was reached from."""

    previous: Key | None = None
    next: Key | None = None
    position: int = 1  # from 1; 0: the filter left it out
    total: int | None = 1  # None: unknown, because the selection is a part of the list
    tries: tuple[SampleRow, ...] = ()  # of the same example
    scale: Scale = field(default_factory=Scale)
    query: str = ""  # the list's filter
    order: str = DEFAULT_ORDER


def place_of(key: Key, selection: Selection, *, query: str = "", is_whole: bool = True) -> Place:
    """A rollout that the selection's filter left out has no neighbours.

    With `is_whole` false the selection is a part of the list around the rollout: then nothing is counted.
    """
    keys = selection.keys
    at = selection.position.get(key)
    in_list = selection.example_position.get(key[0])
    return Place(
        previous=keys[at - 1] if at else None,
        next=keys[at + 1] if at is not None and at + 1 < len(keys) else None,
        position=0 if at is None else at + 1,
        total=len(keys) if is_whole else None,
        tries=() if in_list is None else selection.examples[in_list].tries,
        scale=selection.scale,
        query=query,
        order=selection.order,
    )


def render_rollout(
    record: RolloutRecord, *, links: Links, place: Place | None = None, prefix: str = "", is_narrow: bool = False
) -> Html:
    """A rollout as an HTML fragment; every text in it is data.

    `prefix` keeps the ids of two rollouts on one page apart; `is_narrow` puts the reward above the conversation.
    """
    whole, key = links.whole_text, record.key
    texts = Texts(None if whole is None else lambda part: whole(*key, part))
    return _article(record, texts, links, place or Place(), prefix, is_narrow)


def whole_text(record: RolloutRecord, part: str) -> str:
    """The unabridged text of the part that `Links.whole_text` was called with. Raises LookupError without one."""
    texts = OneText(part)
    _article(record, texts, Links(rollout=lambda example_id, rollout_index: "", listing=""), Place(), "", False)
    if texts.found is None:
        raise LookupError(f"rollout {record.key} has no text '{part}'")
    return texts.found


def _article(record: RolloutRecord, texts: Texts, links: Links, place: Place, prefix: str, is_narrow: bool) -> Html:
    spent: list[Child] = [render_time(record), render_tokens(record), render_facts(record, texts)]
    why = tag(
        "aside",
        render_errors(record, texts),
        render_reward(record, texts, place.scale),
        render_answer(record, texts),
        *([fold("time, tokens and origin", *spent)] if is_narrow else spent),
        class_="rv-why",
        id=f"{prefix}why",
        tabindex=0,  # it scrolls by itself where it is long
        aria_label=f"Reward, time and origin {prefix.rstrip('-')}".rstrip(),
    )
    conversation = tag(
        "div",
        render_messages(record.prompt, texts, place="prompt", prefix=prefix),
        render_messages(record.messages, texts, place="messages", prefix=prefix, turns=record.turns),
        _end(record),
        _other_contexts(record, texts, prefix),
        class_="rv-conversation",
    )
    columns = tag("div", *((why, conversation) if is_narrow else (conversation, why)), class_="rv-columns")
    return tag(
        "article",
        _header(record, links, place, is_narrow),
        columns,
        class_=f"rv rv-rollout{' rv-narrow' if is_narrow else ''}",
        data_rv_key=f"{record.example_id}/{record.rollout_index}",
    )


def _header(record: RolloutRecord, links: Links, place: Place, is_narrow: bool) -> Html:
    query = {"q": place.query, "sort": "" if place.order == DEFAULT_ORDER else place.order}
    row = sample_row(record)
    tries = place.tries or (row,)
    facts: list[Child] = [chip(row.reward, record.status, place.scale)]
    facts += [tag("span", record.stop_condition or "no stop condition", class_="rv-note", title="stop condition")]
    facts += [tag("span", count(row.turns, "turn"), class_="rv-note")]
    if row.tokens is not None:
        facts.append(tag("span", count(row.tokens, "token"), class_="rv-note"))
    facts.append(tag("span", seconds(record.timing.total_s), class_="rv-note"))
    if not is_narrow:
        facts.append(tag("a", "why this reward", href="#why", class_="rv-small rv-to-why"))
    if record.is_truncated:
        facts.append(tag("span", "truncated", class_="rv-badge rv-bad"))
    others = [other.rollout_index for other in tries if other.rollout_index != record.rollout_index]
    if links.beside is not None and others:
        url = links.beside(record.example_id, record.rollout_index, others[0])
        facts.append(tag("a", "beside another try", href=url, class_="rv-small"))
    if links.record is not None:
        facts.append(tag("a", "JSON", href=links.record(*record.key), class_="rv-small"))
    return tag(
        "header",
        tag("h2", f"Example {record.example_id}", tag("span", f" · try {record.rollout_index}", class_="rv-muted")),
        strip(tries, links, place.scale, selected=record.key, **query) if len(tries) > 1 and not is_narrow else None,
        tag("div", *facts, class_="rv-facts"),
        None if is_narrow or place.total in (0, 1) else _steps(links, place, query),
        class_="rv-head",
    )


def _steps(links: Links, place: Place, query: dict[str, str]) -> Html:
    def step(key: Key | None, rel: str, label: str, arrow: str) -> Html:
        if key is None:
            return tag("span", arrow, class_="rv-step rv-off", aria_hidden="true")
        url = links.rollout_url(key, **query)
        return tag("a", arrow, href=url, rel=rel, class_="rv-step", aria_label=f"{label} rollout", title=label)

    position = f"{place.position:,} of {place.total:,}" if place.total is not None else ""
    if not place.position:
        position = f"not among the {place.total:,} shown" if place.total is not None else "not among those shown"
    return tag(
        "nav",
        step(place.previous, "prev", "Previous", "←"),
        tag("span", position, class_="rv-note") if position else None,
        step(place.next, "next", "Next", "→"),
        class_="rv-steps",
        aria_label="Rollouts",
    )


def _end(record: RolloutRecord) -> Html:
    stop = record.stop_condition or "no stop condition"
    return tag("p", "ended by ", tag("b", stop), ", truncated" if record.is_truncated else None, class_="rv-end")


def _other_contexts(record: RolloutRecord, texts: Texts, prefix: str) -> Html | None:
    """Turns whose prompt is not in the conversation: of sub-models, or before the context was rewritten."""
    own = [(n, turn) for n, turn in enumerate(record.turns) if turn.prompt is not None]
    if not own:
        return None
    shown: list[Child] = []
    for n, turn in own[:MAX_CONTEXTS]:
        actor = "" if turn.actor == "assistant" else f" · {turn.actor}"
        prompt: Sequence[dict[str, Any]] = turn.prompt or []
        completion: Sequence[dict[str, Any]] = turn.completion or []
        body = [
            render_messages(prompt, texts, place=f"turns.{n}.prompt", prefix=prefix),
            render_messages(completion, texts, place=f"turns.{n}.completion", prefix=prefix),
        ]
        note = f"{count(len(prompt) + len(completion), 'message')}, {seconds(turn.model_s)}"
        shown.append(fold(f"turn {n + 1}{actor}", *body, note=note))
    left_out = len(own) - MAX_CONTEXTS
    more = tag("p", f"… {left_out:,} turns are not shown …", class_="rv-gap") if left_out > 0 else None
    return tag("section", tag("h3", "Turns with a context of their own"), *shown, more, class_="rv-contexts")
