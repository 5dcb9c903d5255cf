"""`load_example_dataset`: well-known public datasets by a short name, as rows with `question` and `answer`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from verifiers.errors import DatasetError
from verifiers.parsers import extract_boxed_answer, extract_hash_answer

BOXED_SYSTEM_PROMPT = r"Reason step by step, and give the final answer inside \boxed{}."
THINK_BOXED_SYSTEM_PROMPT = (
    r"Reason step by step between <think> and </think>. After that, give the final answer inside \boxed{}."
)

Row = Mapping[str, Any]
_CODE_PROMPT = "Solve the following coding problem using the programming language python:"


@dataclass(frozen=True)
class Example:
    """Where a dataset is, and how one of its rows is read."""

    path: str
    read: Callable[[Row], tuple[Any, Any]]  # (question, answer)
    split: str = "train"
    configs: tuple[str | None, ...] = (None,)  # several are put one after another
    keep: Callable[[Row], bool] | None = None


def _fields(question: str, answer: str) -> Callable[[Row], tuple[Any, Any]]:
    return lambda row: (row[question], row[answer])


def strip_non_numeric(text: str) -> str:
    return "".join(c for c in text if c.isdigit() or c == ".")


def _choices(question: str, options: Any) -> str:
    lines = [f"{chr(ord('A') + number)}: {option}" for number, option in enumerate(options)]
    return "\n".join([f"Question: {question}", "", *lines])


def _mmlu(row: Row) -> tuple[str, str]:
    return _choices(row["question"], row["choices"]), "ABCD"[row["answer"]]


def _mmlu_pro(row: Row) -> tuple[str, str]:
    return _choices(row["question"], row["options"]), row["answer"]


def _gpqa(row: Row) -> tuple[str, str]:
    """The correct answer is put at a place that the question decides: the same in every run, and not always A."""
    options = [row["Correct Answer"], *(row[f"Incorrect Answer {n}"] for n in (1, 2, 3))]
    order = list(range(4))
    random.Random(row["Question"]).shuffle(order)
    return _choices(row["Question"], [options[i] for i in order]), "ABCD"[order.index(0)]


def _openbookqa(row: Row) -> tuple[str, str]:
    choices = row["choices"]
    lines = [f"{label}. {text}" for label, text in zip(choices["label"], choices["text"], strict=True)]
    return "\n".join([f"Question: {row['question_stem']}", "", "Choices:", *lines]), row["answerKey"]


def _level(wanted: str, row: Row) -> bool:
    return row["level"] == wanted


_PROBLEM = _fields("problem", "answer")
_OPEN_RS = "knoveleng/open-rs"

EXAMPLES: dict[str, Example] = {
    "aime2024": Example("HuggingFaceH4/aime_2024", lambda row: (row["problem"], str(int(row["answer"])))),
    "aime2025": Example(
        "opencompass/AIME2025",
        lambda row: (row["question"], strip_non_numeric(row["answer"])),
        "test",
        ("AIME2025-I", "AIME2025-II"),
    ),
    "amc2023": Example("knoveleng/AMC-23", _PROBLEM),
    "gpqa_diamond": Example("Idavidrein/gpqa", _gpqa, configs=("gpqa_diamond",)),
    "gpqa_main": Example("Idavidrein/gpqa", _gpqa, configs=("gpqa_main",)),
    "gsm8k": Example(
        "openai/gsm8k", lambda row: (row["question"], extract_hash_answer(row["answer"])), "test", ("main",)
    ),
    "math": Example("chiayewken/competition_math", lambda row: (row["problem"], extract_boxed_answer(row["solution"]))),
    "math500": Example("HuggingFaceH4/MATH-500", _PROBLEM, "test"),
    "mmlu": Example("cais/mmlu", _mmlu, "dev", ("all",)),
    "mmlu_pro": Example("TIGER-Lab/MMLU-Pro", _mmlu_pro, "validation"),
    "openbookqa": Example("allenai/openbookqa", _openbookqa, configs=("main",)),
    "openrs": Example(_OPEN_RS, _PROBLEM),
    "openrs_easy": Example(_OPEN_RS, _PROBLEM, keep=partial(_level, "Easy")),
    "openrs_hard": Example(_OPEN_RS, _PROBLEM, keep=partial(_level, "Hard")),
    "prime_code": Example(
        "PrimeIntellect/verifiable-coding-problems",
        _fields("prompt", "verification_info"),
        keep=lambda row: row["prompt"].startswith(_CODE_PROMPT),
    ),
}


def load_example_dataset(name: str = "gsm8k", split: str | None = None, n: int | None = None, seed: int = 0) -> Any:
    """A `datasets.Dataset` with `question` and `answer`; `n` rows of it, chosen by `seed`.

    Raises DatasetError for a name that is not in `EXAMPLES`, and when the dataset cannot be fetched.
    """
    example = _example(name)
    dataset = _fetch(name, example, split or example.split)
    if example.keep is not None:
        dataset = dataset.filter(example.keep)
    if n is not None and n > 0:
        dataset = dataset.shuffle(seed=seed).select(range(min(n, len(dataset))))
    return dataset.map(get_preprocess_fn(name), remove_columns=dataset.column_names)


def get_preprocess_fn(name: str) -> Callable[[Row], dict[str, Any]]:
    """What makes `question` and `answer` of one raw row of a dataset."""
    read = _example(name).read

    def preprocess(row: Row) -> dict[str, Any]:
        question, answer = read(row)
        return {"question": question, "answer": answer}

    return preprocess


def _example(name: str) -> Example:
    if name not in EXAMPLES:
        raise DatasetError(
            f"no example dataset '{name}' (there are: {', '.join(EXAMPLES)}). "
            "Load another with datasets.load_dataset, and name its columns 'question' and 'answer'"
        )
    return EXAMPLES[name]


def _fetch(name: str, example: Example, split: str) -> Any:
    from datasets import concatenate_datasets, load_dataset

    try:
        parts = [load_dataset(example.path, config, split=split) for config in example.configs]
    except Exception as error:  # connection, access, an unknown split: the library has a type for each
        raise DatasetError(
            f"example dataset '{name}' ({example.path}, split '{split}') cannot be loaded: {_first_line(error)}. "
            "It is fetched from the Hugging Face hub when it is first used and cached in HF_HOME"
        ) from error
    return parts[0] if len(parts) == 1 else concatenate_datasets(parts)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]:.200}"
