"""Rows: made-up archives, or a file in the schema of the README, as prompts and what belongs to them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

import verifiers as vf
from multihop.archive import make_archive, make_hops
from multihop.relations import RELATIONS

COLUMNS = ("documents", "graph", "questions")


def made_rows(split: str, count: int, seed: int, hops: tuple[int, int], graph: bool) -> list[dict[str, Any]]:
    """`count` rows, each with an archive of its own: no fact can be learned by heart. `graph` changes no question."""
    return [_made(f"{split}/{seed}/{number}", hops, graph) for number in range(count)]


def file_rows(path: str, count: int, seed: int | None, graph: bool, max_turns: int) -> list[dict[str, Any]]:
    """Raises DatasetError naming the row that is not in the schema, or has more questions than there are turns."""
    read = vf.DataSource("multihop", columns=COLUMNS).rows(data=path, num=count, seed=seed)
    rows: list[dict[str, Any]] = []
    for number, row in enumerate(read, 1):
        try:
            rows.append(_of_file(row, graph, max_turns))
        except (KeyError, TypeError, ValueError) as error:
            told = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise vf.DatasetError(f"{row['source']}, row {number}: {told}. The README has the schema") from None
    return rows


def _made(name: str, hops: tuple[int, int], graph: bool) -> dict[str, Any]:
    archive = make_archive(name)
    count = random.Random(f"hops {name}").randint(*hops)
    questions = [
        {"plain": hop.plain, "grounded": hop.grounded, "triplet": list(hop.triplet), "answers": [hop.triplet.object]}
        for hop in make_hops(archive, name, count)
    ]
    facts = [list(fact) for fact in archive.graph]
    relations = [f"{relation.name} ({relation.subject} | {relation.object})" for relation in RELATIONS.values()]
    shown = relations if graph else []
    return _row("made for this environment", archive.documents, facts, [], questions, shown)


def _of_file(row: Mapping[str, Any], graph: bool, max_turns: int) -> dict[str, Any]:
    documents = [(_text(one["title"]), _text(one["text"])) for one in _list(row, "documents")]
    facts = [_texts(fact, "a triplet of graph", 3) for fact in _list(row, "graph")]
    pairs: list[Any] = row.get("aliases") or []
    aliases = [_texts(pair, "a pair of aliases", 2) for pair in pairs]
    questions = [_question(one, facts) for one in _list(row, "questions")]
    if len(questions) > max_turns:
        raise ValueError(f"{len(questions)} questions, and max_turns={max_turns}")
    relations = sorted({fact[1] for fact in facts})
    return _row(row["source"], documents, facts, aliases, questions, relations if graph else [])


def _question(one: Mapping[str, Any], facts: Sequence[list[str]]) -> dict[str, Any]:
    triplet = _texts(one["triplet"], "a question's triplet", 3)
    if triplet not in facts:
        raise ValueError(f"the graph does not have the question's triplet {triplet}")
    plain = _text(one["question"])
    answers = [_text(answer) for answer in one.get("answers") or [triplet[2]]]
    return {"plain": plain, "grounded": _text(one.get("grounded") or plain), "triplet": triplet, "answers": answers}


def _row(
    source: str,
    documents: Sequence[tuple[str, str]],
    facts: list[list[str]],
    aliases: list[list[str]],
    questions: list[dict[str, Any]],
    relations: list[str],
) -> dict[str, Any]:
    """`relations` are shown to the model; empty: without the graph."""
    parts = [f"[{number}] {title}\n{text}" for number, (title, text) in enumerate(documents, 1)]
    if relations:
        parts.append(f"Relations: {', '.join(relations)}")
    parts.append(f"Question 1 of {len(questions)}: {questions[0]['grounded']}")
    info = {"source": source, "graph": facts, "aliases": aliases, "questions": questions}
    return {"question": "\n\n".join(parts), "answer": questions[-1]["answers"][0], "info": info}


def _list(row: Mapping[str, Any], name: str) -> list[Any]:
    value = row[name]
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} is a list that is not empty, got {value!r:.60}")
    return cast("list[Any]", value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"a text that is not empty was expected, got {value!r:.60}")
    return value


def _texts(value: Any, what: str, count: int) -> list[str]:
    if not isinstance(value, list) or len(cast("list[Any]", value)) != count:
        raise ValueError(f"{what} is a list of {count} texts, got {value!r:.60}")
    return [_text(one) for one in cast("list[Any]", value)]
