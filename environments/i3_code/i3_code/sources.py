"""The public sets: where each is, and what its rows mean."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

import verifiers as vf
from i3_code import own_problems as own
from i3_code.published_tests import Unfit, inputs_and_outputs, listed, thinned

logger = logging.getLogger("verifiers")
Row = dict[str, Any]

READS_STDIN = "Write a program that reads its input from standard input and prints to standard output."


@dataclass(frozen=True)
class Source:
    data: vf.DataSource
    read: Callable[[Row], Row]  # to question, problem and info; raises Unfit, or LookupError, TypeError, ValueError
    own_rows: Callable[[], list[Row]]
    parts: int = 1  # in which a whole set is read whose rows are large: of each only what is needed stays in memory

    def rows(
        self, path: str | None = None, num: int = -1, seed: int | None = None, max_tests: int | None = None
    ) -> list[Row]:
        """At most `num` rows with `question`, `problem` and `info`, and so many tests each; a seed shuffles first.

        Raises DatasetError naming a row outside the schema.
        """
        if num >= 0 or path is not None:
            return self._some(path, num, seed, max_tests)
        rows: list[Row] = []
        for part in range(self.parts):
            start, end = (100 * edge // self.parts for edge in (part, part + 1))
            whole = f"{self.data.split}[{start}%:{end}%]" if self.parts > 1 else self.data.split
            source = replace(self.data, split=whole)
            published = source.rows(None, self.own_rows())
            is_own = any(row["source"] != str(source) for row in published)
            rows += self._fit(
                published if is_own else [{**row, "source": str(self.data)} for row in published], max_tests
            )
            if is_own:
                break
        return rows if seed is None else random.Random(seed).sample(rows, len(rows))

    def _some(self, path: str | None, num: int, seed: int | None, max_tests: int | None) -> list[Row]:
        """Rows that are left out are made up for by others, read only when they are needed."""
        asked = num
        while True:
            published = self.data.rows(path, self.own_rows(), asked, seed)
            rows = self._fit(published, max_tests)
            if num < 0 or len(rows) >= num or len(published) < asked:
                return rows if num < 0 else rows[:num]
            asked *= 2

    def _fit(self, published: list[Row], max_tests: int | None) -> list[Row]:
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
                    f"{row['source']}, row {number}: not in the schema of {self.data} "
                    f"({type(error).__name__}: {error}): {row!r:.200}"
                ) from None
            made["info"]["source"] = row["source"]
            if max_tests is not None and isinstance(made["problem"], str):
                made["problem"] = thinned(made["problem"], max_tests)
            rows.append(made)
        for reason, count in unfit.items():
            logger.warning("%s: %d of %d rows are left out: %s", self.data, count, len(published), reason)
        return rows


def made_row(statement: Any, problem: Any, function: str | None, starter: str | None = None, **info: Any) -> Row:
    """The question with what says how the program is used."""
    if not isinstance(statement, str) or not statement.strip():
        raise ValueError(f"the statement is {statement!r:.60}")
    if starter:
        use = f"Use this starter code:\n\n```python\n{starter.rstrip()}\n```"
    else:
        use = f"Write it as a function `{function}`." if function else READS_STDIN
    return {"question": f"{statement.strip()}\n\n{use}", "problem": problem, "info": info}


def _deepcoder(row: Row) -> Row:
    metadata = row.get("metadata") or {}
    named = json.loads(metadata) if isinstance(metadata, str) else metadata
    problem = listed(row["tests"], named.get("func_name"))
    return made_row(row["problem"], problem, json.loads(problem).get("function"), row.get("starter_code"))


def _synthetic2(row: Row) -> Row:
    """Rows of all kinds of tasks; those of code have tests, their prompts already say how a program is used."""
    is_code = str(row["problem_id"] or "").startswith("prime_rl_code") or row.get("task_type") == "prime_rl_code"
    if not is_code:
        raise Unfit("they are no tasks of code")
    tests: str | Mapping[str, Any] = json.loads(row["verification_info"])["test_cases"]
    problem = inputs_and_outputs(tests)
    made = made_row(row["prompt"], problem, None, task_id=row["problem_id"])
    return {**made, "question": row["prompt"].strip()}


def _human_eval(row: Row) -> Row:
    names = ("prompt", "canonical_solution", "test", "entry_point")
    for name in names:
        if not isinstance(row[name], str) or not row[name].strip():
            raise ValueError(f"{name!r} is {row[name]!r:.60}")
    if f"def {row['entry_point']}" not in row["prompt"]:
        raise ValueError(f"the prompt does not define {row['entry_point']}")
    question = f"Complete this function, and give all of it:\n\n```python\n{row['prompt'].rstrip()}\n```"
    return {"question": question, "problem": {name: row[name] for name in names}, "info": {"task_id": row["task_id"]}}


def _source(
    name: str,
    columns: str,
    read: Callable[[Row], Row],
    rows: Callable[[], list[Row]],
    config: str | None = None,
    split: str = "train",
    parts: int = 1,
) -> Source:
    return Source(vf.DataSource(name, split=split, config=config, columns=tuple(columns.split())), read, rows, parts)


def _deepcoder_source(config: str, rows: Callable[[], list[Row]], split: str = "train") -> Source:
    return _source("agentica-org/DeepCoder-Preview-Dataset", "problem tests", _deepcoder, rows, config, split, parts=10)


_SYNTHETIC2 = "problem_id prompt verification_info"
TRAIN = {
    "deepcoder-primeintellect": _deepcoder_source("primeintellect", own.primeintellect_rows),
    "deepcoder-taco": _deepcoder_source("taco", own.taco_rows),
    "deepcoder-lcbv5": _deepcoder_source("lcbv5", own.lcbv5_rows),
    "synthetic2": _source("PrimeIntellect/SYNTHETIC-2", _SYNTHETIC2, _synthetic2, own.synthetic2_rows, parts=10),
    "synthetic2-rl": _source("PrimeIntellect/SYNTHETIC-2-RL", _SYNTHETIC2, _synthetic2, own.synthetic2_rows, parts=10),
}
EVAL = {
    "humaneval": _source(
        "openai/openai_humaneval",
        "task_id prompt canonical_solution test entry_point",
        _human_eval,
        own.human_eval_rows,
        split="test",
    ),
    "deepcoder-codeforces": _deepcoder_source("codeforces", own.codeforces_rows, "test"),
    "deepcoder-lcbv5": _deepcoder_source("lcbv5", own.lcbv5_rows, "test"),
}
