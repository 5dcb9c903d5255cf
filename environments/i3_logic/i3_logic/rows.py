"""Rows: a puzzle is settled by kind, difficulty and seed alone; a set of rows is many draws of these three."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import verifiers as vf
from i3_logic.kinds import KINDS

Side = Literal["train", "eval"]
Span = tuple[int, int]  # the least and the most difficulty, both of them included

EVAL_SHARE = 4  # one puzzle in four belongs to the evaluation for good
BARREN_DRAWS = 2_000  # so many draws without a new puzzle: there are no more


def make_row(kind: str, difficulty: int, seed: int) -> dict[str, Any]:
    """The puzzle of this kind, difficulty (1 to 5) and seed: the same in every process and every release of Python."""
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: there are {', '.join(KINDS)}")
    row = KINDS[kind].task.generate(seed=seed, difficulty=difficulty)
    question = f"Here is a small puzzle with an answer.\n\n{KINDS[kind].worked}\n\nNow this one.\n\n{row['question']}"
    return {**row, "question": question}


def draw_rows(
    count: int, *, side: Side, seed: int, spans: Mapping[str, Span], weights: list[float]
) -> list[dict[str, Any]]:
    """`count` different rows of one side; fewer where there are no more. `weights` go with the kinds of `spans`."""
    return list(islice(_different_rows(side, seed, spans, weights), count))


def _different_rows(side: Side, seed: int, spans: Mapping[str, Span], weights: list[float]) -> Iterator[dict[str, Any]]:
    rng, kinds, seen, barren = random.Random(f"i3-logic/{seed}/{side}"), list(spans), set[str](), 0
    while barren < BARREN_DRAWS:
        kind = rng.choices(kinds, weights)[0]
        row = make_row(kind, rng.randint(*spans[kind]), rng.getrandbits(32))
        puzzle = f"{kind}/{row['info']['puzzle']}"
        barren += 1
        if puzzle in seen or side_of(puzzle) != side or is_told(row):
            continue
        seen.add(puzzle)
        barren = 0
        yield row


def side_of(puzzle: str) -> Side:
    """A puzzle belongs to one side for good, so that no seed trains on what another evaluates."""
    return "eval" if hashlib.sha256(puzzle.encode()).digest()[0] % EVAL_SHARE == 0 else "train"


def is_told(row: Mapping[str, Any]) -> bool:
    """Whether the prompt holds an answer: this puzzle's own, or that of the example, which happens to solve it too."""
    if " ".join(row["answer"].split()) in " ".join(row["question"].split()):
        return True
    kind = KINDS[row["info"]["logic_task"]]
    try:
        kind.task.check(json.loads(row["info"]["puzzle"]), kind.example_answer)
    except vf.WrongAnswer:
        return False
    return True
