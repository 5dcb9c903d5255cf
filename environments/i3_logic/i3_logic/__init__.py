"""`i3-logic`: logic puzzles of many kinds, made on the spot, each checked by its own rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import verifiers as vf
from i3_logic.kinds import KINDS, OWN
from i3_logic.rows import Span, draw_rows, make_row
from verifiers.rubrics.logic_task import HARDEST

__all__ = ["KINDS", "load_environment", "logic_rubric", "make_row"]

Difficulty = int | Sequence[int] | Mapping[str, int | Sequence[int]]


def load_environment(
    kinds: str | Sequence[str] = "all",
    difficulty: Difficulty = (1, HARDEST),
    num_train_examples: int = 1000,
    num_eval_examples: int = 100,
    seed: int = 0,
    weights: Mapping[str, float] | None = None,
    system_prompt: str | None = None,
) -> vf.Environment:
    """One puzzle, one answer between tags. The README explains the arguments."""
    chosen = _kinds(kinds)
    spans = _spans(chosen, difficulty)
    _check_whole("num_train_examples", num_train_examples, 1)
    _check_whole("num_eval_examples", num_eval_examples, 1)
    _check_whole("seed", seed, None)
    rows = partial(draw_rows, seed=seed, spans=spans, weights=_weights(chosen, weights))
    return vf.SingleTurnEnv(
        dataset=partial(rows, num_train_examples, side="train"),
        eval_dataset=partial(rows, num_eval_examples, side="eval"),
        system_prompt=system_prompt,
        rubric=logic_rubric(),
    )


def logic_rubric() -> vf.LogicRubric:
    """Pays 1.0 for an answer that keeps all rules of its puzzle, of whichever kind, else 0.0."""
    rubric = vf.LogicRubric()
    for task in OWN:
        rubric.add_task(task)
    return rubric


def _kinds(kinds: Any) -> list[str]:
    if kinds == "all":
        return list(KINDS)
    chosen = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(chosen, list | tuple) or not chosen:
        raise ValueError(f"kinds={kinds!r}: give 'all', the name of a kind, or a list of names")
    for name in chosen:
        if not isinstance(name, str) or name not in KINDS:
            raise ValueError(f"kinds={kinds!r}: there is no kind {name!r}; there are {', '.join(KINDS)}")
    return list(dict.fromkeys(chosen))


def _spans(kinds: list[str], difficulty: Any) -> dict[str, Span]:
    """The difficulties of every kind. Kinds that a mapping does not name have all of them."""
    if not isinstance(difficulty, Mapping):
        return dict.fromkeys(kinds, _span(difficulty, difficulty))
    for name in difficulty:
        if name not in kinds:
            raise ValueError(f"difficulty={difficulty!r}: {name!r} is not one of the kinds, {', '.join(kinds)}")
    return {name: _span(difficulty.get(name, (1, HARDEST)), difficulty) for name in kinds}


def _span(given: Any, difficulty: Any) -> Span:
    ends = (given, given) if isinstance(given, int) else tuple(given) if isinstance(given, list | tuple) else ()
    if len(ends) != 2 or not all(isinstance(end, int) and not isinstance(end, bool) for end in ends):
        ends = (0, 0)
    least, most = ends
    if not 1 <= least <= most <= HARDEST:
        raise ValueError(
            f"difficulty={difficulty!r}: give a whole number from 1 to {HARDEST}, a pair of them (the least and the "
            "most), or a dict from kinds to these"
        )
    return least, most


def _weights(kinds: list[str], weights: Any) -> list[float]:
    """How often each of the kinds is drawn; 1 for those that are not named."""
    if weights is None:
        return [1.0] * len(kinds)
    if not isinstance(weights, Mapping):
        raise ValueError(f"weights={weights!r}: give a dict from kinds to numbers")
    for name, weight in weights.items():
        if name not in kinds:
            raise ValueError(f"weights={weights!r}: {name!r} is not one of the kinds, {', '.join(kinds)}")
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not is_number or not math.isfinite(weight) or weight < 0:
            raise ValueError(f"weights={weights!r}: the weight of {name!r} is no number that is 0 or more")
    found = [float(weights.get(name, 1.0)) for name in kinds]
    if not sum(found):
        raise ValueError(f"weights={weights!r}: no kind has a weight above 0")
    return found


def _check_whole(name: str, value: Any, least: int | None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        raise ValueError(f"{name}={value!r}: give a whole number{'' if least is None else f', {least} or more'}")
