"""The instructions that can be checked by rule, by the ids of the public IFEval data, and what each asks of a reply.

A check gets a reply that is not empty and its arguments; it says whether the instruction was followed, to the letter.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verifiers.errors import RewardFault
from verifiers.rubrics.language import LANGUAGES, language_of

Read = Callable[[Any], Any]  # an argument as the row has it → as the check takes it; raises ValueError


@dataclass(frozen=True, slots=True)
class Instruction:
    """`check(reply, **arguments)`; `arguments` says which it needs and how each is read, `optional` what it may get."""

    check: Callable[..., bool]
    arguments: Mapping[str, Read] = field(default_factory=dict)
    optional: tuple[str, ...] = ()

    def read(self, name: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Raises RewardFault naming the argument that is missing (`None` is missing) or makes no sense."""
        given = given or {}
        read = {name: given[name] for name in self.optional if given.get(name) is not None}
        for argument, reader in self.arguments.items():
            value = given.get(argument)
            if value is None:
                raise RewardFault(f"instruction '{name}' lacks its argument '{argument}'; it has {_present(given)}")
            try:
                read[argument] = reader(value)
            except ValueError as error:
                raise RewardFault(f"instruction '{name}': '{argument}' is {value!r:.60}, not {error}") from None
        return read


def _present(given: Mapping[str, Any]) -> str:
    return ", ".join(name for name, value in given.items() if value is not None) or "none"


# How arguments are read


def as_is(value: Any) -> Any:
    return value


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return value


def texts(value: Any) -> list[str]:
    if isinstance(value, (str, Mapping)) or not hasattr(value, "__iter__"):
        raise ValueError("a list of texts")
    found = [item for item in value if isinstance(item, str) and item.strip()]
    if not found or len(found) != len(list(value)):
        raise ValueError("a list of texts")
    return found


def count(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__float__") or float(value) != int(value) or value < 0:
        raise ValueError("a count")
    return int(value)


def place(value: Any) -> int:
    number = count(value)
    if number < 1:
        raise ValueError("a place from 1")
    return number


def relation(value: Any) -> str:
    if value not in ("at least", "less than"):
        raise ValueError("'at least' or 'less than'")
    return value


def letter(value: Any) -> str:
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("one letter")
    return value.strip()


def language(value: Any) -> str:
    if value not in LANGUAGES:
        raise ValueError(f"one of {', '.join(sorted(LANGUAGES))}")
    return value


# Words and their numbers


def has_keywords(reply: str, keywords: list[str]) -> bool:
    """Each stands in the reply, also as a part of a word, in any case."""
    folded = reply.casefold()
    return all(keyword.casefold() in folded for keyword in keywords)


def has_keyword_often(reply: str, keyword: str, frequency: int, relation: str) -> bool:
    return _holds(reply.casefold().count(keyword.casefold()), relation, frequency)


def has_none_of(reply: str, forbidden_words: list[str]) -> bool:
    """None stands in the reply as a whole word, in any case."""
    return not any(
        re.search(rf"(?<!\w){re.escape(word.strip())}(?!\w)", reply, re.IGNORECASE) for word in forbidden_words
    )


def has_letter_often(reply: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _holds(reply.casefold().count(letter.casefold()), let_relation, let_frequency)


def has_capital_words(reply: str, capital_frequency: int, capital_relation: str) -> bool:
    """Words all in capitals, "I" and "A" among them."""
    words = sum(word.isupper() for word in re.findall(r"\w+(?:['’-]\w+)*", reply))
    return _holds(words, capital_relation, capital_frequency)


def has_words(reply: str, num_words: int, relation: str) -> bool:
    """A word is a run of letters, digits and underscores."""
    return _holds(len(re.findall(r"\w+", reply)), relation, num_words)


def has_sentences(reply: str, num_sentences: int, relation: str) -> bool:
    return _holds(len(sentences_of(reply)), relation, num_sentences)


def _holds(number: int, relation: str, bound: int) -> bool:
    return number >= bound if relation == "at least" else number < bound


def sentences_of(reply: str) -> list[str]:
    """A sentence ends with . ! ? … (and quotes or brackets) before a space, with 。！？, or with an empty line.

    A point after an abbreviation, an initial or the number of a list's item ends none.
    """
    sentences, begin = [], 0
    for end in _SENTENCE_END.finditer(reply):
        if end[0].startswith(".") and _NO_END.search(reply[max(begin, end.start() - 12) : end.start()]):
            continue
        sentences.append(reply[begin : end.end()])
        begin = end.end()
    sentences.append(reply[begin:])
    return [sentence for sentence in sentences if re.search(r"\w", sentence)]


_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]*_]*(?=\s|$)|[。！？]|\n[ \t]*\n")
_NO_END = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|cf|approx|No|Fig|[A-Z]|[ap]\.m|U\.S)|(?:^|\n)\s*\d{1,3})$"
)


# Paragraphs, sections and marks


def has_paragraphs(reply: str, num_paragraphs: int) -> bool:
    """Parts between dividers `***`; none may be empty but what stands before the first and after the last."""
    parts = _without_empty_ends(re.split(r"(?:^|(?<=\s))\*{3}(?=\s|$)", reply))
    return all(parts) and len(parts) == num_paragraphs


def _without_empty_ends(parts: list[str]) -> list[str]:
    """The parts without spaces around them, and without an empty first and last one."""
    parts = [part.strip() for part in parts]
    begin, end = not parts[0], len(parts) - (not parts[-1])
    return parts[begin:end]


def has_paragraph_beginning(reply: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Paragraphs between empty lines; the nth begins with the word, in any case and whatever quotes or marks."""
    parts = [part for part in re.split(r"\n\s*\n", reply) if part.strip()]
    if len(parts) != num_paragraphs or nth_paragraph > len(parts):
        return False
    found = re.match(r"[^\w]*([\w'’-]+)", parts[nth_paragraph - 1])
    return found is not None and found[1].casefold() == first_word.strip().casefold()


def has_placeholders(reply: str, num_placeholders: int) -> bool:
    """At least so many texts in square brackets: `[address]`."""
    return sum(bool(inside.strip()) for inside in re.findall(r"\[([^\[\]\n]+)\]", reply)) >= num_placeholders


def has_postscript(reply: str, postscript_marker: str) -> bool:
    """A line that begins with the marker and goes on."""
    marker = r"\s?".join(re.escape(part) for part in re.findall(r"\S\.?", postscript_marker))
    return re.search(rf"^[ \t*_>]*{marker}[ \t:,*_]*[^\s:,*_]", reply, re.IGNORECASE | re.MULTILINE) is not None


def has_bullets(reply: str, num_bullets: int) -> bool:
    """Exactly so many lines that begin with `* ` or `- `."""
    return len(re.findall(r"^[ \t]*[*-][ \t]+\S", reply, re.MULTILINE)) == num_bullets


def has_highlights(reply: str, num_highlights: int) -> bool:
    """At least so many texts between asterisks, single or double: `*so*`. A bullet's asterisk opens none."""
    found = re.findall(r"\*\*([^\n*]+)\*\*|\*([^\s*][^\n*]*)\*", reply)
    return sum(bool((double or single).strip()) for double, single in found) >= num_highlights


def has_sections(reply: str, section_spliter: str, num_sections: int) -> bool:
    """At least so many different numbers after the section's name: "Section 1", "Section 2"."""
    numbers = re.findall(rf"(?<!\w){re.escape(section_spliter.strip())}\s?(\d+)", reply)
    return len({int(number[:9]) for number in numbers}) >= num_sections


def has_title(reply: str) -> bool:
    """A title in double angular brackets: `<<so>>`."""
    return any(title.strip() for title in re.findall(r"<<([^\n<>]+)>>", reply))


def is_json(reply: str) -> bool:
    """Nothing but a JSON object or array, which may stand in a fence."""
    fenced = re.fullmatch(r"```(?:json|JSON|Json)?[ \t]*\n(.*?)\n?```", reply, re.DOTALL)
    try:
        value = json.loads(fenced[1] if fenced else reply, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, (dict, list))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def is_constrained(reply: str) -> bool:
    """One of the three answers, and only one."""
    return sum(answer in reply for answer in CONSTRAINED) == 1


def has_two_responses(reply: str) -> bool:
    """Two different responses with six asterisks between them; more may stand before the first and after the second."""
    parts = _without_empty_ends(re.split(r"(?<!\*)\*{6}(?!\*)", reply))
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


def repeats_prompt(reply: str, prompt_to_repeat: str) -> bool:
    """The reply begins with the request, word for word."""
    return reply.strip().casefold().startswith(prompt_to_repeat.strip().casefold())


def ends_with(reply: str, end_phrase: str) -> bool:
    """The last words, in any case; closing double quotes may follow."""
    return reply.strip().rstrip('"').rstrip().casefold().endswith(end_phrase.strip().casefold())


def is_quoted(reply: str) -> bool:
    return len(reply) > 2 and reply[0] == reply[-1] == '"' and bool(reply[1:-1].strip())


def has_no_comma(reply: str) -> bool:
    return "," not in unicodedata.normalize("NFKC", reply)


# Language and case


def is_in_language(reply: str, language: str) -> bool:
    return language_of(reply) == language


def is_english_capitals(reply: str) -> bool:
    return reply.isupper() and language_of(reply) == "en"


def is_english_lowercase(reply: str) -> bool:
    return reply.islower() and language_of(reply) == "en"


INSTRUCTIONS: Mapping[str, Instruction] = {
    "keywords:existence": Instruction(has_keywords, {"keywords": texts}),
    "keywords:frequency": Instruction(has_keyword_often, {"keyword": text, "frequency": count, "relation": relation}),
    "keywords:forbidden_words": Instruction(has_none_of, {"forbidden_words": texts}),
    "keywords:letter_frequency": Instruction(
        has_letter_often, {"letter": letter, "let_frequency": count, "let_relation": relation}
    ),
    "language:response_language": Instruction(is_in_language, {"language": language}),
    "length_constraints:number_sentences": Instruction(has_sentences, {"num_sentences": count, "relation": relation}),
    "length_constraints:number_paragraphs": Instruction(has_paragraphs, {"num_paragraphs": place}),
    "length_constraints:number_words": Instruction(has_words, {"num_words": count, "relation": relation}),
    "length_constraints:nth_paragraph_first_word": Instruction(
        has_paragraph_beginning, {"num_paragraphs": place, "nth_paragraph": place, "first_word": text}
    ),
    "detectable_content:number_placeholders": Instruction(has_placeholders, {"num_placeholders": count}),
    "detectable_content:postscript": Instruction(has_postscript, {"postscript_marker": text}),
    "detectable_format:number_bullet_lists": Instruction(has_bullets, {"num_bullets": count}),
    "detectable_format:constrained_response": Instruction(is_constrained),
    "detectable_format:number_highlighted_sections": Instruction(has_highlights, {"num_highlights": count}),
    "detectable_format:multiple_sections": Instruction(has_sections, {"section_spliter": text, "num_sections": count}),
    "detectable_format:json_format": Instruction(is_json),
    "detectable_format:title": Instruction(has_title),
    "combination:two_responses": Instruction(has_two_responses),
    "combination:repeat_prompt": Instruction(repeats_prompt, {"prompt_to_repeat": text}),
    "startend:end_checker": Instruction(ends_with, {"end_phrase": text}),
    "startend:quotation": Instruction(is_quoted),
    "change_case:capital_word_frequency": Instruction(
        has_capital_words, {"capital_frequency": count, "capital_relation": relation}
    ),
    "change_case:english_capital": Instruction(is_english_capitals),
    "change_case:english_lowercase": Instruction(is_english_lowercase),
    "punctuation:no_comma": Instruction(has_no_comma),
}
