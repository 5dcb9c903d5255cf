"""A row in the public schema, `question` and `answer` with the number after `####`, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import verifiers as vf
from gsm8k.own_problems import OwnProblem

NUMBER = re.compile(r"-?\d+(\.\d+)?")


def formatted(row: dict[str, Any]) -> dict[str, Any]:
    """The row in the form an environment takes.

    Raises DatasetError naming the question whose answer is not in the schema: with a broken reference every answer is
    wrong.
    """
    question, solution = row["question"], row["answer"]
    if not isinstance(question, str) or not isinstance(solution, str):
        raise vf.DatasetError(
            f"{row['source']}: 'question' and 'answer' are texts, got {question!r:.80}, {solution!r:.80}"
        )
    if "####" not in solution or not NUMBER.fullmatch(final_number(solution)):
        raise vf.DatasetError(
            f"{row['source']}: 'answer' must end in '#### ' and a number, it ends in {solution[-40:]!r}, of the "
            f"question {question!r:.80}"
        )
    return {"question": question, "answer": final_number(solution), "info": {"source": row["source"]}}


def own_rows(problems: Iterable[OwnProblem]) -> list[dict[str, str]]:
    """Our own problems in the public schema."""
    return [{"question": problem.question, "answer": problem.solution} for problem in problems]


def final_number(solution: str) -> str:
    """The number after `####`, without the commas of the thousands.

    >>> final_number("He pays 3 * 400 = 1,200 dollars. #### 1,200")
    '1200'
    """
    return vf.extract_hash_answer(solution).replace(",", "")
