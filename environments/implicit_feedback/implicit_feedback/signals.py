"""`infer`: from what a user did to how satisfied the user was. No explicit label is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from implicit_feedback.log import LABELS, Log

# name → weight; positive speaks for satisfaction
WEIGHTS = {
    "confirm": 2.0,  # thanks, says that it worked
    "copy": 1.5,  # took the reply away
    "go_on": 0.75,  # builds on the reply with a question of another kind
    "stay_to_read": 0.5,  # left, but after a time in which the reply can have been read
    "rephrase": -1.5,  # asked the same in other words
    "correct": -1.5,  # said that the reply is not what was asked for
    "regenerate": -1.5,
    "abandon": -1.75,  # left at once, or left a question of the assistant's unanswered
}
LAST = 2.0  # signals about the last reply count so much more: how it ended is what is remembered
SAME_REQUEST = 0.4  # share of the content words, from which on two requests are the same
READING_S = 12.0  # less is not enough to read a reply

_THANKS = re.compile(
    r"\b(thanks|thank you|thx|cheers|perfect|great|works|worked|exactly|awesome|brilliant|lovely|solved|nice one|"
    r"that did it|makes sense|got it|good one|spot on|helped)\b",
    re.IGNORECASE,
)
_NOT_QUITE = re.compile(
    r"\b(but|however|still|except|though|instead)\b|\b(not|n't|never|no longer) (work|help|what|right|it|quite)|"
    r"\b(doesn'?t|didn'?t|isn'?t|wasn'?t|won'?t)\b",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"^\s*(no\b(?! (problem|worries|need|rush|more))|nope|wrong|not what|that'?s not|that is not|i (meant|said|asked)|"
    r"actually,? i|again:)|"
    r"\b(i (meant|asked for|said)|not what i|you (ignored|forgot|misunderstood|missed)|is wrong|was wrong|"
    r"that'?s (wrong|incorrect)|still (not|doesn'?t|fails|the same|broken|wrong))\b",
    re.IGNORECASE,
)
_UNANSWERED = re.compile(r"\?\s*$")
_SORRY = re.compile(r"\b(i'?m (sorry|afraid)|i can(no|')t|unable to)\b", re.IGNORECASE)
_STOP_TEXT = (
    "a an and are as at be but by can could do does did for from get give have how i if in is it its let me my need no "
    "not of on or please should so some tell that the them then there this to was we what when where which who why "
    "will with would you your want know about again just really"
)
_STOP_WORDS = frozenset(_STOP_TEXT.split())


@dataclass(frozen=True)
class Signal:
    name: str
    about: int  # the number of the message, a reply, that it says something of


@dataclass(frozen=True)
class Inferred:
    label: str
    score: float  # above 0: satisfied
    signals: tuple[Signal, ...]

    @property
    def confidence(self) -> float:
        """From 0 to 1; half at the weight of one clear signal about the last reply."""
        return abs(self.score) / (abs(self.score) + 3.0)


def infer(log: Log) -> Inferred:
    """How satisfied the user was, and what speaks for it. Without any signal: satisfied, with confidence 0."""
    signals = signals_in(log)
    last = max(number for number, message in enumerate(log.messages) if message["role"] == "assistant")
    score = sum(WEIGHTS[one.name] * (LAST if one.about == last else 1.0) for one in signals)
    return Inferred(LABELS[0] if score >= 0 else LABELS[1], score, tuple(signals))


def signals_in(log: Log) -> list[Signal]:
    """What each message and event of the user's says of the reply before it."""
    found = [
        Signal(name, number - 1)
        for number, message in enumerate(log.messages)
        if message["role"] == "user" and number
        for name in [_said(message["content"], log.messages[number - 2]["content"])]
        if name != "go_on" or number + 1 < len(log.messages)  # else it may be a sigh
    ]
    for event in log.events:
        if event.kind == "copied":
            found.append(Signal("copy", event.after))
        elif event.kind == "regenerated":
            found.append(Signal("regenerate", event.after))
    return found + _leaving(log)


def last_turn_negative(log: Log) -> str:
    """The baseline: dissatisfied where the user's last message has a word of displeasure in it."""
    words = re.findall(r"[a-z']+", log.user_texts[-1].lower())
    negative = {
        "no", "not", "wrong", "bad", "useless", "error", "fails", "failed", "broken", "terrible", "awful", "never",
        "doesn't", "isn't", "can't", "don't", "didn't", "wasn't", "confusing", "worse", "incorrect", "annoying",
    }  # fmt: skip
    return LABELS[1] if negative & set(words) else LABELS[0]


def _said(text: str, before: str) -> str:
    """The one thing that a message says of the reply before it; `before` is the user's message before that."""
    if _CORRECTION.search(text):
        return "correct"
    if _THANKS.search(text) and not _NOT_QUITE.search(text):
        return "confirm"
    if overlap(text, before) >= SAME_REQUEST:
        return "rephrase"
    if _NOT_QUITE.search(text):
        return "correct"
    return "go_on"


def _leaving(log: Log) -> list[Signal]:
    """Only where the assistant had the last word: a user who said goodbye has not abandoned anything."""
    last = len(log.messages) - 1
    if log.messages[last]["role"] != "assistant":
        return []
    left = next((event for event in log.events if event.kind == "left" and event.after == last), None)
    text = log.messages[last]["content"]
    if _UNANSWERED.search(text) or _SORRY.search(text):
        return [Signal("abandon", last)]
    if left is None:
        return []
    is_copied = any(event.kind == "copied" and event.after == last for event in log.events)
    return [Signal("stay_to_read" if is_copied or left.seconds >= READING_S else "abandon", last)]


def overlap(one: str, other: str) -> float:
    """Share of the content words of the shorter text that the other one has too; words count by their stems."""
    first, second = content_words(one), content_words(other)
    return len(first & second) / min(len(first), len(second)) if len(first) > 1 and len(second) > 1 else 0.0


def content_words(text: str) -> set[str]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {re.sub(r"(ing|ed|es|s)$", "", word) if len(word) > 4 else word for word in words} - _STOP_WORDS


def macro_f1(true: Sequence[str], told: Sequence[str]) -> float:
    """Mean over the labels of the harmonic mean of precision and recall; a label that nobody has counts nothing.

    >>> macro_f1(["satisfied", "dissatisfied"], ["satisfied", "satisfied"])
    0.3333333333333333
    """
    scores = []
    for label in LABELS:
        hits = sum(a == b == label for a, b in zip(true, told, strict=True))
        said, there = list(told).count(label), list(true).count(label)
        if there or said:
            scores.append(2 * hits / (said + there))
    return sum(scores) / len(scores) if scores else 0.0
