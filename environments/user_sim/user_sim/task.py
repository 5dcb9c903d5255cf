"""`Task`: what a customer wants, and what tells whether it was done. `Domain`: where customers come to."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

MAX_NUMBERS = 12  # in one message: a list of all there are tells nothing


class Refused(ValueError):
    """What a tool says to a call that is not possible; the model is told."""


@dataclass(frozen=True)
class Task:
    kind: str
    opening: str  # the customer's first message
    facts: dict[str, str]  # what the customer tells when asked for it
    actions: list[dict[str, Any]]  # calls that change the database as it should be
    outputs: list[dict[str, str]]  # what the customer has to be told

    def __post_init__(self) -> None:
        if not self.actions and not self.outputs:
            raise ValueError(f"the task '{self.kind}' would be done by doing nothing")


@dataclass(frozen=True)
class Domain:
    """`make_task` may still change the database, before anyone sees it, so that the task can be done."""

    name: str
    policy: str
    tools: tuple[Callable[..., Any], ...]  # each with the hidden argument `db`
    make_database: Callable[[random.Random], dict[str, Any]]
    make_task: Callable[[random.Random, dict[str, Any]], Task]

    def after(self, database: dict[str, Any], actions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The database once the actions were done; it is changed in place."""
        tools = {tool.__name__: tool for tool in self.tools}
        for one in actions:
            tools[one["name"]](**one["arguments"], db=database)
        return database


def action(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def money(rng: random.Random) -> str:
    """A price whose cents make it hard to meet by chance."""
    return f"{rng.randint(15, 180)}.{rng.randint(1, 99):02}"


def number_output(value: Decimal) -> dict[str, str]:
    return {"kind": "number", "value": str(value)}


def date_output(value: date) -> dict[str, str]:
    return {"kind": "date", "value": value.isoformat()}


def is_told(output: Mapping[str, str], text: str) -> bool:
    """Whether a message says it: a number however it is written, a date in one of the usual forms.

    >>> is_told({"kind": "number", "value": "1040.50"}, "That is $1,040.5 in all.")
    True
    """
    if output["kind"] == "date":
        day = date.fromisoformat(output["value"])
        month = day.strftime("%B")
        forms = (
            day.isoformat(),
            f"{day.day:02}.{day.month:02}.{day.year}",
            f"{month} {day.day}",
            f"{day.day} {month}",
            f"{month[:3]} {day.day}",
            f"{day.day} {month[:3]}",
        )
        plain = re.sub(r"(?<=\d)(st|nd|rd|th)\b", "", text).replace(" of ", " ")
        return any(re.search(rf"(?<![\w.]){re.escape(form)}(?!\w)", plain, re.IGNORECASE) for form in forms)
    numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)", re.sub(r"(?<=\d),(?=\d{3})", "", text))
    return len(numbers) <= MAX_NUMBERS and any(Decimal(number) == Decimal(output["value"]) for number in numbers)


def same_database(one: Any, other: Any) -> bool:
    """Texts are compared without case and without what is around them: an address may be spelt MILL LANE 7."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_database(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_database, one, other))
    if isinstance(one, str) and isinstance(other, str):
        return " ".join(one.split()).strip(" .,").casefold() == " ".join(other.split()).strip(" .,").casefold()
    return type(one) is type(other) and one == other
