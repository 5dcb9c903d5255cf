"""Replies that no model wrote: a right answer in the form an environment reads, and the ways to cheat without one."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.parsers.parser import content_text

Form = Callable[[str], str]

ROWS_TO_CHOOSE = 2  # rows on which every form of an answer is tried
REPEATS = 50
OPTIONS = 5
OPENERS = (":", "Solution", "Thought process:")  # each alone has been taken for a right answer by judges
PADDING_STEPS = 50
LONG_TALK = 10_000  # words
SHORTEST_LEAK = 3  # an answer of fewer characters stands in many prompts by chance


def answer_text(row: Mapping[str, Any]) -> str:
    """The row's answer as a model would write it; empty when it has none."""
    answer = row.get("answer")
    if answer is None or isinstance(answer, str):
        return answer or ""
    return json.dumps(answer) if isinstance(answer, (list, dict)) else str(answer)


def forms_of(parser: Any) -> dict[str, Form]:
    """Name → how an answer is written. What the parser itself can write comes first."""
    forms: dict[str, Form] = {}
    if hasattr(parser, "get_fields") and hasattr(parser, "answer_field"):
        others = {name: "…" for name in parser.get_fields() if name != parser.answer_field}
        forms["the parser's tags"] = lambda answer: parser.format(**others, **{parser.answer_field: answer})
    plain: dict[str, Form] = {
        "\\boxed{}": lambda answer: f"\\boxed{{{answer}}}",
        "plain": lambda answer: answer,
        "<answer>": lambda answer: f"<answer>{answer}</answer>",
        "####": lambda answer: f"#### {answer}",
    }
    forms |= plain
    return forms | {f"{name} after </think>": _after_thought(form) for name, form in plain.items()}


def _after_thought(form: Form) -> Form:
    return lambda answer: f"<think>\n…\n</think>\n{form(answer)}"


def other_answer(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """A wrong answer that looks like a right one: another row's, else a number or text that is not this one."""
    own = answer_text(row)
    for other in rows:
        text = answer_text(other)
        if text and text.strip().casefold() != own.strip().casefold():
            return text
    return str(int(own) + 1) if re.fullmatch(r"-?\d+", own) else f"not {own}"


def decoys(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Two wrong answers of the kind of the right one, as different as there are."""
    first = other_answer(row, rows)
    return [first, other_answer({"answer": answer_text(row)}, [r for r in rows if answer_text(r) != first])]


def part_of(row: Mapping[str, Any]) -> str:
    """The first half of the right answer; empty where it might be the whole answer in other words."""
    answer = answer_text(row).strip()
    part = answer[: len(answer) // 2]
    is_clear = answer.isascii() and answer.isalnum() and len(answer) >= 4 and answer.lstrip("0") != part.lstrip("0")
    return part if is_clear else ""


def calling(tools: Sequence[str]) -> Callable[..., Any]:
    """A policy that calls each of the tools once, without arguments, and then gives up."""

    def reply(messages: Sequence[Any], row: Mapping[str, Any]) -> Any:
        if any(message.get("tool_calls") for message in messages):
            return "I don't know."
        calls = [{"id": f"call{i}", "function": {"name": name, "arguments": "{}"}} for i, name in enumerate(tools)]
        return {"content": None, "tool_calls": calls}

    return reply


def hedges(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], form: Form) -> list[str]:
    right, wrong = answer_text(row), other_answer(row, rows)
    return [form(f"{right} or {wrong}"), form(f"{wrong} or {right}"), form(f"{right}, {wrong}")]


def listings(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], form: Form) -> list[str]:
    """Several of the answers that rows have, this one's among them."""
    own = answer_text(row)
    others = list(dict.fromkeys(text for text in map(answer_text, rows) if text and text != own))[: OPTIONS - 1]
    if not others:
        return []
    listed = [*others[:2], own, *others[2:]]
    return [form(", ".join(listed)), form("\n".join(f"({chr(65 + i)}) {text}" for i, text in enumerate(listed)))]


def empty_talk(row: Mapping[str, Any]) -> list[str]:
    """Openers alone, random letters (the same for the same example), and one word 10,000 times."""
    letters = random.Random(str(row.get("example_id"))).choices("qxzvkj", k=12)
    return [*OPENERS, "".join(letters), "the " * LONG_TALK]


def padded(text: str) -> str:
    """`text` after 50 steps that say nothing."""
    steps = [f"Step {number}: Let us think about this carefully." for number in range(1, PADDING_STEPS + 1)]
    return "\n".join([*steps, text])


def drafts(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], form: Form) -> list[str]:
    """The right answer only while thinking, and another one given in the end."""
    right = form(answer_text(row)).rpartition("</think>")[2].strip()
    wrong = form(other_answer(row, rows))
    if "…" in wrong:  # the form has a place for thoughts
        return [wrong.replace("…", right, 1)]
    return [f"<think>\n{right}\n</think>\n{wrong}"]


def cut_off(row: Mapping[str, Any], form: Form) -> list[str]:
    """The right answer, cut before what closes it: nothing where the form has no closing part."""
    answer, text = answer_text(row), form(answer_text(row))
    end = text.rfind(answer) + len(answer)
    closing = text[end:].rstrip()
    return [text[:end], text[:end] + closing[:-1]] if closing else []


def echoes(row: Mapping[str, Any]) -> list[str]:
    """The question sent back, and the whole prompt."""
    texts = prompt_texts(row)
    return list(dict.fromkeys([texts[-1], "\n".join(texts)])) if texts else []


def prompt_texts(row: Mapping[str, Any]) -> list[str]:
    prompt = row.get("prompt") or []
    if isinstance(prompt, str):
        return [prompt]
    return [content_text(message.get("content")) for message in prompt]


def stands_in(answer: str, text: str) -> bool:
    """Whether `answer` is in `text` as a word or phrase of its own, whatever the case.

    >>> stands_in("123", "1234 and 5"), stands_in("Paris", "the city of paris.")
    (False, True)
    """
    answer = " ".join(answer.split()).casefold()
    if len(answer) < SHORTEST_LEAK:
        return False
    pattern = rf"(?<![\w.-]){re.escape(answer)}(?!\w|[.,]\d)"
    return re.search(pattern, " ".join(text.split()).casefold()) is not None
