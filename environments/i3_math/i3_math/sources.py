"""The public sets: where each is, and what its rows mean."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import verifiers as vf
from i3_math import own_problems as own
from verifiers.data_source import read_rows

logger = logging.getLogger("verifiers")
Row = dict[str, Any]


class Unfit(Exception):
    """Why a row of the public set cannot be asked or scored. Such rows are left out and counted."""


@dataclass(frozen=True)
class Source:
    data: vf.DataSource
    read: Callable[[Row], Row]  # to question, answer and info; raises Unfit, or LookupError, TypeError, ValueError
    own_rows: Callable[[], list[Row]]
    parts: int = 1  # in which a set is read whose rows are copies many times over

    def rows(self, path: str | None = None, num: int = -1, seed: int | None = None) -> list[Row]:
        """Rows with `question`, `answer` and `info`. Raises DatasetError naming a row outside the schema."""
        if path is None and self.parts > 1:
            return self._different()
        return self._read(self._published(path, num, seed))

    def _different(self) -> list[Row]:
        """Each question once. All the copies of DAPO at once would take some gigabytes and minutes; where two parts in
        a row bring nothing new, the rest is copies of what was read."""
        found: dict[str, Row] = {}
        without_news = 0
        for part in range(self.parts):
            start, end = (100 * edge // self.parts for edge in (part, part + 1))
            source = replace(self.data, split=f"{self.data.split}[{start}%:{end}%]")
            published = source.rows(None, self.own_rows())
            is_own = any(row["source"] != str(source) for row in published)
            before = len(found)
            for row in self._read(published if is_own else [{**row, "source": str(self.data)} for row in published]):
                found.setdefault(row["question"], row)
            without_news = 0 if len(found) > before else without_news + 1
            if is_own or without_news == 2:
                break
        return list(found.values())

    def _read(self, published: list[Row]) -> list[Row]:
        rows: list[Row] = []
        unfit: Counter[str] = Counter()
        for number, row in enumerate(published, start=1):
            try:
                made = self.read(row)
            except Unfit as error:
                unfit[str(error)] += 1
                continue
            except (LookupError, TypeError, ValueError) as error:
                raise vf.DatasetError(
                    f"{row['source']}, row {number}: not in the schema of {self.data.name} "
                    f"({type(error).__name__}: {error}): {row!r:.200}"
                ) from None
            made["info"]["source"] = row["source"]
            rows.append(made)
        for reason, count in unfit.items():
            logger.warning("%s: %d of %d rows are left out: %s", self.data, count, len(published), reason)
        return rows

    def _published(self, path: str | None, num: int, seed: int | None) -> list[Row]:
        if path is not None and path.endswith(".json"):  # ORZ publishes a list of lists, which `datasets` numbers
            listed: list[Any] = read_rows(Path(path))
            if listed and isinstance(listed[0], list):
                turns = [{str(place): turn for place, turn in enumerate(row)} for row in listed]
                return [{**row, "source": Path(path).name} for row in turns]
        return self.data.rows(path, self.own_rows(), num, seed)


def _skywork(row: Row) -> Row:
    """`ground_truth` is the JSON text of a list of answers; a few lists are empty."""
    accepted = json.loads(row["reward_model"]["ground_truth"])
    answers = [str(answer).strip() for answer in (accepted if isinstance(accepted, list) else [accepted])]
    if not any(answers):
        raise Unfit("they have no answer")
    if len(answers) > 1:
        raise Unfit("they have several answers")
    difficulty: Mapping[str, int] = row["extra_info"]["model_difficulty"]
    return _made(_last_user(row["prompt"]), answers[0], model_difficulty=dict(difficulty))


def _acereason(row: Row) -> Row:
    return _made(row["problem"], row["answer"])


# What DAPO says round a problem about the form of the answer; here the answer goes into a box.
_DAPO_BEFORE = re.compile(r"\ASolve the following math problem step by step\..*?\n\n", re.DOTALL)
_DAPO_AFTER = re.compile(r"\n\nRemember to put your answer on its own line.*\Z", re.DOTALL)


def _dapo(row: Row) -> Row:
    question = _DAPO_AFTER.sub("", _DAPO_BEFORE.sub("", _last_user(row["prompt"])))
    return _made(question, row["reward_model"]["ground_truth"])


def _orz(row: Row) -> Row:
    return _made(row["0"]["value"], row["1"]["ground_truth"]["value"])


def _aime(row: Row) -> Row:
    answer = int(row["answer"])
    if not 0 <= answer <= 999:
        raise ValueError(f"the answer {answer} is not one of 0 to 999")
    return _made(row["problem"], str(answer))


def _made(question: Any, answer: Any, **info: Any) -> Row:
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"the question is {question!r:.60}")
    if not isinstance(answer, str):
        raise TypeError(f"the answer is {answer!r:.60}, not a text")
    if not answer.strip():
        raise Unfit("they have no answer")
    return {"question": question.strip(), "answer": answer.strip(), "info": info}


def _last_user(messages: list[Mapping[str, str]]) -> str:
    return [message["content"] for message in messages if message["role"] == "user"][-1]


def _source(
    name: str,
    split: str,
    columns: str,
    read: Callable[[Row], Row],
    rows: Callable[[], list[Row]],
    parts: int = 1,
) -> Source:
    return Source(vf.DataSource(name, split=split, columns=tuple(columns.split())), read, rows, parts)


TRAIN = {
    "skywork": _source(
        "Skywork/Skywork-OR1-RL-Data", "math", "prompt reward_model extra_info", _skywork, own.skywork_rows
    ),
    "acereason": _source("nvidia/AceReason-Math", "train", "problem answer", _acereason, own.acereason_rows),
    "dapo": _source("BytedTsinghua-SIA/DAPO-Math-17k", "train", "prompt reward_model", _dapo, own.dapo_rows, parts=20),
    "orz": _source("Open-Reasoner-Zero/orz_math_13k_collection_hard", "train", "0 1", _orz, own.orz_rows),
}
EVAL = {
    "aime2024": _source("HuggingFaceH4/aime_2024", "train", "problem answer", _aime, own.aime_2024_rows),
    "aime2025": _source("math-ai/aime25", "test", "problem answer", _aime, own.aime_2025_rows),
}
