"""`Audit`: answers of a saved run on which a judge spoke, and what a person says of them.

The labels are lines of `audit.jsonl` beside the results, appended as they are given, so that an audit can be left and
gone on with. The last label of an answer counts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

import msgspec

from verifiers.errors import ResultsError
from verifiers.eval.transcript import Transcript
from verifiers.line_file import LineFile, read_lines
from verifiers.parsers.parser import content_text
from verifiers.records import RolloutRecord, Score, content_hash
from verifiers.results import load_results
from verifiers.rubrics.graded import RESCUED
from verifiers.rubrics.judge_prompt import question_of
from verifiers.run_metadata import utc_now
from verifiers.statistics import share_interval

AUDIT = "audit.jsonl"

Kind = Literal["rescued", "right", "wrong", "undecided"]
Label = Literal["right", "wrong", "unsure"]

KINDS: dict[Kind, str] = {
    "rescued": "accepted by a judge and not by the rules",
    "right": "accepted by a judge",
    "wrong": "refused by a judge",
    "undecided": "without a verdict of the judge",
}
KEYS: dict[str, Label] = {"r": "right", "w": "wrong", "u": "unsure"}
PROMPT = "Is the response right? r right, w wrong, u unsure; f the whole rollout, b back, q leave > "


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    example_id: int
    rollout_index: int
    score: str
    response_hash: str  # of what was labelled: a label is not for another answer
    label: Label
    at: str  # UTC, ISO 8601
    schema_version: int = 1


Key = tuple[int, int, str, str]


@dataclass(frozen=True)
class Item:
    """One score that a judge gave, or could not give."""

    record: RolloutRecord
    score: Score
    kind: Kind  # the narrowest: one that is rescued is also right

    @property
    def key(self) -> Key:
        return *self.record.key, self.score.name, content_hash(self.response)

    @property
    def question(self) -> str:
        return question_of(self.record.prompt)

    @property
    def response(self) -> str:
        """What the judge was shown; where that was not kept, the end of what the model wrote last."""
        judge = self.score.judge
        if judge is not None and judge.response is not None:
            return judge.response
        texts = [content_text(m.get("content")) for m in self.record.messages if m.get("role") == "assistant"]
        return texts[-1][-2000:] if texts else ""

    @property
    def reply(self) -> str | None:
        return None if self.score.judge is None else self.score.judge.reply

    def as_json(self, label: Label | None) -> dict[str, Any]:
        record, judge = self.record, self.score.judge
        return {
            "example_id": record.example_id, "rollout_index": record.rollout_index, "score": self.score.name,
            "kind": self.kind, "value": self.score.value, "question": self.question, "answer": record.answer,
            "response": self.response, "reply": self.reply, "judge": None if judge is None else judge.model,
            "label": label,
        }  # fmt: skip


class Audit:
    """A seeded sample of what a judge said in one run, of one kind, with the labels given so far."""

    def __init__(self, folder: str | Path, kind: Kind = "rescued", *, limit: int | None = None, seed: int = 0) -> None:
        """`limit`: how many to look at; `None`: all. Raises ResultsError when there is nothing of this kind."""
        self.folder, self.kind = Path(folder), kind
        every = [item for record in load_results(self.folder) for item in items_of(record)]
        found = [item for item in every if kind in (item.kind, "right" if item.kind == "rescued" else item.kind)]
        if not found:
            raise ResultsError(_nothing(self.folder, kind, every))
        self.found = len(found)
        self._keys = {item.key for item in found}
        random.Random(seed).shuffle(found)  # the first of a larger sample are the smaller one
        self.sample = found if limit is None else found[:limit]
        self.labels: dict[Key, Label] = {}
        self.damaged = 0
        path = self.folder / AUDIT
        if path.exists():
            for line in read_lines(path, msgspec.json.Decoder(AuditLine).decode, self._on_damage):
                self.labels[line.example_id, line.rollout_index, line.score, line.response_hash] = line.label

    def label(self, item: Item, label: Label) -> None:
        example_id, rollout_index, score, response_hash = item.key
        line = AuditLine(
            example_id=example_id,
            rollout_index=rollout_index,
            score=score,
            response_hash=response_hash,
            label=label,
            at=utc_now(),
        )
        try:
            file = LineFile(self.folder / AUDIT)
            try:
                file.cut_torn_line()
                file.append(msgspec.json.encode(line))
            finally:
                file.close()
        except OSError as error:
            raise ResultsError(f"cannot write to {self.folder / AUDIT}: {error.strerror or error}") from error
        self.labels[item.key] = label

    def summary(self) -> dict[str, Any]:
        """Counts over all labels of this kind, and how often the judge was wrong there, with a 95 % interval."""
        counts = Counter(label for key, label in self.labels.items() if key in self._keys)
        decided = counts["right"] + counts["wrong"]
        errors = counts["right"] if self.kind == "wrong" else counts["wrong"]
        rate = None
        if decided and self.kind != "undecided":
            interval = share_interval(errors, decided)
            assert interval is not None
            rate = {"value": errors / decided, "low": interval.low, "high": interval.high, "n": decided}
        return {
            "run": str(self.folder),
            "kind": self.kind,
            "found": self.found,
            "sampled": len(self.sample),
            "labelled": counts.total(),
            "labels": {label: counts[label] for label in ("right", "wrong", "unsure")},
            "false_positive_rate": rate if self.kind in ("rescued", "right") else None,
            "false_negative_rate": rate if self.kind == "wrong" else None,
        }

    def ask(self, source: TextIO, out: TextIO) -> None:
        """Shows what has no label yet, one by one, until all have one or the person leaves."""
        waiting = [item for item in self.sample if item.key not in self.labels]
        transcript = Transcript(out)
        number = 0
        while number < len(waiting):
            item = waiting[number]
            show(transcript, item, f"{number + 1} of {len(waiting)}")
            step = self._answer(item, transcript, source)
            if step is None:
                return
            number = max(0, number + step)

    def _answer(self, item: Item, transcript: Transcript, source: TextIO) -> int | None:
        """Reads until there is an answer: 1 goes on, -1 back, `None` leaves."""
        while True:
            print(PROMPT, end="", file=transcript.out, flush=True)
            line = source.readline()
            key = line.strip().lower()[:1]
            if not line or key == "q":
                transcript.line("")
                return None
            if key in KEYS:
                self.label(item, KEYS[key])
                return 1
            if key == "b":
                return -1
            if key == "f":
                transcript.begin("the whole rollout")
                transcript.result(item.record)

    def _on_damage(self, error: ResultsError) -> None:
        self.damaged += 1


def items_of(record: RolloutRecord) -> Iterator[Item]:
    for score in record.scores:
        if score.judge is None:
            continue
        if score.status == "undecided":
            yield Item(record, score, "undecided")
        elif score.value is not None:
            accepted: Kind = "rescued" if score.reason == RESCUED else "right"
            yield Item(record, score, accepted if score.value > 0 else "wrong")


def show(transcript: Transcript, item: Item, place: str) -> None:
    record, judge = item.record, item.score.judge
    name = "" if judge is None else f" by {judge.model}"
    which = f"example {record.example_id}, try {record.rollout_index}"
    transcript.begin(f"{place} · {which} · {item.score.name}{name}: {KINDS[item.kind]}")
    reply = "(not kept)" if item.reply is None else item.reply
    for title, text, role in (
        ("question", item.question, "user"),
        ("reference", str(record.answer), "note"),
        ("response", item.response, "assistant"),
        ("judge", reply, "system"),
    ):
        transcript.line(f"── {title}", role)
        transcript.line(text)


def listed(item: Item, label: Label | None) -> str:
    """One line about one item."""

    def short(text: str, width: int) -> str:
        text = " ".join(text.split())
        return text if len(text) <= width else f"…{text[1 - width :]}"

    where = f"{item.record.example_id}/{item.record.rollout_index}"
    reference, response = short(str(item.record.answer), 40), short(item.response, 60)
    return f"{label or '–':<7} {where:<9} {item.score.name}: {response!r}, reference {reference!r}"


def in_words(summary: dict[str, Any]) -> list[str]:
    labels = summary["labels"]
    counts = ", ".join(f"{count} {label}" for label, count in labels.items())
    lines = [f"{summary['found']} {KINDS[summary['kind']]}; {summary['labelled']} labelled: {counts}"]
    for name in ("false_positive_rate", "false_negative_rate"):
        if (rate := summary[name]) is not None:
            share = f"{100 * rate['value']:.1f} % (95 %: {100 * rate['low']:.1f} to {100 * rate['high']:.1f})"
            lines.append(f"{name.replace('_', ' ')} of the judge here: {share}, from {rate['n']} labels")
    return lines


def _nothing(folder: Path, kind: Kind, every: Sequence[Item]) -> str:
    counts = Counter(item.kind for item in every)
    counts["right"] += counts["rescued"]
    there = [f"{counts[name]} {words} (--kind {name})" for name, words in KINDS.items() if counts[name]]
    has = f"It has {', '.join(there)}" if there else "No judge was asked in it"
    return f"{folder} has no answer {KINDS[kind]}. {has}"
