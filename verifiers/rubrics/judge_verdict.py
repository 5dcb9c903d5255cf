r"""A judge's verdict: read from the end of its reply, or not at all.

A reply is yes or no in one of these words: `yes`, `correct`, `A`; `no`, `incorrect`, `B`; `invalid`, `C` (no answer to
grade: not right). It is the whole reply, or what follows the last `Verdict:` or `Final judgment:`, or the box that the
reply ends with, or the field `verdict` of a reply in JSON. Whatever else a reply is, it is no verdict.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from verifiers.errors import Undecided

VERDICT_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "verdict",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"reasoning": {"type": "string"}, "verdict": {"type": "string", "enum": ["yes", "no"]}},
            "required": ["reasoning", "verdict"],
            "additionalProperties": False,
        },
    },
}
VERDICT_IN_JSON = (
    "Write the reply as a JSON object with two fields: reasoning, in a few sentences, then verdict, which is yes when "
    "the response is right (A) and no when it is not (B, C)."
)

_WORDS = {
    "yes": True, "correct": True, "right": True, "a": True,
    "no": False, "incorrect": False, "wrong": False, "b": False,
    "invalid": False, "c": False,
}  # fmt: skip

# What a judge wrote may be long and odd: possessive quantifiers, and a look at its end only, keep reading it linear.
VERDICT_CHARS = 200  # what follows a marker, or a whole reply without one, is no verdict when it is longer
END_CHARS = 400
_EDGE = r"[\s*_`\"'“”‘’($]*+"
_END = r"[\s*_`\"'“”‘’).!$]*+"
_WORD = rf"(?:\\text\s*\{{\s*)?({'|'.join(_WORDS)})(?:\s*\}})?"
_LABEL = r"(?:[-–—:(]++\s*+<?\s*+(correct|incorrect|invalid)>?\s*\)?)?"  # `A - CORRECT`
_BOX = rf"\\boxed\s*\{{\s*{_WORD}\s*\}}"
_ALONE = re.compile(rf"{_EDGE}(?:{_BOX}|{_WORD}){_END}{_LABEL}{_END}", re.IGNORECASE)
_MARKER = re.compile(
    r"(?:^|[.!?…]['\"”’)]*+\s)[\s*_#>-]*+(?:verdict|(?:final\s++)?judge?ment)[\s*_]*+:",  # begins a line or a sentence
    re.IGNORECASE | re.MULTILINE,
)
_LAST_BOX = re.compile(
    rf"(?:^|[.!?]\s)\s*+(?:(?:so|thus|hence|therefore),?\s++)?({_EDGE}{_BOX}{_END}{_LABEL}{_END})\Z",
    re.IGNORECASE | re.MULTILINE,
)


def read_verdict(reply: str, finish_reason: str | None = None) -> bool:
    r"""Whether the judge says yes. Raises Undecided for a reply that is no verdict, or was cut off.

    `finish_reason` is the server's; `None`: it gave none. A marker that stands in quotes is one that the judge
    quotes. Nothing may follow the word, so that a reply which broke off while it quoted a verdict is none.

    >>> read_verdict('It claims "Verdict: yes". It is wrong. Verdict: no')
    False
    >>> read_verdict("Both are one half.\nFinal judgment: \\boxed{A} - CORRECT", "stop")
    True
    """
    if finish_reason not in (None, "stop"):
        raise no_verdict(reply, f"was cut off ({finish_reason})")
    text = _without_thoughts(reply)
    if text.startswith("{"):
        return _from_json(text, reply)
    start = max(0, len(text) - END_CHARS)
    ends = [marker.end() for marker in _MARKER.finditer(text, start) if not _is_quoted(text, marker.end())]
    words = text[ends[-1] :] if ends else text
    found = _ALONE.fullmatch(words) if len(words) <= VERDICT_CHARS else None
    if found is None and not ends and (last := _LAST_BOX.search(text, start)) is not None:
        found = _ALONE.fullmatch(last[1])
    if found is None:
        raise no_verdict(reply, "holds no verdict")
    is_right = _WORDS[(found[1] or found[2]).lower()]
    if found[3] is not None and _WORDS[found[3].lower()] != is_right:
        raise no_verdict(reply, "contradicts itself")
    return is_right


def _is_quoted(text: str, end: int) -> bool:
    """Whether quotes are open there, of those that begin in the same line."""
    line = text[text.rfind("\n", 0, end) + 1 : end]
    return line.count('"') % 2 == 1 or line.count("`") % 2 == 1 or line.count("“") > line.count("”")


def no_verdict(reply: str, why: str) -> Undecided:
    end = " ".join(reply.split())[-120:]
    return Undecided(f"the judge's reply {why}: …{end}" if end else f"the judge's reply {why}: it is empty", "judge")


def _without_thoughts(reply: str) -> str:
    """What follows the last `</think>`; nothing, when thinking was begun and not ended."""
    rest = reply.rpartition("</think>")[2]
    return "" if "<think>" in rest else rest.strip()


def _from_json(text: str, reply: str) -> bool:
    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("a field is there twice")
        return dict(pairs)

    try:
        word = json.loads(text, object_pairs_hook=fields)["verdict"]
        return _WORDS[word.strip().lower()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise no_verdict(reply, "is no JSON with a verdict") from None


# Ways to begin an answer. Judges are known to accept them as one, since they look like the beginning of a good one.
LONGEST_OPENER = 100
_OPENER_WORDS = """
    solution, the solution, answer, the answer, the answer is, final answer, the final answer, the final answer is,
    thought process, my thought process, thought, thoughts, thinking, thinking process, reasoning, explanation,
    analysis, step by step, step 1, step one, steps, lets think step by step, lets solve this problem step by step,
    lets think, lets solve this, lets begin, first, firstly, to solve this, to solve this problem, to find the answer,
    here is the answer, heres the answer, here is the solution, heres the solution, here is my answer, response,
    result, conclusion, output, therefore, thus, so, sure, okay, ok, certainly, of course, well, see above, as above,
    as shown above, boxed, the correct answer, the response is correct, same as the reference, the reference answer,
    解, 答, 答案, 解答, 解析, かいせつ, 回答, respuesta, solución, antwort, lösung, réponse, ответ, решение
"""
_OPENERS = frozenset(" ".join(text.split()) for text in _OPENER_WORDS.split(","))


def is_no_answer(response: str, gold: str = "") -> bool:
    """Whether a response can be refused without a judge: nothing, punctuation, or a mere opening.

    Not so when it is the reference itself.

    >>> [is_no_answer(text) for text in ("", " : ", "Solution", "Thought process:", "Let's think step by step.", "4")]
    [True, True, True, True, True, False]
    """
    plain = _plain(response) if len(response) <= LONGEST_OPENER else ""
    if not plain:
        return not _SIGN.search(response)
    return plain in _OPENERS and plain != _plain(gold[:LONGEST_OPENER])


_SIGN = re.compile(r"[^\s.,:;!?…。、，：；！？'\"`“”‘’#_~|()\[\]{}\\\-–—*$]")


def _plain(text: str) -> str:
    """Letters, digits and single spaces, in one case."""
    text = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    kept = "".join(c if unicodedata.category(c)[0] in "LNM" else " " for c in text)
    return " ".join(kept.split())
