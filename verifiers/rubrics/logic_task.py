"""`LogicTask`: a kind of puzzle that is checked by its own rules, never by comparing with one stored solution."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

from verifiers.parsers import extract_boxed_answer, strip_reasoning

Puzzle = dict[str, Any]  # JSON values

HARDEST = 5
MAX_CHARS = 20_000  # of an answer
MAX_PART = 200  # of a name with its value


class WrongAnswer(Exception):
    """What is wrong with an answer: its form, or the rule that it breaks."""


class LogicTask:
    """A kind of puzzle: `make` draws one, `describe` puts it into words, `check` holds an answer against its rules.

    What a model wrote is read as numbers and names, never evaluated. `check` raises WrongAnswer for what the answer did
    and anything else only for a puzzle that is broken.

        class Parity(LogicTask):
            name, answer_form = "parity", "Answer with a number."

            def make(self, rng, difficulty):
                return {"below": 10 * difficulty}, "2"

            def describe(self, puzzle):
                return f"Name an even number below {puzzle['below']}."

            def check(self, puzzle, answer):
                number = read_number(answer)
                if number % 2 or number >= puzzle["below"]:
                    raise WrongAnswer(f"{number} is odd or too large")
    """

    name = ""
    parts: tuple[str, ...] = ()  # what every puzzle of the kind has
    answer_form = ""  # how the prompt asks for the answer

    def make(self, rng: random.Random, difficulty: int) -> tuple[Puzzle, str]:
        """A puzzle and one right answer to it."""
        raise NotImplementedError(f"{type(self).__name__}.make(rng, difficulty) draws a puzzle: write it")

    def describe(self, puzzle: Puzzle) -> str:
        raise NotImplementedError(f"{type(self).__name__}.describe(puzzle) puts a puzzle into words: write it")

    def check(self, puzzle: Puzzle, answer: str) -> None:
        raise NotImplementedError(f"{type(self).__name__}.check(puzzle, answer) holds an answer to the rules: write it")

    def generate(self, seed: int, difficulty: int = 1) -> dict[str, Any]:
        """A dataset row; `difficulty` from 1 to 5. The same arguments give the same row.

        `info["puzzle"]` is JSON text, so that rows of different tasks fit into one table.
        """
        if not 1 <= difficulty <= HARDEST:
            raise ValueError(f"difficulty is {difficulty}; it goes from 1 to {HARDEST}")
        puzzle, answer = self.make(random.Random(f"{self.name}/{seed}/{difficulty}"), difficulty)
        info = {"logic_task": self.name, "puzzle": json.dumps(puzzle), "seed": seed, "difficulty": difficulty}
        question = (
            f"{self.describe(puzzle)}\n\nAny solution counts. {self.answer_form} Put it between <answer> and </answer>."
        )
        return {"question": question, "answer": answer, "info": info}


# Where the answer stands


def answer_block(text: str) -> str:
    r"""What the last `<answer>…</answer>` or `\boxed{…}` holds, after the reasoning; "" where it never closes.

    >>> answer_block("<answer>1 2</answer> or rather <answer>2 1</answer>")
    '2 1'
    """
    text = strip_reasoning(text)
    tag, box = text.rfind(_OPENING), max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if box > tag:
        content = extract_boxed_answer(text, strict=True)
    elif tag >= 0:
        content, closing, _ = text[tag + len(_OPENING) :].partition("</answer>")
        content = content if closing else ""
    else:
        return ""
    fenced = re.fullmatch(r"\s*```[^\n]*\n(.*?)\n?```\s*", content, re.DOTALL)
    return (fenced[1] if fenced else content).strip("\n").rstrip()


_OPENING = "<answer>"


# How an answer is read. All raise WrongAnswer.


def read_grid(answer: str, rows: int, columns: int) -> list[list[int]]:
    """Numbers in rows: a line each, with spaces, commas or bars between (or nothing, for figures), or JSON."""
    lines = _json_of(answer)
    if lines is None:
        lines = [line for line in _lines(answer) if re.search(r"[^\s|+=─━│┃┼╋-]", line)]
        lines = [_numbers_of(line, columns) for line in lines]
    if not isinstance(lines, list) or len(lines) != rows:
        raise WrongAnswer(f"the answer has {len(lines)} rows, not {rows}")
    for line in lines:
        if not isinstance(line, list) or not all(type(number) is int for number in line):
            raise WrongAnswer("the answer is no grid of numbers")
        if len(line) != columns:
            raise WrongAnswer(f"a row of the answer has {len(line)} numbers, not {columns}")
    return lines


def _numbers_of(line: str, columns: int) -> list[int]:
    if re.fullmatch(r"[\s0-9,|;│┃\[\]]*", line) is None:
        raise WrongAnswer(f"the answer has a row that is no row of numbers: {line!r:.60}")
    words = re.findall(r"[0-9]+", line)
    if len(words) == 1 and len(words[0]) == columns:
        words = list(words[0])
    return [read_number(word) for word in words]


def read_numbers(answer: str) -> list[int]:
    """Whole numbers with commas or spaces between, in brackets or not."""
    text = answer.strip()
    if re.fullmatch(r"[\[({]?[\s0-9,;]*[\])}]?", text) is None:
        raise WrongAnswer(f"the answer is no list of numbers: {text!r:.60}")
    return [read_number(word) for word in re.findall(r"[0-9]+", text)]


def read_number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
        raise WrongAnswer(f"{text!r:.40} is no whole number of at most nine figures")
    return int(text)


def read_names(answer: str, names: Sequence[str]) -> list[str]:
    """Names in order, each once and all of them, with commas, arrows or line ends between."""
    words = [word.strip(" \t\"'[]().*") for word in re.split(r"->|→|[,;\n>]", _text(answer))]
    known = {name.casefold(): name for name in names}
    found = [word for word in words if word]
    for word in found:
        if word.casefold() not in known:
            raise WrongAnswer(f"{word!r:.40} is none of {', '.join(names)}")
    read = [known[word.casefold()] for word in found]
    if len(set(read)) != len(read):
        raise WrongAnswer("a name stands twice in the answer")
    if len(read) != len(names):
        raise WrongAnswer(f"the answer has {len(read)} of {len(names)} names")
    return read


def read_values(answer: str, names: Sequence[str]) -> dict[str, str]:
    """A value for every name: "x1 = true, x2: false", on lines or with commas, or a JSON object. Each name once."""
    pairs = _json_pairs(answer)
    if pairs is None:
        pairs = []
        for part in re.split(r"[,;\n]", _text(answer)):
            if part.strip(" .*-"):
                pair = len(part) <= MAX_PART and re.fullmatch(
                    r"[\s*\-\"']*([\w ]+?)[\s*\"']*(?:=|:|->|→|\bis\b)[\s*\"']*([\w ]+?)[\s*.\"']*", part
                )
                if not pair:
                    raise WrongAnswer(f"{part.strip()[:40]!r} gives no name a value")
                pairs.append((pair[1], pair[2]))
    known = {name.casefold(): name for name in names}
    values: dict[str, str] = {}
    for name, value in pairs:
        own = known.get(name.strip().casefold())
        if own is None:
            raise WrongAnswer(f"{name!r:.40} is none of {', '.join(names):.80}")
        if own in values:
            raise WrongAnswer(f"{own} has two values")
        values[own] = value.strip().casefold()
    if len(values) != len(known):
        raise WrongAnswer(f"the answer gives a value to {len(values)} of {len(known)} names")
    return values


def one_of(value: str, meanings: dict[str, Any]) -> Any:
    if value not in meanings:
        raise WrongAnswer(f"{value!r:.40} is none of {', '.join(meanings)}")
    return meanings[value]


def _text(answer: str) -> str:
    return answer.strip().strip("{}[]")


def _lines(answer: str) -> list[str]:
    return [line for line in answer.splitlines() if line.strip()]


def _json_of(answer: str) -> Any:
    """The JSON array of arrays that the answer is; None where it is another text."""
    if not answer.lstrip().startswith("[["):
        return None
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        raise WrongAnswer("the answer begins like JSON but is none") from None


def _json_pairs(answer: str) -> list[tuple[str, str]] | None:
    if not answer.lstrip().startswith("{") or '"' not in answer:
        return None
    try:
        pairs = json.loads(answer, object_pairs_hook=lambda pairs: pairs)  # a list, so that a name given twice shows
    except (ValueError, RecursionError):
        raise WrongAnswer("the answer begins like JSON but is none") from None
    if not all(isinstance(value, (str, bool, int)) for _, value in pairs):
        raise WrongAnswer("a value in the answer is neither a text nor a number")
    return [(name, str(value)) for name, value in pairs]
