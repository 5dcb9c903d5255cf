"""What `load_environment` may be given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATASETS = ("worlds", "deepdive")
SPLITS = ("qa_rl", "qa_sft")  # the third of the public ones holds conversations
MOST_HOPS = 6


def check_arguments(given: Mapping[str, Any]) -> None:
    """Raises ValueError naming the argument, its value and what fits."""
    _one_of("dataset", given["dataset"], DATASETS)
    _one_of("split", given["split"], SPLITS)
    _one_of("eval_split", given["eval_split"], SPLITS)
    makes_worlds = given["dataset"] == "worlds" and given["data"] is None
    for name in ("num_train_examples", "num_eval_examples"):
        if makes_worlds or given[name] != -1:
            _number(name, given[name], 1, None if makes_worlds else "or -1 for all there are")
    for name in ("max_turns", "results"):
        _number(name, given[name], 1)
    _number("page_chars", given["page_chars"], 500)
    _number("min_hops", given["min_hops"], 1)
    _number("max_hops", given["max_hops"], given["min_hops"])
    if given["max_hops"] > MOST_HOPS:
        raise ValueError(f"max_hops={given['max_hops']!r}: give a whole number up to {MOST_HOPS}")
    _check_seed(given["seed"], makes_worlds)
    for name in ("data", "train_data", "pages"):
        if given[name] is not None and not Path(given[name]).is_file():
            raise ValueError(f"{name}={given[name]!r}: there is no such file")
    blocked = given["blocked_hosts"]
    if isinstance(blocked, str) or not all(isinstance(host, str) and host for host in blocked):
        raise ValueError(f"blocked_hosts={blocked!r}: give a list of hosts, such as ['example.org']")
    _check_together(given, makes_worlds)


def _check_together(given: Mapping[str, Any], makes_worlds: bool) -> None:
    if given["train_data"] is not None and given["data"] is None:
        raise ValueError("train_data is given without data: give both, the rows to train on and those to evaluate on")
    if makes_worlds and given["pages"] is not None:
        raise ValueError("pages is given, but the questions are about made-up worlds: give data too, questions on them")
    if not makes_worlds and given["data"] is None and given["split"] == given["eval_split"]:
        raise ValueError(f"split={given['split']!r} and eval_split are the same: one would evaluate what it trains on")
    if given["judge_model"] is None and (given["judge_client"] is not None or given["judge_base_url"] is not None):
        raise ValueError("judge_model is not given, but where to find a judge is: name the model that judges")


def _check_seed(seed: Any, makes_worlds: bool) -> None:
    if isinstance(seed, int) and not isinstance(seed, bool):
        return
    if seed is not None or makes_worlds:
        raise ValueError(f"seed={seed!r}: give a whole number{'' if makes_worlds else ', or None for the own order'}")


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name}={value!r}: there are {' and '.join(map(repr, known))}")


def _number(name: str, value: Any, least: int, also: str | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r}: give a whole number, {least} or more{f', {also}' if also else ''}")
