"""`ProofRow`: a problem, a proof with its label, and grades of it: the one data format of the three tasks."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

import verifiers as vf
from proof.formats import SCORES, Grade, Issue, numbered, steps_of
from proof.theorems import THEOREMS, Flaw, Theorem

TRAIN_EVERY = 2  # of our own theorems every second one is for training, with both of its proofs
OWN_SOURCE = "own theorems"
MAX_PROBLEM_CHARS = 4_000
MAX_PROOF_CHARS = 8_000  # as much as a judge is shown of one text


class Gap(msgspec.Struct, frozen=True):
    steps: tuple[int, ...]  # from 1: naming one of them locates it
    what: str = ""


class Grading(msgspec.Struct, frozen=True):
    """Somebody's grade of the proof, and what it is worth."""

    evaluation: str
    issues: tuple[Issue, ...]
    score: float
    meta_score: float  # 1: its issues are real and account for its score, 0: they are not, 0.5: some are

    @property
    def grade(self) -> Grade:
        return Grade(self.evaluation, self.issues, self.score)


class ProofRow(msgspec.Struct, frozen=True, kw_only=True):
    """`score` is an expert's; `None` where nobody has graded the proof, or there is none."""

    id: str
    problem: str
    proof: tuple[str, ...] | str = ()  # its steps, or a text whose paragraphs they are
    score: float | None = None
    gap: Gap | None = None  # of a proof with a score below 1, where it is known
    gradings: tuple[Grading, ...] = ()
    reference: tuple[str, ...] | str = ()  # a proof that holds, shown to nobody but a judge

    @property
    def steps(self) -> tuple[str, ...]:
        return steps_of(self.proof) if isinstance(self.proof, str) else self.proof

    @property
    def reference_text(self) -> str:
        return self.reference if isinstance(self.reference, str) else "\n\n".join(self.reference)

    def check(self, where: str) -> None:
        """Raises DatasetError for what cannot be shown whole, or would be graded wrongly."""
        given = [self.score, *(g.score for g in self.gradings), *(g.meta_score for g in self.gradings)]
        odd = [score for score in given if score is not None and score not in SCORES]
        told = {
            "the problem is empty": not self.problem.strip(),
            f"the problem is longer than {MAX_PROBLEM_CHARS} characters": len(self.problem) > MAX_PROBLEM_CHARS,
            f"the proof is longer than {MAX_PROOF_CHARS} characters": len("\n\n".join(self.steps)) > MAX_PROOF_CHARS,
            f"the reference is longer than {MAX_PROOF_CHARS} characters": len(self.reference_text) > MAX_PROOF_CHARS,
            f"{odd[:1]} is no score: 0, 0.5 or 1": bool(odd),
            "there is a score and no proof": self.score is not None and not self.steps,
            "there are gradings and no proof": bool(self.gradings) and not self.steps,
            "a proof of score 1 has a gap": self.score == 1.0 and self.gap is not None,
            "the gap names no step, or one that the proof has not": self.gap is not None
            and not (self.gap.steps and set(self.gap.steps) <= set(range(1, len(self.steps) + 1))),
        }
        for what, holds in told.items():
            if holds:
                raise vf.DatasetError(f"{where}: {what}")


def read_rows(data: str) -> list[tuple[ProofRow, str]]:
    """The rows of a file, each with where it came from. Raises DatasetError naming the row that does not fit."""
    source = vf.DataSource("proof rows, see the README", columns=("id", "problem"))
    found: list[tuple[ProofRow, str]] = []
    for number, raw in enumerate(source.rows(data=data), start=1):
        where = f"{raw['source']}, row {number}"
        try:
            row = msgspec.convert({key: value for key, value in raw.items() if value is not None}, ProofRow)
        except msgspec.ValidationError as error:
            raise vf.DatasetError(f"{where}: {error}. The README has the format") from None
        row.check(where)
        found.append((row, raw["source"]))
    return found


def own_rows(split: str) -> list[tuple[ProofRow, str]]:
    """Of each theorem the proof that holds and the one with a gap; the theorems of the two splits differ."""
    chosen = [t for number, t in enumerate(THEOREMS) if (number % TRAIN_EVERY == 0) == (split == "train")]
    return [(row, OWN_SOURCE) for theorem in chosen for row in rows_of(theorem)]


def rows_of(theorem: Theorem) -> tuple[ProofRow, ProofRow]:
    """The one that holds comes first."""
    known = {"problem": theorem.problem, "reference": theorem.proof}
    gap = Gap(theorem.gap.steps, theorem.gap.what)
    right = ProofRow(id=f"{theorem.name}-right", proof=theorem.proof, score=1.0, gradings=_of_right(theorem), **known)
    flawed = ProofRow(
        id=f"{theorem.name}-gap",
        proof=theorem.flawed,
        score=theorem.score,
        gap=gap,
        gradings=_of_flawed(theorem),
        **known,
    )
    return right, flawed


HOLDS = "Every step follows from what comes before it, and together they prove the claim."
_FALLS = "One of the steps does not follow, and the proof rests on it."


def reference_grade(row: ProofRow) -> Grade:
    """What an honest grader says of a labelled proof."""
    if row.gap is None:
        return Grade(HOLDS, (), 1.0)
    return Grade(_FALLS, (Issue(row.gap.steps[0], row.gap.what),), row.score or 0.0)


def _of_right(theorem: Theorem) -> tuple[Grading, ...]:
    return (
        Grading(HOLDS, (), 1.0, meta_score=1.0),
        Grading(_FALLS, _issues(theorem.invented), 0.5, meta_score=0.0),
    )


def _of_flawed(theorem: Theorem) -> tuple[Grading, ...]:
    """The honest grade; and a lenient one, one with an invented issue, or one with a real and an invented issue."""
    real, invented = _issues(theorem.gap), _issues(theorem.decoy)
    others = (
        Grading(HOLDS, (), 1.0, meta_score=0.0),
        Grading(_FALLS, invented, theorem.score, meta_score=0.0),
        Grading(_FALLS, (*invented, *real), theorem.score, meta_score=0.5),
    )
    place = THEOREMS.index(theorem) // TRAIN_EVERY  # so that both splits have all three kinds
    return Grading(_FALLS, real, theorem.score, meta_score=1.0), others[place % len(others)]


def _issues(flaw: Flaw) -> tuple[Issue, ...]:
    return (Issue(flaw.steps[0], flaw.what),)


def drawn(rows: Sequence[Any], num: int, seed: int | None) -> list[Any]:
    """The first `num` (-1: all), after a shuffle where there is a seed."""
    found = list(rows) if seed is None else random.Random(seed).sample(list(rows), len(rows))
    return found if num < 0 else found[:num]


def once(rows: Iterable[tuple[ProofRow, str]]) -> list[tuple[ProofRow, str]]:
    """The first row of each problem."""
    found: dict[str, tuple[ProofRow, str]] = {}
    for row, source in rows:
        found.setdefault(" ".join(row.problem.split()), (row, source))
    return list(found.values())


def shown(row: ProofRow) -> str:
    return f"Problem:\n{row.problem}\n\nProof:\n\n{numbered(row.steps)}"


def packed(row: ProofRow, source: str, **more: Any) -> dict[str, Any]:
    """The `info` of an example; the row travels as JSON text."""
    return {"source": source, "id": row.id, "row": msgspec.json.encode(row).decode(), **more}


def unpacked(info: Mapping[str, Any]) -> ProofRow:
    return msgspec.json.decode(info["row"], type=ProofRow)
