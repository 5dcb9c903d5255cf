"""`gsm8k`: word problems of school arithmetic from the public data set, the answer in a box."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from gsm8k.own_problems import EVAL, TRAIN, WORKED, OwnProblem
from gsm8k.rows import formatted, own_rows
from verifiers.data_source import check_data

COLUMNS = ("question", "answer")
TRAIN_SPLIT = vf.DataSource("openai/gsm8k", split="train", config="main", columns=COLUMNS)
TEST_SPLIT = vf.DataSource("openai/gsm8k", split="test", config="main", columns=COLUMNS)
SYSTEM_PROMPT = "Solve the problem step by step and put the final number, without units, in \\boxed{}."


def load_environment(
    data: str | None = None,
    train_data: str | None = None,
    num_train_examples: int = -1,
    num_eval_examples: int = -1,
    seed: int | None = None,
    few_shot: int = 0,
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One question, one number in a box. See the README for the arguments."""
    _check_count("num_train_examples", num_train_examples)
    _check_count("num_eval_examples", num_eval_examples)
    _check_seed(seed)
    _check_few_shot(few_shot)
    _check_files(data, train_data)

    def split(source: vf.DataSource, own: tuple[OwnProblem, ...], file: str | None, num: int) -> list[dict[str, Any]]:
        return [formatted(row) for row in source.rows(file, own_rows(own), num, seed)]

    turns = [({"role": "user", "content": p.question}, {"role": "assistant", "content": p.reply}) for p in WORKED]
    return vf.SingleTurnEnv(
        dataset=lambda: split(TRAIN_SPLIT, TRAIN, train_data or data, num_train_examples),
        eval_dataset=lambda: split(TEST_SPLIT, EVAL, data, num_eval_examples),
        system_prompt=system_prompt,
        few_shot=[message for turn in turns[:few_shot] for message in turn],
        rubric=vf.MathRubric(),
    )


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value == 0 or value < -1:
        raise ValueError(f"{name}={value!r}: give a whole number, 1 or more, or -1 for all there are")


def _check_seed(seed: Any) -> None:
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ValueError(f"seed={seed!r}: give a whole number, or leave it out for the data set's own order")


def _check_few_shot(few_shot: Any) -> None:
    if not isinstance(few_shot, int) or isinstance(few_shot, bool) or not 0 <= few_shot <= len(WORKED):
        raise ValueError(f"few_shot={few_shot!r}: give a whole number from 0 to {len(WORKED)}")


def _check_files(data: str | None, train_data: str | None) -> None:
    if train_data is not None and data is None:
        raise ValueError("train_data is given without data: give both, the rows to train on and those to evaluate on")
    for name, path in (("data", data), ("train_data", train_data)):
        if path is not None:
            check_data(path, name)
