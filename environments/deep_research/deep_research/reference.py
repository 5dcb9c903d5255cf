"""`reference_reply`: research done honestly on a made-up world, for `vf-validate` and tests.

It knows the plan of its question (which facts to look up, `info["path"]`), never the facts: each is read off the pages
that the tools gave it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from deep_research.pages import REGISTER_TITLE
from deep_research.relations import REGISTERED, RELATIONS, Relation

Calls = Generator[dict[str, Any], str, Any]  # gives tool calls, is sent what they return


def reference_reply(messages: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    """The next reply, after the tool messages so far."""
    research = _research(row["info"])
    reply = next(research)
    for message in messages:
        if message["role"] == "tool":
            reply = research.send(str(message["content"]))
    return reply


def _research(info: Mapping[str, Any]) -> Calls:
    subject = str(info["start"])
    for name in info["path"]:
        relation = RELATIONS[name]
        look_up = _in_registers if relation.subject == REGISTERED else _on_own_page
        subject = yield from look_up(relation, subject)
    yield _call("finish", answer=subject)


def _on_own_page(relation: Relation, subject: str) -> Calls:
    """Opens the page that has the subject's name and reads it to the end."""
    titles = _titles((yield _call("search", query=subject)))
    number = titles.index(subject) + 1
    text = yield _call("open", target=str(number))
    pages = re.search(r"^Page 1 of (\d+),", text, re.MULTILINE)
    for page in range(2, int(pages[1]) + 1 if pages else 2):
        text += yield _call("open", target=str(number), page=page)
    return _read(relation, subject, text)


def _in_registers(relation: Relation, subject: str) -> Calls:
    """Looks for the subject in one register after the other."""
    titles = _titles((yield _call("search", query=f"{REGISTER_TITLE} {subject}")))
    for number, title in enumerate(titles, 1):
        if title.startswith(REGISTER_TITLE):
            text = yield _call("find", text=subject, target=str(number))
            if found := _read(relation, subject, text):
                return found
    raise LookupError(f"no register tells of {subject}: {relation.name}")


def _titles(results: str) -> list[str]:
    return re.findall(r"^\d+\. (.*)$", results, re.MULTILINE)


def _read(relation: Relation, subject: str, text: str) -> str:
    for statement in relation.statements:
        form = re.escape(statement).replace(r"\{s\}", re.escape(subject)).replace(r"\{o\}", r"([^.]+?)")
        if found := re.search(form, text):
            return found[1]
    return ""


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": "call", "type": "function", "function": function}]}
