"""What each of the three tasks is paid. All three are gated by the form: another reply is 0.0, with the reason."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from proof.formats import BadForm, Grade, read_grade, read_judgement, read_proof, steps_of
from proof.judges import GRADER_CANARIES, GRADER_PROMPT, META_CANARIES, META_PROMPT, ProofJudge, as_plain, known_of
from proof.rows import MAX_PROOF_CHARS, Grading, ProofRow, shown, unpacked

KEY = "proof_scores"  # of the state: what the reward is made of, for the metrics
MIN_PROOF_WORDS = 8


def agreement(one: float, other: float) -> float:
    """1 for the same score, 0.5 for one step apart, 0 for the two ends.

    >>> agreement(1.0, 0.5)
    0.5
    """
    return 1.0 - abs(one - other)


def meta_by_gap(grade: Grade, row: ProofRow) -> float:
    """Whether the issues of a grade are real, told by the steps they name.

    A proof that holds has none. Of one with a known gap, 1 when every step that is named is the gap's, 0.5 when at
    least half are, and 0 otherwise: who names all steps has found nothing.
    """
    if row.score == 1.0:
        return 0.0 if grade.issues else 1.0
    real = len(grade.steps & set(row.gap.steps if row.gap else ()))
    if not real:
        return 0.0
    return 1.0 if real == len(grade.steps) else 0.5 if 2 * real >= len(grade.steps) else 0.0


class ProveRubric(ProofJudge):
    """A prover: the grader's score of its proof, times how honestly it has graded the proof itself."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(GRADER_PROMPT, GRADER_CANARIES, **kwargs)
        self.add_reward_func(self.proved_honestly)
        for metric in (self.grader_score, self.honesty, self.own_score):
            self.add_metric(metric)

    async def proved_honestly(self, completion: Any, state: vf.State, info: Any) -> float:
        state[KEY] = {"grader_score": 0.0, "honesty": 0.0, "own_score": 0.0}
        row = unpacked(info)
        try:
            proof, own = read_proof(last_text(self, completion))
            refuse_no_proof(proof, row)
        except BadForm as why:
            return vf.Graded(0.0, str(why))
        score = await self.ask(row.problem, row.reference_text, proof)
        honesty = agreement(own.score, score)
        state[KEY] = {"grader_score": score, "honesty": honesty, "own_score": own.score}
        return score * honesty

    async def grader_score(self, state: vf.State) -> float:
        return noted(state, "grader_score")

    async def honesty(self, state: vf.State) -> float:
        return noted(state, "honesty")

    async def own_score(self, state: vf.State) -> float:
        return noted(state, "own_score")


class GradeRubric(ProofJudge):
    """A grader: agreement with the label, times whether the issues that it names are real."""

    def __init__(self, meta: str = "rules", **kwargs: Any) -> None:
        super().__init__(META_PROMPT, META_CANARIES, **kwargs)
        self.meta = meta
        self.add_reward_func(self.graded_truly)
        for metric in (self.label_agreement, self.meta_score):
            self.add_metric(metric)

    async def graded_truly(self, completion: Any, state: vf.State, info: Any) -> float:
        state[KEY] = {"label_agreement": 0.0, "meta_score": 0.0}
        row = unpacked(info)
        assert row.score is not None
        try:
            grade = read_grade(last_text(self, completion))
        except BadForm as why:
            return vf.Graded(0.0, str(why))
        agreed = agreement(grade.score, row.score)
        meta = await self._meta(grade, row) if agreed else 0.0  # what is worth nothing needs no judge
        state[KEY] = {"label_agreement": agreed, "meta_score": meta}
        return agreed * meta

    async def _meta(self, grade: Grade, row: ProofRow) -> float:
        """A judge is asked only about issues at places where there can be one: it can take away, and not add."""
        is_known = row.score == 1.0 or row.gap is not None
        located = meta_by_gap(grade, row) if is_known else 1.0
        if self.meta == "rules" or not located:
            return located
        return min(located, await self.ask(shown(row), known_of(row), as_plain(grade)))

    async def label_agreement(self, state: vf.State) -> float:
        return noted(state, "label_agreement")

    async def meta_score(self, state: vf.State) -> float:
        return noted(state, "meta_score")


class JudgeRubric(vf.Rubric):
    """A judge of grades: 1 for the labelled score. One step off is paid nothing: else always 0.5 would earn half."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_reward_func(self.judged_truly)

    async def judged_truly(self, completion: Any, info: Any) -> float:
        try:
            said = read_judgement(last_text(self, completion))
        except BadForm as why:
            return vf.Graded(0.0, str(why))
        return float(said == grading_of(info).meta_score)


def grading_of(info: Any) -> Grading:
    return unpacked(info).gradings[info["grading"]]


def last_text(rubric: vf.Rubric, completion: Any) -> str:
    return rubric.parser.parse_answer(completion) or ""


def noted(state: vf.State, name: str) -> float:
    """Raises Undecided when the reward itself could not be told."""
    if KEY not in state:
        raise vf.Undecided("the reply was not graded")
    return state[KEY][name]


def refuse_no_proof(proof: str, row: ProofRow) -> None:
    """Raises BadForm for what needs no grader to be refused."""
    if len(proof) > MAX_PROOF_CHARS:  # more than a grader is shown: its beginning would go unread
        raise BadForm(f"the proof is longer than {MAX_PROOF_CHARS} characters")
    words, asked = proof.lower().split(), row.problem.lower().split()
    if len(words) < MIN_PROOF_WORDS or not steps_of(proof):
        raise BadForm(f"a proof of {len(words)} words is none")
    repeats = words[: len(asked)] == asked and len(words) < len(asked) + MIN_PROOF_WORDS
    if repeats or " ".join(words) in " ".join(asked):
        raise BadForm("the proof says no more than the problem")
