"""Replies and how they are read: strictly, since whatever passes for an answer here is paid."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import verifiers as vf

SCORES = (0.0, 0.5, 1.0)
_WRITTEN = {"0": 0.0, "0.0": 0.0, "0.5": 0.5, "1": 1.0, "1.0": 1.0}
_TAG = re.compile(r"</?(proof|evaluation|issues|analysis|score)>")
_ISSUE = re.compile(r"(?:[-*]\s*)?step\s+(\d{1,4})\s*:\s*(.*)", re.IGNORECASE)
_END_SCORE = re.compile(r"score:\s*\**\s*\\boxed\{\s*(0|0\.0|0\.5|1|1\.0)\s*\}\s*\**\s*\.?\s*\Z", re.IGNORECASE)
MIN_WORDS = 3  # of an issue: "Step 2: wrong." says nothing that could be true


class BadForm(ValueError):
    """The reply is not of the form that was asked for; the message says in what."""


@dataclass(frozen=True)
class Issue:
    step: int  # from 1
    what: str


@dataclass(frozen=True)
class Grade:
    """Of a proof: what is wrong with it, in words and by step, and a score of `SCORES`."""

    evaluation: str
    issues: tuple[Issue, ...]
    score: float

    @property
    def steps(self) -> frozenset[int]:
        return frozenset(issue.step for issue in self.issues)

    @property
    def text(self) -> str:
        """As a reply has it."""
        listed = "\n".join(f"Step {issue.step}: {issue.what}" for issue in self.issues) or "none"
        return (
            f"<evaluation>\n{self.evaluation}\n</evaluation>\n<issues>\n{listed}\n</issues>\n"
            f"<score>{self.score:g}</score>"
        )


def read_grade(text: str) -> Grade:
    """Raises BadForm. A score below 1 names an issue, a score of 1 names none.

    >>> read_grade("<evaluation>Fine.</evaluation><issues>none</issues><score>1</score>").score
    1.0
    """
    evaluation, issues, score = sections(text, "evaluation", "issues", "score")
    return _grade(evaluation, issues, score)


def read_proof(text: str) -> tuple[str, Grade]:
    """A proof and what its author says of it. Raises BadForm."""
    proof, evaluation, issues, score = sections(text, "proof", "evaluation", "issues", "score")
    return proof, _grade(evaluation, issues, score)


def read_judgement(text: str) -> float:
    """The score that is given to a grade. Raises BadForm."""
    _, score = sections(text, "analysis", "score")
    return read_score(score)


def _grade(evaluation: str, issues: str, score: str) -> Grade:
    found, value = read_issues(issues), read_score(score)
    if (value == 1.0) == bool(found):
        raise BadForm(f"a score of {value:g} with {len(found)} issues: below 1 names one at least, and 1 names none")
    return Grade(evaluation, found, value)


def sections(text: str, *names: str) -> list[str]:
    """What stands between the tags of these names: each there once, filled, in this order, and nothing after them."""
    text = text.rpartition("</think>")[2]
    if "<think>" in text:
        raise BadForm("the reasoning is not finished")
    tags = [match[0] for match in _TAG.finditer(text)]
    wanted = [tag for name in names for tag in (f"<{name}>", f"</{name}>")]
    if tags != wanted:
        shape = ", ".join(f"<{name}>" for name in names)
        raise BadForm(f"the reply has not exactly the parts {shape}, each once, closed and in this order")
    pattern = r"\s*".join(rf"<{name}>(.*?)</{name}>" for name in names)
    found = re.search(rf"{pattern}\s*\Z", text, re.DOTALL)
    if found is None:
        raise BadForm("there is text between the parts or after the last one")
    parts = [part.strip() for part in found.groups()]
    empty = next((name for name, part in zip(names, parts, strict=True) if not part), None)
    if empty is not None:
        raise BadForm(f"the part <{empty}> is empty")
    return parts


def read_score(text: str) -> float:
    if text not in _WRITTEN:
        raise BadForm(f"{text[:20]!r} is no score: 0, 0.5 or 1")
    return _WRITTEN[text]


def read_issues(text: str) -> tuple[Issue, ...]:
    """`none`, or lines `Step 2: what is wrong`."""
    if text.lower().strip(" .") == "none":
        return ()
    found: list[Issue] = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        match = _ISSUE.fullmatch(line)
        if match is None:
            raise BadForm(f"{line[:40]!r} is no issue: each is a line of the form 'Step 2: what is wrong'")
        if len(match[2].split()) < MIN_WORDS:
            raise BadForm(f"the issue of step {match[1]} does not say what is wrong")
        found.append(Issue(int(match[1]), match[2].strip()))
    return tuple(found)


def read_judge_score(reply: str) -> float:
    r"""The score that a judge's reply ends with. Raises Undecided where it ends otherwise, as one that was cut off.

    >>> read_judge_score("Step 2 is not justified. Score: \\boxed{0.5}")
    0.5
    """
    text = reply.rpartition("</think>")[2]
    found = _END_SCORE.search(text[-200:])
    if found is None or "<think>" in text:
        end = " ".join(reply.split())[-120:]
        raise vf.Undecided(f"the judge's reply does not end with a score: …{end}", "judge")
    return _WRITTEN[found[1]]


def steps_of(text: str) -> tuple[str, ...]:
    """The steps of a proof that is one text: its paragraphs."""
    return tuple(part for part in (part.strip() for part in re.split(r"\n\s*\n", text)) if part)


def numbered(steps: Iterable[str]) -> str:
    return "\n\n".join(f"Step {number}. {step}" for number, step in enumerate(steps, start=1))
