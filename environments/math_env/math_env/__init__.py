"""`math-env`: arithmetic and algebra of settable difficulty, and a small set of competition-style problems."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from typing import Any

import verifiers as vf
from math_env.competition import PROBLEMS
from math_env.procedural import LEVELS, Side, different_problems, worked_problems

SYSTEM_PROMPT = "Solve the problem and give the final answer in \\boxed{}."
SOURCES = ("procedural", "competition")
# Small models need to be shown the box; large ones think better without short examples.
WORKED_BY_DEFAULT = (3, 3, 0, 0, 0, 0)
MAX_WORKED = 16
MAX_TOKENS = (512, 512, 2048, 2048, 4096, 4096)
COMPETITION_MAX_TOKENS = 8192
COMPETITION_TRAIN_EVERY = 3  # one problem in three is for training, the others are for evaluation


def load_environment(
    difficulty: int = 0,
    num_train_examples: int = 1000,
    num_eval_examples: int = 100,
    seed: int = 0,
    few_shot: int | None = None,
    problems: str = "procedural",
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One question, one answer in a box. The README explains the arguments."""
    _check(difficulty, num_train_examples, num_eval_examples, seed, few_shot, problems)
    parser = vf.MaybeThinkParser(extract_fn=only_boxed)

    def one_box(completion: Any) -> float:
        return 1.0 if parser.parse_answer(completion) else 0.0

    rubric = vf.MathRubric(parser=parser)
    rubric.add_metric(one_box)
    if problems == "competition":
        worked, max_tokens = [], COMPETITION_MAX_TOKENS
        train_rows = partial(_competition_rows, "train", num_train_examples)
        eval_rows = partial(_competition_rows, "eval", num_eval_examples)
    else:
        shown = WORKED_BY_DEFAULT[difficulty] if few_shot is None else few_shot
        worked, max_tokens = worked_problems(difficulty, shown), MAX_TOKENS[difficulty]
        hidden = frozenset(problem.question for problem in worked)
        train_rows = partial(_procedural_rows, seed, difficulty, "train", hidden, num_train_examples)
        eval_rows = partial(_procedural_rows, seed, difficulty, "eval", hidden, num_eval_examples)
    turns = []
    for problem in worked:
        turns.append({"role": "user", "content": problem.question})
        turns.append({"role": "assistant", "content": problem.worked_reply})
    return vf.SingleTurnEnv(
        dataset=train_rows,
        eval_dataset=eval_rows,
        system_prompt=system_prompt,
        few_shot=turns,
        parser=parser,
        rubric=rubric,
        sampling_args={"max_tokens": max_tokens},
    )


def only_boxed(text: str) -> str:
    r"""The content of the one `\boxed{}`; nothing when there is none, or when two of them disagree.

    Naming several answers is a hedge, and the last of them is not more meant than the first.
    """
    boxes = {_box_at(text, match.end()).strip() for match in re.finditer(r"\\boxed\s*\{", text)}
    return boxes.pop() if len(boxes) == 1 else ""


def _box_at(text: str, start: int) -> str:
    """The text from `start` to the brace that closes the box; nothing when it never closes."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return ""


def _procedural_rows(
    seed: int, difficulty: int, side: Side, hidden: frozenset[str], count: int
) -> list[dict[str, Any]]:
    found = islice(different_problems(seed, difficulty, side, without=hidden), count)
    return [_row(problem.question, problem.answer_text, difficulty=difficulty, kind=problem.kind) for problem in found]


def _competition_rows(side: Side, count: int) -> list[dict[str, Any]]:
    chosen = [p for i, p in enumerate(PROBLEMS) if (i % COMPETITION_TRAIN_EVERY == 0) == (side == "train")]
    return [
        _row(problem.question, problem.answer, topic=problem.topic, name=problem.name) for problem in chosen[:count]
    ]


def _row(question: str, answer: str, **info: Any) -> dict[str, Any]:
    return {"question": question, "answer": answer, "info": info}


def _check(difficulty: Any, num_train: Any, num_eval: Any, seed: Any, few_shot: Any, problems: Any) -> None:
    if problems not in SOURCES:
        raise ValueError(f"problems={problems!r}: there are {' and '.join(map(repr, SOURCES))}")
    _check_integer("difficulty", difficulty, 0, len(LEVELS) - 1)
    _check_integer("num_train_examples", num_train, 1)
    _check_integer("num_eval_examples", num_eval, 1)
    _check_integer("seed", seed, None)
    if few_shot is None:
        return
    _check_integer("few_shot", few_shot, 0, MAX_WORKED)
    if few_shot and problems == "competition":
        raise ValueError(f"few_shot={few_shot}: competition problems come without worked examples; leave it out")


def _check_integer(name: str, value: Any, least: int | None, most: int | None = None) -> None:
    bounds = f" from {least} to {most}" if most is not None else f", {least} or more" if least is not None else ""
    too_small = least is not None and isinstance(value, int) and value < least
    too_large = most is not None and isinstance(value, int) and value > most
    if not isinstance(value, int) or isinstance(value, bool) or too_small or too_large:
        raise ValueError(f"{name}={value!r}: give a whole number{bounds}")
