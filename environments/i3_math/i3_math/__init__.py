"""`i3-math`: competition mathematics, to train on and to evaluate, the answer in a box."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers as vf
from i3_math.mixing import mixed, without_repeats
from i3_math.sources import EVAL, TRAIN
from verifiers.data_source import check_data

logger = logging.getLogger("verifiers")
Row = dict[str, Any]

SYSTEM_PROMPT = "Solve the problem step by step and put the final answer, and nothing else, in \\boxed{}."
HARDEST = 16  # of Skywork's figures for a model, from 0


def load_environment(
    dataset: str | Sequence[str] | Mapping[str, float] = "skywork",
    eval: str = "aime2024",
    data: str | None = None,
    train_data: str | Mapping[str, str] | None = None,
    num_train_examples: int = -1,
    num_eval_examples: int = -1,
    seed: int | None = None,
    difficulty_model: str = "DeepSeek-R1-Distill-Qwen-7B",
    min_difficulty: int | None = None,
    max_difficulty: int | None = None,
    judge_model: str | None = None,
    judge_base_url: str | None = None,
    judge_key_var: str = "OPENAI_API_KEY",
    judge_client: Any = None,
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One problem, one answer in a box. See the README for the arguments. Raises ValueError naming one that is bad."""
    names, shares = _datasets(dataset)
    _check_name("eval", eval, EVAL)
    _check_count("num_train_examples", num_train_examples)
    _check_count("num_eval_examples", num_eval_examples)
    _check_whole("seed", seed)
    _check_difficulty(names, min_difficulty, max_difficulty)
    files = _train_files(train_data, names)
    if data is not None:
        check_data(data)
    if judge_model is None and (judge_client is not None or judge_base_url is not None):
        raise ValueError("a judge's client or address is given without judge_model: name the model that is to judge")

    def train_rows() -> list[Row]:
        pools = {name: TRAIN[name].rows(files.get(name)) for name in names}
        if min_difficulty is not None or max_difficulty is not None:
            low, high = min_difficulty or 0, HARDEST if max_difficulty is None else max_difficulty
            pools["skywork"] = _between(pools["skywork"], difficulty_model, low, high)
        return mixed(without_repeats(pools), shares, num_train_examples, seed)

    at = vf.ClientConfig(api_base_url=judge_base_url, api_key_var=judge_key_var)
    return vf.SingleTurnEnv(
        dataset=train_rows,
        eval_dataset=lambda: EVAL[eval].rows(data, num_eval_examples, seed),
        system_prompt=system_prompt,
        rubric=_rubric(judge_model, judge_client or at),
    )


def _rubric(judge_model: str | None, judge_client: Any) -> vf.HybridMathRubric:
    """Rules alone; with a judge, it is asked about the answers that they did not accept."""
    if judge_model is None:
        return vf.HybridMathRubric()
    return vf.HybridMathRubric(
        use_judge_fallback=True,
        judge_model=judge_model,
        judge_client=judge_client,
        judge_sampling_args={"temperature": 0},
    )


def _between(rows: list[Row], model: str, least: int, most: int) -> list[Row]:
    """Rows of that difficulty for the model; those without a figure are left out. Raises ValueError for a model that
    no row knows."""
    found: list[Row] = []
    known: set[str] = set()
    for row in rows:
        figures: dict[str, int | None] = row["info"]["model_difficulty"]
        known |= figures.keys()
        figure = figures.get(model)
        if figure is not None and least <= figure <= most:
            found.append(row)
    if model not in known:
        raise ValueError(f"difficulty_model={model!r}: the rows have figures for {', '.join(sorted(known)) or 'none'}")
    logger.info("skywork: %d of %d rows are of difficulty %s to %s", len(found), len(rows), least, most)
    return found


def _datasets(dataset: Any) -> tuple[list[str], dict[str, float] | None]:
    """The names in their order, and their shares where some were given."""
    is_listed = isinstance(dataset, Sequence | Mapping) and not isinstance(dataset, str)
    names: list[Any] = list(dataset) if is_listed else [dataset]  # pyright: ignore[reportUnknownArgumentType]
    if not names or len(set(map(str, names))) != len(names):
        raise ValueError(f"dataset={dataset!r}: give one name, a list of different names, or names with their shares")
    for name in names:
        _check_name("dataset", name, TRAIN)
    if not isinstance(dataset, Mapping):
        return names, None
    shares: dict[str, Any] = dict(dataset)  # pyright: ignore[reportUnknownArgumentType]
    for name, share in shares.items():
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share < float("inf"):
            raise ValueError(f"dataset={dataset!r}: the share of {name} is to be a number above 0")
    return names, shares


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


def _check_name(argument: str, name: Any, known: Mapping[str, Any]) -> None:
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"{argument}={name!r}: there are {', '.join(map(repr, known))}")


def _check_count(argument: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value == 0 or value < -1:
        raise ValueError(f"{argument}={value!r}: give a whole number, 1 or more, or -1 for all there are")


def _check_whole(argument: str, value: Any) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{argument}={value!r}: give a whole number, or leave it out")


def _check_difficulty(names: list[str], least: Any, most: Any) -> None:
    for argument, value in (("min_difficulty", least), ("max_difficulty", most)):
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= HARDEST:
            raise ValueError(f"{argument}={value!r}: give a whole number from 0 to {HARDEST}")
        if "skywork" not in names:
            raise ValueError(f"{argument}={value!r}: only 'skywork' has difficulties, dataset is {names!r}")
    if least is not None and most is not None and least > most:
        raise ValueError(f"min_difficulty={least} is above max_difficulty={most}")
