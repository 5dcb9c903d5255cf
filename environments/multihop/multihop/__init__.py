"""`multihop`: questions that build on each other, over a few documents; facts are given as triplets and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import verifiers as vf
from multihop.dialogue import MOST_TRIPLETS, PARSER
from multihop.multihop_env import MultihopEnv
from multihop.reference import reference_reply
from multihop.rewards import rubric
from multihop.rows import file_rows, made_rows

__all__ = ["load_environment", "reference_reply"]

MOST_HOPS = 6
WITHOUT_GRAPH = """\
Answer the questions from the documents alone. They come one after the other, and each goes on from the one before. \
End each reply with the answer, a name and nothing else:
<answer>name</answer>"""
WITH_GRAPH = f"""\
Answer the questions from the documents alone. They come one after the other, and each goes on from the one before. \
In each reply write the facts that your answer rests on as triplets, one on a line, with the relations listed below \
the documents; then the answer, a name and nothing else:
<triplets>
(subject | relation | object)
</triplets>
<answer>name</answer>

Each triplet is checked against the documents, and I tell you which hold. Give those that the question needs and no \
others: at most {MOST_TRIPLETS} in a reply are looked at, and each that is wrong or not needed costs."""


def load_environment(
    graph: bool = True,
    data: str | None = None,
    num_train_examples: int = 1000,
    num_eval_examples: int = 100,
    seed: int | None = 0,
    min_hops: int = 2,
    max_hops: int = 4,
    max_turns: int = 8,
    system_prompt: str | None = None,
) -> vf.Environment:
    """A few documents and two to four questions. See the README for the arguments."""
    _check(dict(locals()))
    hops = min_hops, max_hops
    if data is not None:
        train = lambda: file_rows(data, num_train_examples, seed, graph, max_turns)  # noqa: E731
        evaluation = lambda: file_rows(data, num_eval_examples, seed, graph, max_turns)  # noqa: E731
    else:
        train = lambda: made_rows("train", num_train_examples, seed or 0, hops, graph)  # noqa: E731
        evaluation = lambda: made_rows("eval", num_eval_examples, seed or 0, hops, graph)  # noqa: E731
    return MultihopEnv(
        graph=graph,
        dataset=train,
        eval_dataset=evaluation,
        system_prompt=system_prompt or (WITH_GRAPH if graph else WITHOUT_GRAPH),
        parser=PARSER,
        rubric=rubric(graph),
        max_turns=max_turns,
    )


def _check(given: dict[str, Any]) -> None:
    is_made = given["data"] is None
    if not isinstance(given["graph"], bool):
        raise ValueError(f"graph={given['graph']!r}: give true or false")
    if not is_made and not Path(given["data"]).is_file():
        raise ValueError(f"data={given['data']!r}: there is no such file")
    for name in ("num_train_examples", "num_eval_examples"):
        if is_made or given[name] != -1:
            _number(name, given[name], 1)
    _number("min_hops", given["min_hops"], 1)
    _number("max_hops", given["max_hops"], given["min_hops"])
    if given["max_hops"] > MOST_HOPS:
        raise ValueError(f"max_hops={given['max_hops']!r}: give a whole number up to {MOST_HOPS}")
    _number("max_turns", given["max_turns"], given["max_hops"] if is_made else 1)
    seed = given["seed"]
    if isinstance(seed, bool) or not (isinstance(seed, int) or (seed is None and not is_made)):
        raise ValueError(f"seed={seed!r}: give a whole number{'' if is_made else ', or None for its own order'}")


def _number(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r}: give a whole number, {least} or more")
