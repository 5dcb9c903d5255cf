"""`ifeval`: prompts with instructions that can be checked by rule, followed to the letter or not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import verifiers as vf
from ifeval.generated import generated_rows
from ifeval.own_rows import OWN_ROWS
from ifeval.rubric import IFEvalRubric
from ifeval.writer import write
from verifiers.data_source import check_data

SOURCE = vf.DataSource("google/IFEval", split="train", columns=("prompt", "instruction_id_list", "kwargs"))
MAX_INSTRUCTIONS = 4


def load_environment(
    data: str | None = None,
    num_train_examples: int = 1000,
    num_eval_examples: int = -1,
    seed: int | None = None,
    max_instructions: int = 3,
    system_prompt: str | None = None,
) -> vf.Environment:
    """One prompt, one reply that follows every instruction in it. See the README for the arguments."""
    _check_count("num_train_examples", num_train_examples)
    if num_eval_examples != -1:
        _check_count("num_eval_examples", num_eval_examples)
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ValueError(f"seed={seed!r}: give a whole number, or leave it out for the data set's own order")
    _check_count("max_instructions", max_instructions)
    if max_instructions > MAX_INSTRUCTIONS:
        raise ValueError(f"max_instructions={max_instructions}: give a whole number from 1 to {MAX_INSTRUCTIONS}")
    if data is not None:
        check_data(data)
    rubric = IFEvalRubric()

    def train() -> list[dict[str, Any]]:
        return [formatted(row, rubric) for row in generated_rows(num_train_examples, seed or 0, max_instructions)]

    def evaluation() -> list[dict[str, Any]]:
        return [formatted(row, rubric) for row in SOURCE.rows(data, OWN_ROWS, num_eval_examples, seed)]

    return vf.SingleTurnEnv(
        dataset=train, eval_dataset=evaluation, system_prompt=system_prompt, parser=rubric.parser, rubric=rubric
    )


def formatted(row: Mapping[str, Any], rubric: IFEvalRubric) -> dict[str, Any]:
    """A row of the public schema as the environment takes it.

    Raises DatasetError naming an instruction that is not known, or an argument that it lacks: every reply to such a
    row would be wrong.
    """
    names, kwargs = row["instruction_id_list"], row["kwargs"]
    where = f"{row['source']}, key {row.get('key')}"
    if not isinstance(row["prompt"], str) or not _is_list(names) or not _is_list(kwargs) or len(names) != len(kwargs):
        raise vf.DatasetError(
            f"{where}: 'prompt' is a text, 'instruction_id_list' a list of ids and 'kwargs' a list of as many dicts, "
            f"got {row['prompt']!r:.40}, {names!r:.60}, {kwargs!r:.60}"
        )
    arguments = [{name: value for name, value in (given or {}).items() if value is not None} for given in kwargs]
    for name, given in zip(names, arguments, strict=True):
        if name not in rubric.instructions:
            raise vf.DatasetError(f"{where}: there is no instruction {name!r}; known: {', '.join(rubric.instructions)}")
        try:
            rubric.instructions[name].read(name, given)
        except vf.RewardFault as error:
            raise vf.DatasetError(f"{where}: {error}") from None
    info = {"key": row.get("key"), "instruction_id_list": list(names), "kwargs": arguments, "source": row["source"]}
    return {"question": row["prompt"], "info": json.dumps(info, ensure_ascii=False)}  # text: each row has its own keys


def reference_reply(messages: vf.Messages, row: Mapping[str, Any]) -> str:
    """A reply that follows the row's instructions; `vf-validate` asks for it."""
    info = json.loads(row["info"]) if isinstance(row["info"], str) else row["info"]
    return write(dict(zip(info["instruction_id_list"], info["kwargs"], strict=True)))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and bool(value)


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}: give a whole number, 1 or more")
