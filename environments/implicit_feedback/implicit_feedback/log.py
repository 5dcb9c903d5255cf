"""`Log`: a conversation with what the user did, and the label that the user gave it, if any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import verifiers as vf

LABELS = ("satisfied", "dissatisfied")
EVENTS = ("copied", "regenerated", "left")


@dataclass(frozen=True, slots=True)
class Event:
    """What a user did that is no message, after the message of number `after` (from 0)."""

    kind: str
    after: int
    seconds: float = 0.0  # since that message


@dataclass(frozen=True)
class Log:
    id: str
    messages: tuple[dict[str, str], ...]  # user and assistant in turn, the user first
    events: tuple[Event, ...] = ()
    label: str | None = None  # explicit, such as a thumb; held out: no signal reads it
    source: str = ""

    @property
    def user_texts(self) -> list[str]:
        return [message["content"] for message in self.messages if message["role"] == "user"]


def read_log(row: Mapping[str, Any], source: str) -> Log:
    """A row of a log file. Raises DatasetError naming what does not fit."""
    where = f"{source}, log {row.get('id')!r}"
    messages = row.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or len(messages) < 2:
        raise vf.DatasetError(f"{where}: 'messages' is a list of two messages or more, got {messages!r:.60}")
    for number, message in enumerate(messages):
        role = ("user", "assistant")[number % 2]
        if (
            not isinstance(message, Mapping)
            or message.get("role") != role
            or not isinstance(message.get("content"), str)
        ):
            raise vf.DatasetError(f"{where}: message {number} is to be a text of the {role}, got {message!r:.60}")
    label = row.get("label")
    if label is not None and label not in LABELS:
        raise vf.DatasetError(f"{where}: 'label' is {label!r}, not one of {', '.join(LABELS)} or null")
    return Log(
        id=str(row.get("id")),
        messages=tuple({"role": m["role"], "content": m["content"]} for m in messages),
        events=tuple(_event(one, len(messages), where) for one in row.get("events") or ()),
        label=label,
        source=source,
    )


def _event(row: Any, messages: int, where: str) -> Event:
    if not isinstance(row, Mapping) or row.get("kind") not in EVENTS:
        raise vf.DatasetError(f"{where}: an event has a 'kind' ({', '.join(EVENTS)}) and 'after', got {row!r:.60}")
    after, seconds = row.get("after"), row.get("seconds") or 0.0
    if not isinstance(after, int) or not 0 <= after < messages:
        raise vf.DatasetError(f"{where}: the event {row['kind']} is after message {after!r}, there are {messages}")
    return Event(row["kind"], after, float(seconds))


def in_words(log: Log) -> str:
    """The log as a model reads it; the label is not in it."""
    lines = []
    for number, message in enumerate(log.messages):
        lines.append(f"{message['role'].upper()}: {message['content']}")
        lines += [f"({_told(event)})" for event in log.events if event.after == number]
    return "\n".join(lines)


def _told(event: Event) -> str:
    what = {
        "copied": "the user copied this reply",
        "regenerated": "the user had this reply written anew",
        "left": "the user left",
    }[event.kind]
    return f"{what} after {event.seconds:g} seconds" if event.seconds else what
