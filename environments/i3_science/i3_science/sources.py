"""The public sets: where each is, and what its rows mean.

A row says in `info["scored_by"]` what decides about it: "choice", "rules" (which a judge may help out) or "judge".
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

import verifiers as vf
from i3_science import own_questions as own
from i3_science.references import readable

logger = logging.getLogger("verifiers")
Row = dict[str, Any]

MAX_REFERENCE_CHARS = 300  # a longer one is no short answer


class Unfit(Exception):
    """Why a row of the public set cannot be asked or scored. Such rows are left out and counted."""


@dataclass(frozen=True)
class Source:
    data: vf.DataSource
    read: Callable[..., Row]  # of a row and the options' seed; raises Unfit, or LookupError, TypeError, ValueError
    own_rows: Callable[[], list[Row]]

    def rows(
        self,
        path: str | None = None,
        num: int = -1,
        seed: int | None = None,
        fits: Callable[[Row], str | None] = lambda row: None,
    ) -> list[Row]:
        """At most `num` rows with `question`, `answer` and `info`; a seed shuffles first. `fits` says why a row is to
        be left out, or None. Raises DatasetError naming a row outside the schema."""
        asked = num
        while True:  # rows that are left out are made up for by others; sets can be large, so no more than needed
            published = self.data.rows(path, self.own_rows(), asked, seed)
            rows, unfit = self._fit(published, seed or 0, fits)
            if num < 0 or len(rows) >= num or len(published) < asked:
                break
            asked *= 2
        for reason, count in unfit.items():
            logger.warning("%s: %d of %d rows are left out: %s", self.data, count, len(published), reason)
        if not rows:
            raise vf.DatasetError(f"{self.data}: none of {len(published)} rows is left: {dict(unfit)}")
        return rows if num < 0 else rows[:num]

    def _fit(
        self, published: list[Row], seed: int, fits: Callable[[Row], str | None]
    ) -> tuple[list[Row], Counter[str]]:
        rows: list[Row] = []
        unfit: Counter[str] = Counter()
        for number, row in enumerate(published, start=1):
            try:
                made = self.read(row, seed)
                if reason := fits(made):
                    raise Unfit(reason)
            except Unfit as error:
                unfit[str(error)] += 1
                continue
            except (LookupError, TypeError, ValueError) as error:
                raise vf.DatasetError(
                    f"{row['source']}, row {number}: not in the schema of {self.data} "
                    f"({type(error).__name__}: {error}): {row!r:.200}"
                ) from None
            made["info"]["source"] = row["source"]
            rows.append(made)
        return rows, unfit


def _megascience(row: Row, seed: int) -> Row:
    reference = row["reference_answer"]
    if reference is None or not reference.strip():
        raise Unfit("they have no reference answer")
    if len(reference) > MAX_REFERENCE_CHARS:
        raise Unfit("their reference answer is long")
    return _short(row["question"], reference, subject=row["subject"])


def _gpqa(row: Row, seed: int) -> Row:
    wrong = [row[f"Incorrect Answer {number}"] for number in (1, 2, 3)]
    options = [_text(option, "an option").strip() for option in (row["Correct Answer"], *wrong)]
    info = {"domain": row.get("High-level domain"), "record_id": row.get("Record ID")}
    asked = {"question": _text(row["Question"], "the question").strip(), "options": options, "answer": 0}
    shuffled = vf.shuffle_options(asked, seed)
    return {**shuffled, "info": {**shuffled["info"], **_there(info), "scored_by": "choice"}}


def _mmlu_pro(row: Row, seed: int) -> Row:
    """In the published order; `answer` and `answer_index` must name the same option."""
    options = [_text(option, "an option") for option in row["options"]]
    letter = _text(row["answer"], "the answer").strip()
    if len(letter) != 1 or letter not in ascii_uppercase[: len(options)]:
        raise ValueError(f"the answer {letter!r} is none of {len(options)} options")
    if ascii_uppercase.index(letter) != row["answer_index"]:
        raise ValueError(f"the answer {letter!r} is not option {row['answer_index']!r}, counted from 0")
    lines = [f"{letter}. {text}" for letter, text in zip(ascii_uppercase, options, strict=False)]
    info = {"options": options, "question_id": row["question_id"], "category": row.get("category")}
    question = "\n".join([_text(row["question"], "the question"), "", *lines])
    return {"question": question, "answer": letter, "info": {**_there(info), "scored_by": "choice"}}


def _hle(row: Row, seed: int) -> Row:
    if row["image"]:
        raise Unfit("they have an image")
    kind = row["answer_type"]
    if kind not in ("exactMatch", "multipleChoice"):
        raise ValueError(f"'answer_type' is {kind!r}, neither 'exactMatch' nor 'multipleChoice'")
    made = _short(row["question"], row["answer"], id=row["id"], category=row.get("category"), answer_type=kind)
    if kind == "multipleChoice":  # the options stand in the question, in any form
        made["info"]["scored_by"] = "judge"
        made["answer"] = row["answer"].strip()
    return made


def _short(question: Any, reference: Any, **info: Any) -> Row:
    """A question with a short answer, which rules compare where they can."""
    reference = _text(reference, "the answer").strip()
    answer = readable(reference)
    scored_by = "judge" if answer is None else "rules"
    row = {"question": _text(question, "the question").strip(), "answer": answer or reference}
    return {**row, "info": {**_there(info), "scored_by": scored_by}}


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} is {value!r:.60}")
    return value


def _there(info: Row) -> Row:
    return {name: value for name, value in info.items() if value is not None}


def _source(
    name: str,
    columns: tuple[str, ...],
    read: Callable[..., Row],
    rows: Callable[[], list[Row]],
    split: str,
    config: str | None = None,
) -> Source:
    return Source(vf.DataSource(name, split=split, config=config, columns=columns), read, rows)


MEGASCIENCE = _source(
    "MegaScience/MegaScience",
    ("question", "subject", "reference_answer"),
    _megascience,
    own.megascience_rows,
    split="train",
)
EVAL = {
    "gpqa": _source(
        "Idavidrein/gpqa",
        ("Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"),
        _gpqa,
        own.gpqa_rows,
        split="train",
        config="gpqa_diamond",
    ),
    "mmlu-pro": _source(
        "TIGER-Lab/MMLU-Pro",
        ("question_id", "question", "options", "answer", "answer_index"),
        _mmlu_pro,
        own.mmlu_pro_rows,
        split="test",
    ),
    "hle": _source("cais/hle", ("id", "question", "image", "answer", "answer_type"), _hle, own.hle_rows, split="test"),
}
