"""`LogicRubric`: whether an answer solves its puzzle, by the puzzle's rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.errors import RewardFault
from verifiers.parsers import Parser
from verifiers.rubrics.graded import Graded
from verifiers.rubrics.logic_graphs import GraphColouring, HamiltonianPath
from verifiers.rubrics.logic_grids import Futoshiki, LatinSquare, Minesweeper, Queens, Sudoku
from verifiers.rubrics.logic_numbers import Countdown, GameOf24, SubsetSum
from verifiers.rubrics.logic_statements import KnightsAndKnaves, Ordering, Satisfiability, Zebra
from verifiers.rubrics.logic_task import MAX_CHARS, LogicTask, WrongAnswer, answer_block
from verifiers.rubrics.rubric import Rubric

_CLASSES: list[type[LogicTask]] = [
    Countdown, Futoshiki, GameOf24, GraphColouring, HamiltonianPath, KnightsAndKnaves, LatinSquare, Minesweeper,
    Ordering, Queens, Satisfiability, SubsetSum, Sudoku, Zebra,
]  # fmt: skip
LOGIC_TASKS: Mapping[str, LogicTask] = {task.name: task() for task in _CLASSES}


class LogicRubric(Rubric):
    r"""Rewards an answer that keeps every rule of its puzzle: 1.0 or 0.0, as the metric `is_solved`.

    Rows come from `vf.LOGIC_TASKS[name].generate(seed, difficulty)`, or have `info["logic_task"]` and
    `info["puzzle"]` in the same shape. The answer is the last `<answer>…</answer>` or `\boxed{…}` after the
    reasoning. Any solution counts, whatever the row's own is.

    >>> rubric = LogicRubric()
    >>> info = {"logic_task": "countdown", "puzzle": {"numbers": [2, 3, 4], "target": 24, "use_all": True}}
    >>> rubric.is_solved(rubric.parser, "<answer>4 * (3 * 2)</answer>", info)
    1.0
    """

    def __init__(
        self,
        funcs: Sequence[Callable[..., Any]] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(funcs=funcs, weights=weights, parser=parser or Parser(answer_block), **attributes)
        self.tasks: dict[str, LogicTask] = dict(LOGIC_TASKS)
        self.add_reward_func(self.is_solved)

    def add_task(self, task: LogicTask) -> None:
        """Another kind of puzzle, for rows that name it."""
        if not task.name or task.name in self.tasks:
            raise ValueError(f"a task needs a name of its own; {type(task).__name__} has {task.name!r}")
        self.tasks[task.name] = task

    def is_solved(self, parser: Parser, completion: Any, info: Any) -> float:
        """Raises RewardFault for a row without a puzzle, or with one that is broken."""
        task, puzzle = self._asked(info)
        found = parser.parse_answer(completion)
        answer = "" if found is None else str(found)
        if not answer.strip():
            return Graded(0.0, "no answer in the expected form")
        if len(answer) > MAX_CHARS:
            return Graded(0.0, f"the answer has {len(answer)} characters")
        try:
            task.check(puzzle, answer)
        except WrongAnswer as wrong:
            return Graded(0.0, str(wrong))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RewardFault(f"the puzzle of '{task.name}' is broken: {type(error).__name__}: {error}") from error
        return 1.0

    def _asked(self, info: Any) -> tuple[LogicTask, dict[str, Any]]:
        info = info if isinstance(info, Mapping) else {}
        name, puzzle = info.get("logic_task"), info.get("puzzle")
        task = self.tasks.get(name) if isinstance(name, str) else None
        if task is None:
            raise RewardFault(f"info['logic_task'] is {name!r:.60}, not one of {', '.join(sorted(self.tasks))}")
        if isinstance(puzzle, str):
            try:
                puzzle = json.loads(puzzle)
            except ValueError as error:
                raise RewardFault(f"info['puzzle'] is no JSON ({error})") from None
        if not isinstance(puzzle, dict):
            raise RewardFault(f"info['puzzle'] is {puzzle!r:.60}, not a puzzle of '{name}'")
        missing = [part for part in task.parts if part not in puzzle]
        if missing:
            raise RewardFault(
                f"the puzzle of '{name}' lacks {', '.join(missing)}; it has {', '.join(puzzle) or 'nothing'}"
            )
        return task, puzzle
