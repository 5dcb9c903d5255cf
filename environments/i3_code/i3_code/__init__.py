"""`i3-code`: programs in one file, to train on and to evaluate, scored by tests in a sandbox."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import verifiers as vf
from i3_code import livecodebench
from i3_code.own_problems import solution_of
from i3_code.rubric import ProgramRubric
from i3_code.sources import EVAL, TRAIN
from verifiers.data_source import check_data

Row = dict[str, Any]

SYSTEM_PROMPT = "Solve the problem in Python. Think first, then give the whole program in one ```python code block."
DEEPCODER = ("deepcoder-primeintellect", "deepcoder-taco", "deepcoder-lcbv5")
EVALS = ("livecodebench", *EVAL)


def load_environment(
    dataset: str | Sequence[str] = "deepcoder",
    eval: str = "livecodebench",
    data: str | None = None,
    train_data: str | Mapping[str, str] | None = None,
    num_train_examples: int = -1,
    num_eval_examples: int = -1,
    seed: int | None = None,
    release: str = "release_v6",
    start_date: str | None = "2024-08-01",
    end_date: str | None = "2025-05-01",
    engine: Any = "local",
    max_tests: int | None = None,
    time_limit_s: float = 6.0,
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One problem, one program. See the README for the arguments. Raises ValueError naming one that is bad."""
    names = _datasets(dataset)
    _check_name("eval", eval, EVALS)
    _check_name("release", release, livecodebench.RELEASES)
    start, end = _check_day("start_date", start_date), _check_day("end_date", end_date)
    if start and end and start > end:
        raise ValueError(f"start_date={start_date!r} is after end_date={end_date!r}")
    for argument, value in (("num_train_examples", num_train_examples), ("num_eval_examples", num_eval_examples)):
        _check_count(argument, value)
    if seed is not None:
        _check_whole("seed", seed)
    if max_tests is not None:
        _check_whole("max_tests", max_tests, least=1)
    if isinstance(time_limit_s, bool) or not isinstance(time_limit_s, int | float) or not 0 < time_limit_s <= 600:
        raise ValueError(f"time_limit_s={time_limit_s!r}: give the seconds of a test, above 0 and at most 600")
    if isinstance(engine, str):
        _check_name("engine", engine, ("local", "unsafe-local"))
    files = _train_files(train_data, names)
    if data is not None:
        check_data(data)

    def eval_rows() -> list[Row]:
        if eval == "livecodebench":
            return livecodebench.rows(release, start, end, data, num_eval_examples, seed)
        return EVAL[eval].rows(data, num_eval_examples, seed, max_tests)

    return vf.SingleTurnEnv(
        dataset=lambda: _train_rows(names, files, num_train_examples, seed, max_tests),
        eval_dataset=eval_rows,
        system_prompt=system_prompt,
        rubric=ProgramRubric(engine, max_tests=max_tests, time_limit_s=time_limit_s),
    )


def reference_reply(messages: Sequence[Mapping[str, Any]], row: Row) -> str:
    """The solution of a problem of our own. Raises LookupError for another's."""
    return f"```python\n{solution_of(messages[-1]['content'])}\n```"


def _train_rows(
    names: list[str], files: Mapping[str, str], num: int, seed: int | None, max_tests: int | None
) -> list[Row]:
    """One set, or several in their order, no problem twice; a seed shuffles them together."""
    if len(names) == 1:
        return TRAIN[names[0]].rows(files.get(names[0]), num, seed, max_tests)
    different: dict[str, Row] = {}
    for name in names:
        for row in TRAIN[name].rows(files.get(name), max_tests=max_tests):
            different.setdefault(" ".join(row["question"].split()), row)
    rows = list(different.values())
    rows = rows if seed is None else random.Random(seed).sample(rows, len(rows))
    return rows if num < 0 else rows[:num]


def _datasets(dataset: Any) -> list[str]:
    listed: list[Any] = [dataset] if isinstance(dataset, str) or not isinstance(dataset, Sequence) else list(dataset)
    names = [name for given in listed for name in (DEEPCODER if given == "deepcoder" else (given,))]
    if not names or len(set(map(str, names))) != len(names):
        raise ValueError(f"dataset={dataset!r}: give one name, or a list of different names")
    for name in names:
        _check_name("dataset", name, ("deepcoder", *TRAIN))
    return names


def _train_files(train_data: Any, names: list[str]) -> dict[str, str]:
    if train_data is None:
        return {}
    if not isinstance(train_data, Mapping):
        if len(names) > 1:
            raise ValueError(f"train_data={train_data!r}: with {', '.join(names)} give a table of name and path")
        train_data = {names[0]: train_data}
    files: dict[Any, Any] = dict(train_data)  # pyright: ignore[reportUnknownArgumentType]
    for name, path in files.items():
        if name not in names:
            raise ValueError(f"train_data={train_data!r}: {name!r} is not among dataset={names!r}")
        check_data(path, "train_data")
    return files


def _check_name(argument: str, name: Any, known: Sequence[str] | Mapping[str, Any]) -> None:
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"{argument}={name!r}: there are {', '.join(map(repr, known))}")


def _check_count(argument: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value == 0 or value < -1:
        raise ValueError(f"{argument}={value!r}: give a whole number, 1 or more, or -1 for all there are")


def _check_whole(argument: str, value: Any, least: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        raise ValueError(f"{argument}={value!r}: give a whole number{f', {least} or more' if least else ''}")


def _check_day(argument: str, value: Any) -> date | None:
    try:
        return None if value is None else date.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"{argument}={value!r}: give a day as '2024-08-01', or None") from None
