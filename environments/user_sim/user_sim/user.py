"""The customer: a script that tells what it is asked for, or a model that plays the same part."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import verifiers as vf

STOP = "###STOP###"  # the customer's last word
PATIENCE = 3  # messages without sense before a scripted customer leaves

# what the other side says when it wants to know a fact
ASKED: dict[str, str] = {
    "email": r"e-?mail",
    "order": r"\border\b|\bwhich one\b",
    "code": r"\bcode\b|\bbooking\b|\breference\b|\bconfirmation\b",
    "item": r"\bitems?\b|\bwhich (product|article)|\bsend back\b",
    "wanted": r"\bwhich (variant|one|colou?r|size)|\binstead\b|\bvariant|\bprefer\b|\bexchange\b",
    "reason": r"\breason\b|\bwhy\b",
    "address": r"\baddress\b",
    "day": r"\bwhen\b|\bday\b|\bdate\b|\btime\b",
    "bags": r"\bbags?\b|\bluggage\b|\bhow many\b",
    "name": r"\bnames?\b|\bpassengers?\b|\btravell?ers?\b|\bwho\b",
}
SAID: dict[str, str] = {
    "email": "My e-mail address is {}.",
    "order": "It is order {}.",
    "code": "The code is {}.",
    "item": "It is about {}.",
    "wanted": "I want {}.",
    "reason": "The reason: {}.",
    "address": "The new address is {}.",
    "day": "On {}.",
    "bags": "{}.",
    "name": "{}.",
}

MODEL_PROMPT = """\
You play a customer who writes to a service desk; the other side is an assistant. What you want:
{opening}
What you know, and tell only when it is asked for:
{facts}
Rules: one short message at a time, in your own words. Never invent what is not above: say that you do not know it.
Confirm what the assistant proposes when it is what you want. When you have been served, or it is clear that you will
not be, write {stop} and nothing else."""


def scripted_reply(facts: Mapping[str, str], heard: Sequence[str]) -> str:
    """What the customer says after all that the assistant has said to it, oldest first.

    It answers questions, confirms proposals, and leaves after a message that asks for nothing, or after several that
    make no sense.
    """
    text = heard[-1]
    sentences = re.findall(r"[^.!?\n]+[.!?]?", text)  # linear, however long the text
    questions = " ".join(s for s in sentences if s.endswith("?")) or (text if _is_request(text) else "")
    asked = [name for name in facts if name in ASKED and re.search(ASKED[name], questions, re.IGNORECASE)]
    if asked:
        return " ".join(SAID[name].format(facts[name]) for name in asked)
    if questions:
        is_lost = len(heard) >= PATIENCE and all(one == text for one in heard[-PATIENCE:])
        return STOP if is_lost else "Yes, please go on."
    if len(text.split()) < 4 and len(heard) < PATIENCE:
        return "I don't understand. Can you help me?"
    return STOP


def _is_request(text: str) -> bool:
    """Not every question has a mark: "Please tell me your e-mail address."""
    return re.search(r"\b(please|could you|can you|may i|i need|tell me|give me|provide)\b", text, re.I) is not None


def model_prompt(opening: str, facts: Mapping[str, str]) -> str:
    told = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    return MODEL_PROMPT.format(opening=opening, facts=told, stop=STOP)


def scripted_client(facts: Mapping[str, str]) -> vf.ScriptedClient:
    """A client that answers as the script does, so that both kinds of customer are asked in the same way."""

    def reply(request: Any) -> str:
        return scripted_reply(facts, [str(m["content"]) for m in request.messages if m["role"] == "user"])

    answer: Callable[[Any], str] = reply
    return vf.ScriptedClient(answer)
