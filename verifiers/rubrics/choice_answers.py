"""Which option a reply to a multiple-choice question chooses. Rules that would rather find none than guess."""

from __future__ import annotations

import re
from dataclasses import dataclass

from verifiers.parsers import extract_boxed_answer
from verifiers.rubrics.choice_options import Options, letters_of, plain_text, without_marks


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen letter; without one, `reason` says why there is none."""

    letter: str | None
    reason: str | None = None


NOT_MARKED = Choice(None, "no answer in the expected form")
SEVERAL = Choice(None, "more than one option is named")


def choice_in(reply: str, options: Options) -> Choice:
    r"""The option a reply chooses: its last `\boxed{…}`; else its last "Answer: X"; else the reply is an option's text.

    A box that is there decides alone, and so does the last anchor that speaks of options.

    >>> choice_in("A is wrong. The answer is (B).", {"A": "Rome", "B": "Paris"})
    Choice(letter='B', reason=None)
    >>> choice_in("I think B", {"A": "Rome", "B": "Paris"}).letter is None
    True
    """
    boxes = [box.start() for box in _BOX.finditer(reply)]
    if boxes:
        content = extract_boxed_answer(reply, strict=True)
        found = marked_choice(content, options) if content.strip() else NOT_MARKED
        before = _NEXT_BOX.match(reply, boxes[-2]) if len(boxes) > 1 else None
        is_list = before is not None and marked_choice(before[1], options).letter not in (None, found.letter)
        return SEVERAL if is_list else found
    return _anchored_choice(reply, options) or _whole_choice(reply, options)


def marked_choice(content: str, options: Options) -> Choice:
    """The option named by a text that is nothing but the answer: a letter, an option's text, or both."""
    text = " ".join(without_marks(content).split())
    read = _labelled(options).fullmatch(text)
    if read is not None:
        letter, rest = read["letter"].upper(), read["rest"]
        if not rest or letter in letters_of(rest, options):
            return Choice(letter)
    by_text = letters_of(content, options)
    if len(by_text) == 1:
        return Choice(by_text[0])
    if len(by_text) > 1 or len(set(_letter(options).findall(text))) > 1:
        return SEVERAL
    return NOT_MARKED


def _whole_choice(reply: str, options: Options) -> Choice:
    """A reply that is an option's text, with or without its letter. A letter alone might be anything."""
    found = marked_choice(reply, options) if len(reply) < MAX_LINE else NOT_MARKED
    if found.letter is None:
        return NOT_MARKED
    if letters_of(reply, options) == [found.letter]:
        return found
    return found if plain_text(reply).endswith(plain_text(options[found.letter])) else NOT_MARKED


MAX_LINE = 4_000  # of a reply that is an option's text
MAX_ANCHORS = 20  # the last ones; in a reply that repeats itself there may be thousands


def _anchored_choice(reply: str, options: Options) -> Choice | None:
    """What the last anchor that speaks of options says; None where none does."""
    refused: set[str] = set()
    length = 400 + 2 * max(len(text) for text in options.values())
    for anchor in reversed(list(_ANCHOR.finditer(reply))[-MAX_ANCHORS:]):
        rest = without_marks(reply[anchor.end() : anchor.end() + length]).lstrip()
        refusal = _refusal(options).match(rest)
        if refusal is not None:  # "the answer is not B"
            refused.add(refusal["letter"].upper())
            continue
        found = _after_anchor(rest, options, has_colon=reply[anchor.end() - 1] in ":：")
        if found is not None and found.letter and _follows_another(reply[: anchor.start()], found.letter, options):
            return SEVERAL
        if found is not None:
            return Choice(None, "the answer is taken back") if found.letter in refused else found
    return None


def _follows_another(before: str, letter: str, options: Options) -> bool:
    """Whether another "Answer: A" comes right before, with nothing said in between: a list, not a change of mind."""
    last = _ANCHORED_LETTER.search(before[-100:])
    return last is not None and last[1].upper() in options and last[1].upper() != letter


def _after_anchor(rest: str, options: Options, has_colon: bool) -> Choice | None:
    """The option named where a sentence begins; None where it speaks of something else."""
    line = rest.partition("\n")[0]
    by_text = letters_of(line, options) or _leading_text(line, options)
    if len(by_text) > 1 or (not by_text and _UNDECIDED.match(rest)):
        return SEVERAL
    read = _leading(options).match(rest)
    if read is None or not _is_letter_meant(read, rest, has_colon):
        return Choice(by_text[0]) if by_text else None
    letter, tail = read["letter"].upper(), rest[read.end() :]
    behind = tail.partition("\n")[0].lstrip(" .:,;)]-–—")
    named = letters_of(behind, options)
    if letter in named:
        return Choice(letter)
    if named or (by_text and behind and by_text != [letter]):
        return Choice(None, "the letter and the text are of different options")
    own = options[letter].strip()
    if own and behind.casefold().startswith(own.casefold()):
        tail = behind[len(own) :]
    elif not _MAY_FOLLOW.match(tail):
        return None  # "A = 2r", "I think"
    return SEVERAL if _names_another(tail, letter, options) else Choice(letter)


def _is_letter_meant(read: re.Match[str], rest: str, has_colon: bool) -> bool:
    """A small letter may be a word ("a", "i"), so it must be wrapped or stand alone."""
    if read["letter"].isupper() or read["open"] or read["label"] or read[0].endswith(")"):
        return True
    ends = re.match(r"[\s.)]*(?:\n|$)", rest[read.end() :]) is not None
    return ends and (has_colon or read["letter"] not in "ai")


def _leading_text(line: str, options: Options) -> list[str]:
    """The option whose text begins the line and is followed by the end of a sentence; the longest one."""
    line = " ".join(line.split()).casefold()
    texts = {letter: " ".join(without_marks(text).split()).casefold() for letter, text in options.items()}
    fitting = {
        letter: text
        for letter, text in texts.items()
        if text and line.startswith(text) and re.match(r"[.!;](?:\s|$)", line[len(text) :])
    }
    longest = max(fitting.values(), key=len, default="")
    return [letter for letter, text in fitting.items() if text == longest]


def _names_another(tail: str, letter: str, options: Options) -> bool:
    """Whether what follows the chosen letter offers a second one: "A or B", "A, B", a list of letters."""
    others = "".join(set(options) - {letter})
    if not others:
        return False
    next_letter = re.match(
        rf"(?P<gap>[^\w]*(?:(?i:or|and|maybe|perhaps|possibly|also)\b[^\w]*)*)[{others}](?![\w'’])(?P<rest>[^\n]*)",
        tail,
    )
    if next_letter is not None:
        has_ended = re.search(r"[.!?;\n]", next_letter["gap"]) is not None
        is_alone = re.search(r"\w", next_letter["rest"]) is None
        if not has_ended or is_alone or re.search(r"(?i)\b(?:or|maybe|perhaps|possibly)\b", next_letter["gap"]):
            return True
    sentence = re.split(r"\n|[.!?](?:\s|$)", tail[:400], maxsplit=1)[0]
    sentence = _REASON.split(sentence, maxsplit=1)[0]  # "because A or C would ..."
    doubt = re.search(r"\b(?:or|could|might|maybe|perhaps|possibly|alternatively)\b", sentence)
    return doubt is not None and re.search(rf"(?<![\w'])[{others}](?![\w'’])", sentence[doubt.end() :]) is not None


_BOX = re.compile(r"\\(?:boxed|fbox)\b")
_ANCHORED_LETTER = re.compile(
    r"\b(?:answer|option|choice)\W+(?:is\W+)?([A-Z])\W*(?:\b(?:or|and|the)\W+){0,3}$", re.IGNORECASE
)
_NEXT_BOX = re.compile(
    r"\\(?:boxed|fbox)\s?\{([^{}]{0,200})\}[\s.,;/&$*]{0,20}(?:(?:or|and)\s)?[\s$*]{0,5}(?=\\(?:boxed|fbox))"
)
_ANCHOR = re.compile(
    r"\b(?:answer(?:\sto\s(?:the|this)\squestion)?|(?:correct|right|best)\s{1,3}(?:option|choice))\b[\s*_`\"']{0,8}"
    r"(?:[:：]|(?:is|would\sbe|should\sbe|must\sbe)\b(?:[\s*_`]{0,8}:)?)",
    re.IGNORECASE,
)
_REASON = re.compile(r"\b(?:because|since|as|for|while|whereas|not|rather|unlike|given|which)\b", re.IGNORECASE)
_UNDECIDED = re.compile(
    r"(?:either|both|between|neither|one of|any of|all of)\b(?!\s+the\s+(?:above|below))", re.IGNORECASE
)
_MAY_FOLLOW = re.compile(
    r"\s*(?:$|[.,;!?)\]}\"'”’/&+|(]|:(?!=)|\s[-–—]\s|[–—]|\n"
    r"|\s(?:because|since|as|which|for|with|by|due|and|or|but|not|rather|given|based|here"
    r"|is\s(?:the\s)?(?:correct|right|best))\b)",
    re.IGNORECASE,
)
_LABEL = r"(?:(?:the\s+)?(?:(?:correct|final|right|best)\s+)?(?:answer|option|choice|letter)\s*(?:is\b)?\s*:?\s*)"


def _letter(options: Options) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w\\])[{''.join(options)}](?![\w'’])")


def _labelled(options: Options) -> re.Pattern[str]:
    """A whole text: "B", "(B)", "option B", "B. Paris"."""
    letter = rf"[(\[{{]?\s*(?P<letter>[{''.join(options)}])(?!\w)\s*[)\]}}]?"
    return re.compile(rf"{_LABEL}?{letter}(?:\s*[.:,;]?\s*|[\s.:),;–—-]+(?P<rest>\S.*))", re.IGNORECASE)


def _leading(options: Options) -> re.Pattern[str]:
    """The beginning of a text: "B", "(B)", "option B"."""
    return re.compile(
        rf"(?:(?:therefore|thus|hence|clearly|definitely|indeed|simply),?\s+)?(?P<label>{_LABEL}?)(?P<open>[(\[{{\"'“]?)\s*(?P<letter>[{''.join(options)}])(?![\w'’])(?:\s?[)\]}}\"'”])?",
        re.IGNORECASE,
    )


def _refusal(options: Options) -> re.Pattern[str]:
    return re.compile(
        rf"(?:definitely\s+|clearly\s+)?not\s+{_LABEL}?[(\[]?(?P<letter>[{''.join(options)}])(?![\w'’])", re.IGNORECASE
    )
