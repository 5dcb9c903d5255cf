"""`implicit_feedback`: what users do after a reply, as labels to infer and as preferences to answer by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import verifiers as vf
from implicit_feedback.log import LABELS, Log, in_words, read_log
from implicit_feedback.made import made_logs
from implicit_feedback.own_logs import OWN_LOGS
from implicit_feedback.preferences import PreferenceRubric, preference_in, row_of
from implicit_feedback.signals import infer, last_turn_negative, macro_f1
from verifiers.data_source import check_data, read_rows

__all__ = [
    "agreement",
    "file_logs",
    "infer",
    "last_turn_negative",
    "load_environment",
    "macro_f1",
    "reference_reply",
    "shipped_logs",
    "split_of",
]

TASKS = ("infer", "reply")
MADE = 216  # logs made by a seed, beside those written by hand
EVAL_SHARE = 3  # one log in three is for evaluation
PARSER = vf.XMLParser(["think", "answer"], answer_field="answer")
INFER_PROMPT = """\
You read the log of a conversation between a user and an assistant, with what the user did besides. Was the user in \
the end satisfied or dissatisfied with the help? Mind what the user does: asking the same again in other words, \
correcting, leaving at once or without answering, copying, going on, confirming.

You may think in <think>...</think>; then give one word, satisfied or dissatisfied, in <answer>...</answer>."""


def load_environment(
    task: str = "infer",
    data: str | None = None,
    num_train_examples: int = -1,
    num_eval_examples: int = -1,
    seed: int = 0,
    min_confidence: float = 0.3,
) -> vf.Environment:
    """`infer`: was the user satisfied? `reply`: answer again, as the user's complaint asks. See the README."""
    if task not in TASKS:
        raise ValueError(f"task={task!r}: give one of {', '.join(TASKS)}")
    for name, value in (("num_train_examples", num_train_examples), ("num_eval_examples", num_eval_examples)):
        if not isinstance(value, int) or isinstance(value, bool) or value == 0 or value < -1:
            raise ValueError(f"{name}={value!r}: give a whole number, 1 or more, or -1 for all there are")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"seed={seed!r}: give a whole number")
    if isinstance(min_confidence, bool) or not isinstance(min_confidence, int | float) or not 0 <= min_confidence < 1:
        raise ValueError(f"min_confidence={min_confidence!r}: give a number from 0 to below 1")
    if data is not None:
        check_data(data)

    @cache
    def logs() -> tuple[Log, ...]:
        return shipped_logs(seed) if data is None else file_logs(Path(data))

    def rows(split: str, count: int) -> Callable[[], list[dict[str, Any]]]:
        make = _reply_rows if task == "reply" else _train_rows if split == "train" else _eval_rows
        return lambda: _some(
            make([log for log in logs() if split_of(log) == split], min_confidence), count, split, task
        )

    if task == "reply":
        rubric: vf.Rubric = PreferenceRubric()
        return vf.SingleTurnEnv(
            dataset=rows("train", num_train_examples), eval_dataset=rows("eval", num_eval_examples), rubric=rubric
        )
    return vf.SingleTurnEnv(
        dataset=rows("train", num_train_examples),
        eval_dataset=rows("eval", num_eval_examples),
        system_prompt=INFER_PROMPT,
        parser=PARSER,
        rubric=vf.Rubric([agrees, says_satisfied], [1.0, 0.0], parser=PARSER),
    )


def shipped_logs(seed: int = 0) -> tuple[Log, ...]:
    """The logs written by hand, and as many made by the seed as make them a set of 240."""
    own = [read_log(row, "own logs") for row in OWN_LOGS]
    return (*own, *(read_log(row, f"made by seed {seed}") for row in made_logs(MADE, seed)))


def file_logs(path: Path) -> tuple[Log, ...]:
    return tuple(read_log(row, path.name) for row in read_rows(path))


def split_of(log: Log) -> str:
    """A log belongs to one split for good, by its id."""
    return "eval" if hashlib.sha256(log.id.encode()).digest()[0] % EVAL_SHARE == 0 else "train"


def agreement(logs: Sequence[Log], label_of: Callable[[Log], str] = lambda log: infer(log).label) -> float:
    """Macro-F1 of a way to label logs against the explicit labels; logs without one play no part."""
    labelled = [log for log in logs if log.label is not None]
    return macro_f1([str(log.label) for log in labelled], [label_of(log) for log in labelled])


def agrees(completion: Any, answer: str, parser: vf.Parser) -> float:
    """1.0 for the label, the one word and nothing else."""
    return float(str(parser.parse_answer(completion) or "").strip().rstrip(".").casefold() == answer)


def says_satisfied(completion: Any, parser: vf.Parser) -> float:
    return agrees(completion, LABELS[0], parser)


def reference_reply(messages: vf.Messages, row: Mapping[str, Any]) -> str:
    """The label, or the reply that the user took; `vf-validate` asks for it."""
    info = json.loads(row["info"]) if isinstance(row["info"], str) else row["info"]
    accepted = info.get("accepted")
    return accepted if accepted is not None else PARSER.format(think="The log shows it.", answer=row["answer"])


def _train_rows(logs: Sequence[Log], min_confidence: float) -> list[dict[str, Any]]:
    """Labels inferred from signals: the explicit ones are not looked at."""
    found = [(log, infer(log)) for log in logs]
    return [
        _infer_row(log, inferred.label, "inferred", round(inferred.confidence, 3))
        for log, inferred in found
        if inferred.confidence >= min_confidence
    ]


def _eval_rows(logs: Sequence[Log], min_confidence: float) -> list[dict[str, Any]]:
    return [_infer_row(log, log.label, "explicit", 1.0) for log in logs if log.label is not None]


def _infer_row(log: Log, label: str, kind: str, confidence: float) -> dict[str, Any]:
    info = {"id": log.id, "label": kind, "confidence": confidence, "source": log.source}
    return {"question": in_words(log), "answer": label, "info": info}


def _reply_rows(logs: Sequence[Log], min_confidence: float) -> list[dict[str, Any]]:
    rubric = PreferenceRubric()
    found = [(log, preference_in(log)) for log in logs]
    rows = [row_of(log, preference, rubric) for log, preference in found if preference is not None]
    return [row for row in rows if row is not None]


def _some(rows: list[Any], count: int, split: str, task: str) -> list[Any]:
    if not rows:
        raise vf.DatasetError(f"no log of the {split} split makes a row for the task '{task}'")
    return rows if count < 0 else rows[:count]
