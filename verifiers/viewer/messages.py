"""Messages as cards: who speaks, reasoning and tool calls folded, the results of tools under their calls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.records import Turn
from verifiers.viewer.html import Child, Html, join, tag
from verifiers.viewer.texts import Texts
from verifiers.viewer.values import as_dict, as_json, as_list, text_of
from verifiers.viewer.wording import count, number, seconds

ROLES = ("system", "developer", "user", "assistant", "tool", "text")
FIRST, LAST = 300, 200  # messages shown of a conversation that has more
FOLDED_SYSTEM = 800  # characters from which the system's text is folded
FOLDED_TOOL = 3_000
MAX_IMAGE = 4_000_000  # characters of a data: URL
MAX_CALLS = 100  # tool calls, and parts, shown of one message

_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*")  # not SVG, which can hold links
_THINK = re.compile(r"\s*<think>(.*?)(</think>|\Z)", re.S)

Message = Mapping[str, Any]


def render_messages(
    messages: Sequence[Message], texts: Texts, *, place: str, prefix: str, turns: Sequence[Turn] = ()
) -> Html:
    """The cards of a conversation. `place` names it in the record; `prefix` begins the ids of its cards."""
    numbers = {index: n for n, turn in enumerate(turns) for index in range(turn.start, min(turn.end, len(messages)))}
    names = _call_names(messages)
    shown: list[Child] = []
    for index, message in enumerate(messages):
        n_hidden = len(messages) - FIRST - LAST
        if n_hidden > 0 and FIRST <= index < FIRST + n_hidden:
            if index == FIRST:
                shown.append(tag("p", f"… {n_hidden:,} messages are not shown …", class_="rv-gap"))
            continue
        n = numbers.get(index)
        meta = [] if n is None else _turn_notes(n, turns)
        shown.append(_card(message, texts, f"{place}.{index}", f"{prefix}{place}-{index}", meta, names))
    return join(shown)


def _turn_notes(n: int, turns: Sequence[Turn]) -> list[Child]:
    turn = turns[n]
    notes: list[Child] = [f"turn {n + 1} of {len(turns)}"]
    if turn.actor != "assistant":
        notes.append(turn.actor)
    if turn.model_s:
        notes.append(seconds(turn.model_s))
    if turn.reward is not None:
        notes.append(f"reward {number(turn.reward)}")
    if turn.finish_reason == "length":
        notes.append(tag("span", "cut off: length", class_="rv-badge rv-bad"))
    elif turn.finish_reason not in (None, "stop", "tool_calls"):
        notes.append(f"finish reason {turn.finish_reason}")
    return notes


def _card(
    message: Message, texts: Texts, place: str, id_: str, meta: Sequence[Child], names: Mapping[str, str]
) -> Html:
    role = text_of(message.get("role")) or "?"
    name = message.get("name") or (names.get(text_of(message.get("tool_call_id"))) if role == "tool" else None)
    known = role if role in ROLES else "other"
    heading = tag(
        "h3",
        tag("span", role, class_="rv-role"),
        tag("span", text_of(name), class_="rv-name") if name else None,
        *(tag("span", note, class_="rv-note") for note in meta),
        tag("a", "#", href=f"#{id_}", class_="rv-anchor", aria_label=f"Link to this {known} message"),
    )
    body = [_reasoning(message, texts, place), _content(message, texts, place, role), _calls(message, texts, place)]
    if not any(body):
        body = [tag("p", "(no text)", class_="rv-empty")]
    return tag("section", heading, *body, class_=f"rv-msg rv-{known}", id=id_)


def _reasoning(message: Message, texts: Texts, place: str) -> Html | None:
    text = message.get("reasoning_content") or message.get("reasoning")
    if not text:
        blocks = [as_dict(block) for block in as_list(message.get("thinking_blocks"))]
        text = "\n\n".join(text_of(block.get("thinking") or "(redacted by the provider)") for block in blocks)
    if not text:
        return None
    return _folded_reasoning(text_of(text), texts, f"{place}.reasoning", "reasoning")


def _folded_reasoning(text: str, texts: Texts, part: str, label: str) -> Html:
    return fold(label, texts.block(text, part), note=count(len(text), "character"), kind="rv-reasoning")


def _content(message: Message, texts: Texts, place: str, role: str) -> Html | None:
    content = message.get("content")
    if content is None and message.get("refusal"):
        content = f"(refusal) {text_of(message['refusal'])}"
    if isinstance(content, list):
        parts = as_list(content)
        shown = [_part(part, texts, f"{place}.content.{n}") for n, part in enumerate(parts[:MAX_CALLS])]
        rest = len(parts) - len(shown)
        return join([*shown, tag("p", f"… {rest:,} parts are not shown …", class_="rv-gap") if rest else None])
    text = text_of(content)
    if not text:
        return None
    if role == "assistant" and (thought := _THINK.match(text)):
        unfinished = not thought[2]
        label = "reasoning (not finished)" if unfinished else "reasoning"
        rest = text[thought.end() :].lstrip("\n")
        return join(
            [
                _folded_reasoning(thought[1].strip("\n"), texts, f"{place}.think", label),
                texts.block(rest, f"{place}.content") if rest else None,
            ]
        )
    block = texts.block(text, f"{place}.content")
    if role in ("system", "developer") and len(text) > FOLDED_SYSTEM:
        return fold(first_line(text), block, note=count(len(text), "character"))
    if role == "tool" and len(text) > FOLDED_TOOL:
        return fold(first_line(text), block, note=count(len(text), "character"))
    return block


def _part(part: Any, texts: Texts, place: str) -> Html:
    known = as_dict(part)
    if not known:
        return texts.block(text_of(part), place)
    if isinstance(known.get("text"), str):
        return texts.block(known["text"], place)
    kind = text_of(known.get("type")) or "part"
    given = known.get("image_url") or known.get("image")
    if given is not None:
        return _image(as_dict(given).get("url", given), texts, place)
    if held := as_dict(known.get("input_audio") or known.get("audio") or known.get("file")):
        size = max((len(value) for value in held.values() if isinstance(value, str)), default=0)
        form = f", {held['format']}" if isinstance(held.get("format"), str) else ""
        return tag("p", f"[{kind}{form}, {size:,} characters]", class_="rv-media")
    return texts.block(as_json(part), place)


def _image(url: Any, texts: Texts, place: str) -> Html:
    """Only what is in the record itself is shown: a page of ours never fetches an address that a model wrote."""
    if isinstance(url, str) and len(url) <= MAX_IMAGE and _IMAGE.fullmatch(url):
        return tag("p", tag("img", src=url, alt="image in the message", loading="lazy"), class_="rv-media")
    if isinstance(url, str) and not url.startswith("data:"):
        return tag("p", "[image, not fetched: ", tag("code", texts.show(url, place)), "]", class_="rv-media")
    size = f"{len(url):,} characters" if isinstance(url, str) else "of unknown form"
    return tag("p", f"[image, not shown: {size}]", class_="rv-media")


def _calls(message: Message, texts: Texts, place: str) -> Html | None:
    calls = as_list(message.get("tool_calls"))
    if not calls:
        return None
    shown = [_call(call, texts, f"{place}.call.{n}") for n, call in enumerate(calls[:MAX_CALLS])]
    rest = len(calls) - len(shown)
    return join([*shown, tag("p", f"… {rest:,} calls are not shown …", class_="rv-gap") if rest else None])


def _call(call: Any, texts: Texts, place: str) -> Html:
    function = as_dict(as_dict(call).get("function"))
    if not function:
        return fold("call of an unknown form", texts.block(as_json(call), place), kind="rv-call")
    arguments = function.get("arguments")
    text, problem = _arguments(arguments)
    badge = tag("span", problem, class_="rv-badge rv-bad") if problem else None
    label = [tag("span", text_of(function.get("name")) or "?", class_="rv-name"), " ", first_line(text, one_line=True)]
    return fold(label, texts.block(text, place), badge=badge, kind="rv-call")


def _arguments(arguments: Any) -> tuple[str, str | None]:
    """The arguments spread over lines, and what is wrong with them."""
    if not isinstance(arguments, str):
        return as_json({} if arguments is None else arguments), None
    try:
        value: Any = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments, "not JSON"
    if not isinstance(value, dict):
        return arguments, "not an object"
    known = as_dict(value)
    if known.keys() == {"invalid_arguments"}:  # what servers that insist on JSON are told of arguments that were none
        return text_of(known["invalid_arguments"]), "not JSON"
    return as_json(known), None


def _call_names(messages: Sequence[Message]) -> dict[str, str]:
    """id of a tool call → name of the tool."""
    names: dict[str, str] = {}
    for message in messages:
        for call in map(as_dict, as_list(message.get("tool_calls"))):
            names[text_of(call.get("id"))] = text_of(as_dict(call.get("function")).get("name"))
    return names


def fold(
    label: Child, *body: Child, note: str | None = None, badge: Child = None, kind: str = "", is_open: bool = False
) -> Html:
    """A part that a click opens; without JavaScript too."""
    summary = tag(
        "summary",
        tag("span", label, class_="rv-label"),
        badge,
        tag("span", note, class_="rv-note") if note else None,
    )
    return tag("details", summary, *body, class_=f"rv-fold {kind}".strip(), open=is_open)


def first_line(text: str, limit: int = 140, *, one_line: bool = False) -> str:
    head = text[: 8 * limit].strip()
    line = " ".join(head.split()) if one_line else head.partition("\n")[0]
    return line if len(line) <= limit else f"{line[:limit]}…"
