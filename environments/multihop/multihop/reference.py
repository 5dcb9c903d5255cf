"""`reference_reply`: reads each answer off the documents in the prompt, for `vf-validate` and tests.

It knows the relation that a question asks for, never its object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from multihop.relations import RELATIONS


def reference_reply(messages: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> str:
    """The next reply: with triplets where the prompt asks for them."""
    documents = str(messages[1]["content"])
    said = sum(message["role"] == "assistant" for message in messages)
    questions = row["info"]["questions"]
    subject = questions[0]["triplet"][0]
    for question in questions[:said]:
        subject = _read(question["triplet"][1], subject, documents)
    relation = questions[said]["triplet"][1]
    answer = _read(relation, subject, documents)
    triplet = f"<triplets>\n({subject} | {relation} | {answer})\n</triplets>\n"
    return f"{triplet if '<triplets>' in messages[0]['content'] else ''}<answer>{answer}</answer>"


def _read(relation: str, subject: str, documents: str) -> str:
    for statement in RELATIONS[relation].statements:
        form = re.escape(statement).replace(r"\{s\}", re.escape(subject)).replace(r"\{o\}", "([A-Z][A-Za-z ]+?)")
        if found := re.search(rf"(?<!\w){form}", documents):
            return found[1]
    raise LookupError(f"the documents do not state {relation} of {subject}")
