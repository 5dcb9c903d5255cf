"""`preference_in`: from a user's complaint to what a better reply has to keep to, as far as a rule can check it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import verifiers as vf
from implicit_feedback.log import Log
from implicit_feedback.signals import content_words

Asked = tuple[str, dict[str, Any]]  # an instruction of `vf.InstructionRubric` and its arguments

NUMBERS = {"one": 1, "a single": 1, "two": 2, "three": 3, "four": 4, "five": 5}
SHORTER, LONGER = 0.6, 1.5  # of the words of the reply that was too long, or too short
TOO_LIKE = 0.9  # so like the reply that was refused, a reply is the same again


@dataclass(frozen=True)
class Preference:
    asked_at: int  # number of the user's message that says it
    asked: tuple[Asked, ...]
    request: str  # what the reply is to be about
    refused: str  # the reply that was not what was wanted


def preference_in(log: Log) -> Preference | None:
    """The last complaint of a log that a rule can check; `None` where there is none."""
    for number in range(len(log.messages) - 1, 1, -1):
        message, refused = log.messages[number], log.messages[number - 1]["content"]
        if message["role"] != "user":
            continue
        found = [read(match, refused) for pattern, read in _PATTERNS if (match := pattern.search(message["content"]))]
        if found:
            asked = dict(found)  # of two of a kind the last
            return Preference(number, tuple(asked.items()), log.messages[number - 2]["content"], refused)
    return None


def why_not_preferred(preference: Preference, complaint: str, reply: str) -> str | None:
    """What keeps a reply from being the better one; `None` where nothing does."""
    likeness = SequenceMatcher(None, preference.refused, reply)
    if likeness.real_quick_ratio() >= TOO_LIKE and likeness.ratio() >= TOO_LIKE:  # the first by the lengths alone
        return "the reply that was refused, again"
    if complaint.strip().casefold() in reply.casefold():
        return "the complaint, sent back"
    topic = content_words(preference.request)
    if topic and not topic & content_words(reply):
        return "nothing of what was asked about"
    return None


def _number(text: str) -> int:
    return NUMBERS.get(text.lower()) or int(text)


def _words(reply: str) -> int:
    return len(re.findall(r"\w+", reply))


def _at_least(words: int) -> Asked:
    return "length_constraints:number_words", {"num_words": words, "relation": "at least"}


def _less_than(words: int) -> Asked:
    return "length_constraints:number_words", {"num_words": max(words, 5), "relation": "less than"}


_N = r"(one|a single|two|three|four|five|\d{1,2})"
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], Asked]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), read)
    for pattern, read in (
        (
            rf"\bin (?:at most )?{_N} sentences?\b",
            lambda m, _: (
                "length_constraints:number_sentences",
                {"num_sentences": _number(m[1]) + 1, "relation": "less than"},
            ),
        ),
        (r"\b(too long|shorter|more briefly)\b", lambda _, refused: _less_than(int(SHORTER * _words(refused)))),
        (r"\b(too short|longer|more detail)\b", lambda _, refused: _at_least(int(LONGER * _words(refused)))),
        (
            rf"\b{_N} bullet points?\b",
            lambda m, _: ("detectable_format:number_bullet_lists", {"num_bullets": _number(m[1])}),
        ),
        (
            r"\b(no|without) (bullet points|bullets|lists?)\b",
            lambda *_: ("detectable_format:number_bullet_lists", {"num_bullets": 0}),
        ),
        (r"\bmention (?:the )?['\"]?(\w+)", lambda m, _: ("keywords:existence", {"keywords": [m[1]]})),
        (
            r"\bwithout the word ['\"]?(\w+)",
            lambda m, _: ("keywords:forbidden_words", {"forbidden_words": [m[1]]}),
        ),
        (r"\bas JSON\b", lambda *_: ("detectable_format:json_format", {})),
    )
)


def row_of(log: Log, preference: Preference, rubric: PreferenceRubric) -> dict[str, Any] | None:
    """The conversation up to the complaint, to be answered anew; `None` unless the log shows a reply that meets it."""
    after = log.messages[preference.asked_at + 1 :]
    if not after:
        return None
    info = {
        "id": log.id,
        "source": log.source,
        "instruction_id_list": [name for name, _ in preference.asked],
        "kwargs": [arguments for _, arguments in preference.asked],
        "asked_at": preference.asked_at,
        "request": preference.request,
        "refused": preference.refused,
        "accepted": after[0]["content"],  # what came then, for the reference
    }
    prompt = [dict(message) for message in log.messages[: preference.asked_at + 1]]
    if not rubric.preferred(info["accepted"], prompt, {}, info):
        return None
    return {"prompt": prompt, "info": json.dumps(info)}  # text: each row has arguments of its own


class PreferenceRubric(vf.InstructionRubric):
    """Pays a reply that keeps to what the user complained of, is about the request, and is another one."""

    def __init__(self) -> None:
        super().__init__(weights=None)
        self.weights = [0.0] * len(self.weights)
        self.add_reward_func(self.preferred)

    def preferred(self, completion: Any, prompt: Any, state: Any, info: Mapping[str, Any]) -> float:
        followed = self.follows_all(self.parser, completion, state, info)
        if not followed:
            return followed
        preference = Preference(info["asked_at"], (), info["request"], info["refused"])
        reply = str(self.parser.parse_answer(completion) or "")
        reason = why_not_preferred(preference, prompt[-1]["content"], reply)
        return vf.Graded(0.0, reason) if reason else 1.0
