"""`gsm8k`: word problems of school arithmetic from the public data set, the answer in a box."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any

import verifiers as vf
from gsm8k.own_problems import EVAL, TRAIN, WORKED
from gsm8k.rows import SUFFIXES, formatted, read_file

logger = logging.getLogger(__name__)

DATASET = "openai/gsm8k"
CONFIG = "main"
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

    @cache  # one attempt to reach the hub serves both splits
    def splits() -> dict[str, list[dict[str, Any]]]:
        return public_splits() if data is None else file_splits(data, train_data)

    turns = [({"role": "user", "content": p.question}, {"role": "assistant", "content": p.reply}) for p in WORKED]
    return vf.SingleTurnEnv(
        dataset=lambda: formatted(splits()["train"], num_train_examples, seed),
        eval_dataset=lambda: formatted(splits()["test"], num_eval_examples, seed),
        system_prompt=system_prompt,
        few_shot=[message for turn in turns[:few_shot] for message in turn],
        rubric=vf.MathRubric(),
    )


def public_splits() -> dict[str, list[dict[str, Any]]]:
    """The public splits; without network and without a cached copy, our own few problems and a warning."""
    from datasets import load_dataset

    try:
        public = load_dataset(DATASET, CONFIG)
    except ConnectionError as error:
        logger.warning(
            "%s cannot be reached and there is no cached copy (%s). Using %d training and %d evaluation problems of "
            "our own instead: THEIR SCORES ARE NOT GSM8K SCORES. For the real thing connect once, or pass data=PATH.",
            DATASET, error, len(TRAIN), len(EVAL),
        )  # fmt: skip
        return {"train": _own_rows(TRAIN), "test": _own_rows(EVAL)}
    return {split: [{**row, "source": f"{DATASET} {split}"} for row in public[split]] for split in ("train", "test")}


def file_splits(data: str, train_data: str | None) -> dict[str, list[dict[str, Any]]]:
    """Rows of the reader's own files; one file alone serves both splits."""
    test = read_file(Path(data))
    return {"train": read_file(Path(train_data)) if train_data else test, "test": test}


def _own_rows(problems: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [{"question": p.question, "answer": p.solution, "source": "own problems, not GSM8K"} for p in problems]


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
        if path is None:
            continue
        if not isinstance(path, str) or Path(path).suffix not in SUFFIXES:
            raise ValueError(f"{name}={path!r}: give the path of a file that ends in {' or '.join(SUFFIXES)}")
        if not Path(path).is_file():
            raise ValueError(f"{name}={path!r}: there is no such file")
