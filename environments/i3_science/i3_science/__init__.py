"""`i3-science`: short answers from the sciences to train on; GPQA Diamond, MMLU-Pro and HLE to evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import verifiers as vf
from i3_science.rubric import ScienceRubric
from i3_science.sources import EVAL, MEGASCIENCE
from verifiers.data_source import check_data

Row = dict[str, Any]

SYSTEM_PROMPT = (
    "Answer the question. Think first, then put the final answer, and nothing else, in \\boxed{}. "
    "If there are options, that is the letter of the right one."
)


def load_environment(
    eval: str = "gpqa",
    data: str | None = None,
    train_data: str | None = None,
    num_train_examples: int = 20_000,
    num_eval_examples: int = -1,
    seed: int | None = None,
    subjects: Sequence[str] | None = None,
    judge_model: str | None = None,
    judge_base_url: str | None = None,
    judge_key_var: str = "OPENAI_API_KEY",
    judge_client: Any = None,
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One question, one answer in a box. See the README for the arguments. Raises ValueError naming one that is bad."""
    if not isinstance(eval, str) or eval not in EVAL:
        raise ValueError(f"eval={eval!r}: there are {', '.join(map(repr, EVAL))}")
    _check_count("num_train_examples", num_train_examples)
    _check_count("num_eval_examples", num_eval_examples)
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ValueError(f"seed={seed!r}: give a whole number, or leave it out")
    chosen = _subjects(subjects)
    for argument, path in (("data", data), ("train_data", train_data)):
        if path is not None:
            check_data(path, argument)
    if judge_model is None and (judge_client is not None or judge_base_url is not None):
        raise ValueError("a judge's client or address is given without judge_model: name the model that is to judge")
    if eval == "hle" and judge_model is None:
        raise ValueError("eval='hle' is scored by a judge: give judge_model, and judge_base_url for its address")

    def fits(row: Row) -> str | None:
        if chosen is not None and str(row["info"].get("subject")).casefold() not in chosen:
            return "they are of other subjects"
        if judge_model is None and row["info"]["scored_by"] == "judge":
            return "no rule can compare their reference answer, and there is no judge"
        return None

    at = vf.ClientConfig(api_base_url=judge_base_url, api_key_var=judge_key_var)
    return vf.SingleTurnEnv(
        dataset=lambda: MEGASCIENCE.rows(train_data, num_train_examples, seed, fits),
        eval_dataset=lambda: EVAL[eval].rows(data, num_eval_examples, seed),
        system_prompt=system_prompt,
        rubric=ScienceRubric(judge_model, judge_client or at),
    )


def _subjects(subjects: Any) -> set[str] | None:
    if subjects is None:
        return None
    is_list = isinstance(subjects, Sequence) and not isinstance(subjects, str | Mapping)
    names: list[Any] = list(subjects) if is_list else []  # pyright: ignore[reportUnknownArgumentType]
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f"subjects={subjects!r}: give a list of MegaScience's subjects, such as ['physics']")
    return {name.casefold() for name in names}


def _check_count(argument: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value == 0 or value < -1:
        raise ValueError(f"{argument}={value!r}: give a whole number, 1 or more, or -1 for all there are")
