"""The options of a multiple-choice question: what a row says about them, and another order for them."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from verifiers.errors import DatasetError, RewardFault

Options = dict[str, str]  # letter → text, in the order in which they are shown


def read_options(info: Any) -> Options:
    """The options of a row: `info["options"]` (or `"choices"`), a list of texts or a dict from letter to text.

    Raises RewardFault where there are none: without them any capital letter could pass for an answer.
    """
    info = json.loads(info) if isinstance(info, str) and info else info
    given = info.get("options", info.get("choices")) if isinstance(info, Mapping) else None
    if isinstance(given, Mapping):
        options = {str(letter).strip().upper(): str(text) for letter, text in given.items() if text is not None}
        if options and set(options) <= set(ascii_uppercase):
            return options
    elif isinstance(given, Sequence) and not isinstance(given, str) and 0 < len(given) <= len(ascii_uppercase):
        return {letter: str(text) for letter, text in zip(ascii_uppercase, given)}
    raise RewardFault(
        f"info['options'] is {given!r:.60}, not up to 26 texts in the order shown. Try: dataset.map(vf.shuffle_options)"
    )


def gold_letter(answer: Any, options: Options) -> str:
    """The letter that `answer` names, itself a letter or the text of one option. Raises RewardFault otherwise."""
    text = answer.strip() if isinstance(answer, str) else ""
    if text in options:
        return text
    named = letters_of(text, options)
    if len(named) == 1:
        return named[0]
    if not named and text.upper() in options:
        return text.upper()
    raise RewardFault(
        f"the reference answer {answer!r:.60} is {'several of the' if named else 'none of the'} options "
        f"{', '.join(options)}"
    )


def letters_of(text: str, options: Options) -> list[str]:
    """The letters of the options with exactly this text, up to case, spaces and marks of emphasis."""
    plain = plain_text(text)
    return [letter for letter, option in options.items() if plain and plain_text(option) == plain]


def plain_text(text: str) -> str:
    text = unicodedata.normalize("NFKC", without_marks(text))
    return " ".join(text.split()).strip().rstrip(".").rstrip().casefold()


def without_marks(text: str) -> str:
    """Without what only sets the type: fonts of TeX, dollar signs, emphasis, code marks."""
    for _ in range(3):  # \textbf{\text{A}}
        text = _FONT.sub(r"\1", text)
    return _MARKS.sub(" ", text)


_FONT = re.compile(r"\\(?:text|textbf|textit|textrm|textsf|mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mbox)\{([^{}]*)\}")
_MARKS = re.compile(r"\*\*|__|[*`$]|\\[()\[\], ;]|~")


def shuffle_options(row: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """A copy of a row of multiple choice with its options in another order, written into the question.

    The row has `question`, `options` (or `choices`) and the right one as `answer`: its number from 0, its letter, or
    its text. The order depends on `seed` and the row alone. In the copy `answer` is the letter, and `info` holds
    `options` as shown, `option_order` (shown place → place in the row) and `option_seed`. "None of the above" stays in
    its place, and options that speak of other options by letter keep their order.

    >>> row = shuffle_options({"question": "2 + 2?", "options": ["3", "4", "5"], "answer": 1}, seed=3)
    >>> row["info"]["options"]["ABC".index(row["answer"])]
    '4'
    """
    texts, right = _read_row(row)
    order = _order(texts, f"{seed}\0{row['question']}")
    shown = [texts[place] for place in order]
    info = row.get("info")
    info = json.loads(info) if isinstance(info, str) and info else info
    lines = [f"{letter}. {text}" for letter, text in zip(ascii_uppercase, shown)]
    return {
        **{name: value for name, value in row.items() if name not in ("options", "choices")},
        "question": "\n".join([str(row["question"]), "", *lines]),
        "answer": ascii_uppercase[order.index(right)],
        "info": {**(info or {}), "options": shown, "option_order": order, "option_seed": seed},
    }


def _read_row(row: Mapping[str, Any]) -> tuple[list[str], int]:
    given, answer = row.get("options", row.get("choices")), row.get("answer")
    if not isinstance(row.get("question"), str):
        raise DatasetError(f"shuffle_options: the row has no text 'question'; its columns: {', '.join(row)}")
    if isinstance(given, str) or not isinstance(given, Sequence) or not 2 <= len(given) <= len(ascii_uppercase):
        raise DatasetError(f"shuffle_options: 'options' (or 'choices') is {given!r:.60}, not a list of 2 to 26 texts")
    texts = [str(text) for text in given]
    if isinstance(answer, int) and not isinstance(answer, bool):
        if 0 <= answer < len(texts):
            return texts, answer
    else:
        options = dict(zip(ascii_uppercase, texts))
        by_text = letters_of(answer, options) if isinstance(answer, str) else []
        by_letter = [answer.strip()] if isinstance(answer, str) and answer.strip() in options else []
        named = {*by_text, *by_letter}
        if len(named) == 1:
            return texts, ascii_uppercase.index(named.pop())
    raise DatasetError(
        f"shuffle_options: the answer {answer!r:.60} names no single option of {texts!r:.120}. "
        "Give its number from 0, its letter or its text"
    )


def _order(texts: list[str], seed: str) -> list[int]:
    """Places by a hash, which no release of Python will change."""
    if any(_SPEAKS_OF_LETTERS.search(text) for text in texts):
        return list(range(len(texts)))
    free = [place for place, text in enumerate(texts) if not _SPEAKS_OF_PLACE.search(text)]
    drawn = iter(sorted(free, key=lambda place: hashlib.sha256(f"{seed}\0{place}".encode()).digest()))
    return [next(drawn) if place in free else place for place in range(len(texts))]


_SPEAKS_OF_PLACE = re.compile(r"\b(?:above|below|preceding|other options|other choices)\b", re.IGNORECASE)
_SPEAKS_OF_LETTERS = re.compile(
    r"\b(?:both|either|neither|only|options?|choices?|answers?)\s+\(?[A-Z]\)?(?!\w)|(?<!\w)\(?[A-H]\)?,?\s+(?:and|or|nor|&)\s+\(?[A-H]\)?(?!\w)"
)
