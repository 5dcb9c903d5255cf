"""Rows of the leaderboard: where they lie, what is in them, and the tools that they offer."""

from __future__ import annotations

import importlib.util
import json
import logging
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

import verifiers as vf
from bfcl.own_rows import OWN_ROWS
from bfcl.pantry import FUNCTIONS, OWN_MULTI_TURN
from bfcl.worlds import CLASSES
from verifiers.data_source import check_data, read_rows

logger = logging.getLogger(__name__)

PACKAGE = "bfcl_eval"
PREFIX = "BFCL_v"
_SCHEMA_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


@dataclass(frozen=True, slots=True)
class Category:
    wants: Literal["answers", "none", "any", "turns"]  # calls of `ground_truth`; no call; any call; calls turn by turn
    file: str  # BFCL_v4_FILE.json

    @property
    def has_answers(self) -> bool:
        return self.wants in ("answers", "turns")

    @property
    def is_multi_turn(self) -> bool:
        return self.wants == "turns"


CATEGORIES: dict[str, Category] = {
    "simple": Category("answers", "simple_python"),
    "multiple": Category("answers", "multiple"),
    "parallel": Category("answers", "parallel"),
    "parallel_multiple": Category("answers", "parallel_multiple"),
    "live_simple": Category("answers", "live_simple"),
    "live_multiple": Category("answers", "live_multiple"),
    "live_parallel": Category("answers", "live_parallel"),
    "live_parallel_multiple": Category("answers", "live_parallel_multiple"),
    "live_relevance": Category("any", "live_relevance"),
    "live_irrelevance": Category("none", "live_irrelevance"),
    "irrelevance": Category("none", "irrelevance"),
    "multi_turn_base": Category("turns", "multi_turn_base"),
    "multi_turn_miss_func": Category("turns", "multi_turn_miss_func"),
    "multi_turn_miss_param": Category("turns", "multi_turn_miss_param"),
    "multi_turn_long_context": Category("turns", "multi_turn_long_context"),
}
_SINGLE_TURN = tuple(name for name, category in CATEGORIES.items() if not category.is_multi_turn)
GROUPS = {
    # where no function fits, every reply in words is right: those are not for a reward that stands alone
    "calls": tuple(name for name in _SINGLE_TURN if CATEGORIES[name].wants != "none"),
    "all": _SINGLE_TURN,
    "live": tuple(name for name in _SINGLE_TURN if name.startswith("live_")),
    "non_live": tuple(name for name in _SINGLE_TURN if not name.startswith("live_")),
    "multi_turn": tuple(name for name in CATEGORIES if name not in _SINGLE_TURN),
}


def chosen_categories(categories: Any) -> tuple[str, ...]:
    """Raises ValueError naming what is no category."""
    names = [categories] if isinstance(categories, str) else list(categories)
    found = [name for given in names for name in GROUPS.get(given, (given,))]
    for name in found:
        if name not in CATEGORIES:
            raise ValueError(f"categories={name!r}: give some of {', '.join((*GROUPS, *CATEGORIES))}")
    if not found:
        raise ValueError(f"categories={categories!r}: give at least one of {', '.join((*GROUPS, *CATEGORIES))}")
    if len({CATEGORIES[name].is_multi_turn for name in found}) > 1:
        raise ValueError(f"categories={categories!r}: give multi-turn categories or the others, not both in one run")
    return tuple(dict.fromkeys(found))


def find_source(data: Any) -> Path | None:
    """The folder or file that `data` names; `None` without it. Raises ValueError."""
    if data is None:
        return None
    if isinstance(data, str | Path) and Path(data).is_dir():
        if not any(Path(data).glob(f"{PREFIX}*.json")):
            raise ValueError(
                f"data={str(data)!r}: the folder has no files {PREFIX}…json; give bfcl_eval's folder `data`"
            )
        return Path(data)
    return check_data(data)


def raw_rows(source: Path | None, names: Sequence[str], count: int, seed: int | None) -> list[dict[str, Any]]:
    """Rows with `category`, `ground_truth` and `source` in them; `seed` shuffles, then the first `count` are taken."""
    if source is not None and source.is_file():
        rows = [{**row, "source": source.name} for row in map(_with_category, read_rows(source))]
    elif source is not None:
        rows = [row for name in names for row in _category_rows(source, name, source.name)]
    elif (folder := _packaged()) is not None:
        rows = [row for name in names for row in _category_rows(folder, name, PACKAGE)]
    else:
        logger.warning(
            "the package bfcl-eval, which holds the leaderboard's data, is not installed: %d rows of our own serve "
            "instead, and THEIR SCORES ARE NOT BFCL SCORES. Try: pip install --no-deps bfcl-eval, or pass data=PATH.",
            len(OWN_ROWS) + len(OWN_MULTI_TURN),
        )
        rows = [{**_with_category(row), "source": "own rows, not BFCL"} for row in (*OWN_ROWS, *OWN_MULTI_TURN)]
    rows = [row for row in rows if row["category"] in names]
    if not rows:
        raise vf.DatasetError(f"there are no rows of the categories {', '.join(names)}")
    if seed is not None:
        rows = random.Random(seed).sample(rows, len(rows))
    return rows if count < 0 else rows[:count]


def as_row(raw: Mapping[str, Any]) -> dict[str, Any]:
    """`prompt`, `tools` and `info` of a row. Raises DatasetError naming it when it is not in the schema."""
    where = f"{raw['source']}, {raw.get('id')}"
    question, functions = raw.get("question"), raw.get("function")
    if not isinstance(question, list) or len(question) != 1 or not question[0]:
        raise vf.DatasetError(f"{where}: 'question' is a list of one turn, a list of messages, got {question!r:.80}")
    if not isinstance(functions, list) or not all(_is_function(function) for function in functions):
        raise vf.DatasetError(f"{where}: 'function' is a list of functions with 'name' and 'parameters'")
    answers = raw.get("ground_truth") or []
    if CATEGORIES[raw["category"]].has_answers and not answers:
        raise vf.DatasetError(f"{where}: there is no 'ground_truth', the calls that are right")
    info = {key: raw[key] for key in ("id", "category", "function", "source")} | {"ground_truth": answers}
    return {"prompt": question[0], "tools": [as_tool(function) for function in functions], "info": info}


def tools_of(row: Mapping[str, Any], source: Path | None) -> list[dict[str, Any]]:
    """The functions of a multi-turn row's classes, as tools; they are told in files of the leaderboard."""
    folder = source if source is not None and source.is_dir() else _packaged()
    functions: list[Any] = []
    for name in row["involved_classes"]:
        _, file = CLASSES.get(name, ("", ""))
        if not file:
            functions += FUNCTIONS if name == "PantryAPI" else []
        elif folder is None:
            raise vf.SetupError(
                f"{row['id']}: the functions of {name} are told in the package bfcl-eval. Try: pip install --no-deps "
                "bfcl-eval"
            )
        else:
            functions += _lines(folder / "multi_turn_func_doc" / file)
    return [as_tool(function) for function in functions]


def as_tool(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function of a row as servers take it."""
    parameters = _json_schema(function["parameters"])
    described = {"name": tool_name(function["name"]), "description": function.get("description", "")}
    return {"type": "function", "function": {**described, "parameters": parameters}}


def tool_name(name: str) -> str:
    """As servers accept it: no points, 64 characters."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def _json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The leaderboard says dict, float, tuple and any; JSON Schema says object, number, array and nothing."""
    found = dict(schema)
    kind = found.get("type")
    if kind == "any":
        del found["type"]
    elif kind in _SCHEMA_TYPES:
        found["type"] = _SCHEMA_TYPES[kind]
    if isinstance(found.get("properties"), Mapping):
        found["properties"] = {name: _json_schema(one) for name, one in found["properties"].items()}
    if isinstance(found.get("items"), Mapping):
        found["items"] = _json_schema(found["items"])
    return found


def _is_function(function: Any) -> bool:
    return (
        isinstance(function, Mapping)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("parameters"), Mapping)
        and isinstance(function["parameters"].get("properties"), Mapping)
    )


def _packaged() -> Traversable | None:
    """The folder of the installed package, found without importing more than its empty top."""
    return resources.files(PACKAGE) / "data" if importlib.util.find_spec(PACKAGE) else None


def _category_rows(folder: Traversable, name: str, source: str) -> list[dict[str, Any]]:
    """Questions with their answers. A release has one version of a file; of several the newest is taken."""
    category = CATEGORIES[name]
    files = [entry for entry in folder.iterdir() if entry.name.startswith(PREFIX)]
    fitting = sorted((file.name, file) for file in files if _stem(file.name) in (category.file, name))
    if not fitting:
        raise vf.DatasetError(f"{folder} has no file {PREFIX}4_{category.file}.json for the category '{name}'")
    file_name, file = fitting[-1]
    answers: dict[str, Any] = {}
    if category.has_answers:
        answer_file = folder / "possible_answer" / file_name
        if not answer_file.is_file():
            raise vf.DatasetError(f"{folder} has {file_name} but no possible_answer/{file_name}")
        answers = {row["id"]: row["ground_truth"] for row in _lines(answer_file)}
    return [
        {**row, "category": name, "ground_truth": answers.get(row["id"]), "source": f"{source} {file_name}"}
        for row in _lines(file)
    ]


def _stem(name: str) -> str:
    """`BFCL_v4_live_simple.json` → `live_simple`."""
    return name.removesuffix(".json").removeprefix(PREFIX).partition("_")[2]


def _lines(file: Traversable) -> list[dict[str, Any]]:
    """The files are called .json and hold one object a line."""
    try:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    except ValueError as error:
        raise vf.DatasetError(f"{file.name} is not one JSON object a line: {error}") from None


def _with_category(row: Any) -> dict[str, Any]:
    """Rows of one file say their category, or begin their id with it."""
    if not isinstance(row, Mapping) or not isinstance(row.get("id"), str):
        raise vf.DatasetError(f"a row has an 'id', a 'question' and a 'function', got {row!r:.80}")
    name = row.get("category") or max((n for n in CATEGORIES if row["id"].startswith(f"{n}_")), key=len, default="")
    if name not in CATEGORIES:
        raise vf.DatasetError(f"{row['id']}: its category is none of {', '.join(CATEGORIES)}")
    return {**row, "category": name}
