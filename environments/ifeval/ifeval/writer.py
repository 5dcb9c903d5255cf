"""`write`: a reply that follows instructions, made from their arguments alone. It says nothing of the topic."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

Given = Mapping[str, Mapping[str, Any]]  # instruction id → arguments

# No commas, no capitals but the first, and few of the rare letters: what an instruction forbids is easily left out.
SENTENCES = (
    "The river runs quietly through the old town.",
    "A small boat lies at the landing all winter.",
    "People walk along the bank in the evening.",
    "The water is cold and clear in spring.",
    "Some children throw stones from the bridge.",
    "An old man sells bread near the mill.",
    "Birds rest on the roof of the station.",
    "The road to the hill is long and steep.",
    "There is snow on the fields until march.",
    "Nobody remembers who built the tower.",
    "The market opens when the sun is up.",
    "We came here by train a year ago.",
)
IN_LANGUAGE = {
    "en": SENTENCES[0],
    "de": "Der Fluss fließt ruhig durch die alte Stadt und die Leute gehen am Ufer spazieren.",
    "fr": "La rivière coule doucement à travers la vieille ville et les gens se promènent sur la rive.",
    "es": "El río corre tranquilo por la ciudad vieja y la gente pasea por la orilla.",
    "it": "Il fiume scorre tranquillo attraverso la città vecchia e la gente passeggia lungo la riva.",
    "pt": "O rio corre tranquilo pela cidade velha e as pessoas passeiam pela margem.",
}


def write(given: Given) -> str:
    """Follows every instruction where it can; where two contradict each other, it follows what comes last here."""
    text = _shaped(given)
    if marker := _argument(given, "detectable_content:postscript", "postscript_marker"):
        text += f"\n\n{marker} Come soon."
    if phrase := _argument(given, "startend:end_checker", "end_phrase"):
        text += f"\n{phrase}"
    if request := _argument(given, "combination:repeat_prompt", "prompt_to_repeat"):
        text = f"{request}\n\n{text}"
    if "change_case:english_capital" in given:
        text = text.upper()
    if "change_case:english_lowercase" in given:
        text = text.lower()
    return f'"{text}"' if "startend:quotation" in given else text


def _shaped(given: Given) -> str:
    """The body in the one shape that is asked for."""
    if "detectable_format:json_format" in given:
        return json.dumps({"reply": " ".join([*_marks(given), _body(given)])})
    if "detectable_format:constrained_response" in given:
        return "My answer is maybe."
    marks = _marks(given)
    text = "\n".join([*marks, _body(given)])
    if count := _argument(given, "detectable_format:number_bullet_lists", "num_bullets"):
        text += "".join(f"\n* the {place} point" for place in _places(count))
    if name := _argument(given, "detectable_format:multiple_sections", "section_spliter"):
        sections = range(1, given["detectable_format:multiple_sections"]["num_sections"] + 1)
        text += "".join(f"\n\n{name} {number}\nThe water is cold." for number in sections)
    if count := _argument(given, "length_constraints:number_paragraphs", "num_paragraphs"):
        return "\n\n***\n\n".join([text, *itertools.islice(itertools.cycle(SENTENCES), count - 1)])
    if "length_constraints:nth_paragraph_first_word" in given:
        asked = given["length_constraints:nth_paragraph_first_word"]
        parts = [text, *itertools.islice(itertools.cycle(SENTENCES), asked["num_paragraphs"] - 1)]
        parts[asked["nth_paragraph"] - 1] = f"{asked['first_word']} {parts[asked['nth_paragraph'] - 1]}"
        return "\n\n".join(parts)
    if "combination:two_responses" in given:
        return f"{text}\n******\n{text} {SENTENCES[-1]}"
    return text


def _marks(given: Given) -> list[str]:
    """Lines that stand before the body."""
    marks = ["<<By the river>>"] if "detectable_format:title" in given else []
    if count := _argument(given, "detectable_format:number_highlighted_sections", "num_highlights"):
        marks.append(" ".join(f"*part {place}*" for place in _places(count)))
    if count := _argument(given, "detectable_content:number_placeholders", "num_placeholders"):
        marks.append(" ".join(f"[place {place}]" for place in _places(count)))
    return marks


def _body(given: Given) -> str:
    """Sentences with the words and letters that are asked for."""
    sentences = [IN_LANGUAGE.get(_argument(given, "language:response_language", "language") or "en", SENTENCES[0])]
    if words := _argument(given, "keywords:existence", "keywords"):
        sentences.append(f"{' and '.join(words)} belong together.")
    if word := _at_least(given, "keywords:frequency", "frequency", "relation"):
        sentences.append(f"{' and '.join([given['keywords:frequency']['keyword']] * word)}.")
    if letters := _at_least(given, "keywords:letter_frequency", "let_frequency", "let_relation"):
        sentences.append(f"{' '.join([given['keywords:letter_frequency']['letter']] * letters)}.")
    if capitals := _at_least(given, "change_case:capital_word_frequency", "capital_frequency", "capital_relation"):
        sentences.append(f"{' '.join(['SEE'] * capitals)}.")
    more = itertools.cycle(SENTENCES)
    while len(sentences) < _at_least(given, "length_constraints:number_sentences", "num_sentences", "relation"):
        sentences.append(next(more))
    while len(" ".join(sentences).split()) < _at_least(
        given, "length_constraints:number_words", "num_words", "relation"
    ):
        added = next(more)
        sentences[-1] = f"{sentences[-1].rstrip('.')} and {added[:1].lower()}{added[1:]}"
    return " ".join(sentences)


def _argument(given: Given, name: str, argument: str) -> Any:
    return given[name][argument] if name in given else None


def _at_least(given: Given, name: str, count: str, relation: str) -> int:
    """How often at least; 0 where nothing of the kind, or only a limit, is asked for."""
    asked = given.get(name)
    return int(asked[count]) if asked and asked[relation] == "at least" else 0


def _places(count: int) -> list[str]:
    names = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
    return [names[n] if n < len(names) else f"{n + 1}th" for n in range(count)]
