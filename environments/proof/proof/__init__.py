"""`proof`: prove with a self-assessment, grade a proof, judge a grade: three tasks on one data format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import verifiers as vf
from proof.formats import Grade
from proof.prompts import GRADE, JUDGE, PROVE, grade_question, judge_question, prove_question
from proof.rows import HOLDS, ProofRow, drawn, once, own_rows, packed, read_rows, reference_grade, unpacked
from proof.rubrics import GradeRubric, JudgeRubric, ProveRubric, grading_of
from verifiers.data_source import check_data

TASKS = ("prove", "grade", "judge")
METAS = ("rules", "judge")
SYSTEM_PROMPTS = {"prove": PROVE, "grade": GRADE, "judge": JUDGE}


def load_environment(
    task: str = "grade",
    data: str | None = None,
    train_data: str | None = None,
    meta: str = "rules",
    judge_client: Any = None,
    judge_model: str = "gpt-4.1-mini",
    judge_sampling_args: dict[str, Any] | None = None,
    num_train_examples: int = -1,
    num_eval_examples: int = -1,
    seed: int | None = None,
) -> vf.Environment:
    """One of `TASKS`, or "all" of them as a group. The README has the arguments."""
    _check(task, data, train_data, meta, judge_model, num_train_examples, num_eval_examples, seed)
    judge = {"judge_client": judge_client, "judge_model": judge_model, "judge_sampling_args": judge_sampling_args}
    rubrics: dict[str, Callable[[], vf.Rubric]] = {
        "prove": lambda: ProveRubric(**judge),
        "grade": lambda: GradeRubric(meta, **judge),
        "judge": JudgeRubric,
    }

    def made(name: str) -> vf.Environment:
        return vf.SingleTurnEnv(
            dataset=partial(_examples, name, "train", train_data or data, meta, num_train_examples, seed),
            eval_dataset=partial(_examples, name, "eval", data, meta, num_eval_examples, seed),
            system_prompt=SYSTEM_PROMPTS[name],
            rubric=rubrics[name](),
        )

    return vf.EnvGroup([made(name) for name in TASKS], list(TASKS)) if task == "all" else made(task)


def reference_reply(messages: Sequence[Any], row: dict[str, Any]) -> str:
    """The reference policy of all three tasks: the known proof, the honest grade, the labelled judgement."""
    info = row["info"]
    known = unpacked(info)
    if info["task"] == "prove":
        proof = known.reference_text or "\n\n".join(known.steps)
        return f"<proof>\n{proof}\n</proof>\n{Grade(HOLDS, (), 1.0).text}"
    if info["task"] == "judge":
        return f"<analysis>\nBy the label.\n</analysis>\n<score>{grading_of(info).meta_score:g}</score>"
    return reference_grade(known).text


def _examples(task: str, split: str, data: str | None, meta: str, num: int, seed: int | None) -> list[dict[str, Any]]:
    rows = own_rows(split) if data is None else read_rows(data)
    examples = list(_EXAMPLES[task](rows, meta))
    if not examples:
        raise vf.DatasetError(f"task={task!r}: no row fits it, the README says what its rows have")
    return drawn(examples, num, seed)


def _to_prove(rows: list[tuple[ProofRow, str]], meta: str) -> list[dict[str, Any]]:
    return [{"question": prove_question(row), "info": packed(row, source, task="prove")} for row, source in once(rows)]


def _to_grade(rows: list[tuple[ProofRow, str]], meta: str) -> list[dict[str, Any]]:
    labelled = [(row, source) for row, source in rows if row.score is not None]
    for row, source in labelled:
        if meta == "rules" and row.score != 1.0 and row.gap is None:
            raise vf.DatasetError(
                f"{source}, {row.id}: a proof of score {row.score:g} without a gap: no rule can tell whether an "
                "issue is real. Give its gap, or meta='judge'"
            )
    return [{"question": grade_question(row), "info": packed(row, source, task="grade")} for row, source in labelled]


def _to_judge(rows: list[tuple[ProofRow, str]], meta: str) -> list[dict[str, Any]]:
    return [
        {
            "question": judge_question(row, grading.grade),
            "info": packed(row, source, task="judge", grading=number),
        }
        for row, source in rows
        for number, grading in enumerate(row.gradings)
    ]


_EXAMPLES = {"prove": _to_prove, "grade": _to_grade, "judge": _to_judge}


def _check(
    task: Any, data: Any, train_data: Any, meta: Any, judge_model: Any, num_train: Any, num_eval: Any, seed: Any
) -> None:
    if task not in (*TASKS, "all"):
        raise ValueError(f"task={task!r}: there are {', '.join(map(repr, TASKS))} and 'all'")
    if meta not in METAS:
        raise ValueError(f"meta={meta!r}: there are {' and '.join(map(repr, METAS))}")
    if train_data is not None and data is None:
        raise ValueError("train_data is given without data: give both, the rows to train on and those to evaluate on")
    for name, path in (("data", data), ("train_data", train_data)):
        if path is not None:
            check_data(path, name)
    if not isinstance(judge_model, str) or not judge_model:
        raise ValueError(f"judge_model={judge_model!r}: give the name of a model")
    for name, value in (("num_train_examples", num_train), ("num_eval_examples", num_eval)):
        if not _is_whole(value) or value == 0 or value < -1:
            raise ValueError(f"{name}={value!r}: give a whole number, 1 or more, or -1 for all there are")
    if seed is not None and not _is_whole(seed):
        raise ValueError(f"seed={seed!r}: give a whole number, or leave it out for the data's own order")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
