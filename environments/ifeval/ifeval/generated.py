"""`generated_rows`: training prompts in the public schema, made of topics and instructions that go together.

A row is kept only when `writer.write` finds a reply that follows it, so that none is impossible, and when neither its
own prompt nor a word of nothing follows it, so that none is free.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import verifiers as vf
from ifeval.writer import write

Asked = tuple[str, dict[str, Any], str]  # id, arguments, how the prompt says it
SOURCE = "generated"

FORMS = (
    "Write a short letter about", "Explain to a child", "Write an advertisement for", "Draft a speech about",
    "Tell a story about", "Give advice on", "Write a blog post about", "Compose a notice about",
    "Write a review of", "Describe", "Write a dialogue about", "Make a case against",
)  # fmt: skip
TOPICS = (
    "a night bus", "keeping bees", "a borrowed ladder", "the first snow", "a broken lift", "learning to swim",
    "an empty theatre", "growing tomatoes", "a lost umbrella", "moving house", "a village bakery", "the last ferry",
    "repairing a bicycle", "an early train", "a birthday without cake", "working from a boat", "an old piano",
    "sleeping in a tent", "a quiet street", "making soup", "a museum of keys", "walking a neighbour's dog",
    "a power cut", "picking apples", "a chess club", "an overdue book", "painting a fence", "a foggy harbour",
    "visiting a lighthouse", "a noisy fridge", "planting a tree", "a long queue", "a hidden courtyard",
    "baking without sugar", "an allotment", "the smell of rain", "a left-handed guitar", "crossing a desert",
)  # fmt: skip
WORDS = (
    "lantern", "copper", "harvest", "velvet", "pebble", "whistle", "orchard", "marble", "feather", "anchor",
    "thimble", "meadow", "candle", "puzzle", "saddle", "timber",
)  # fmt: skip
ENDINGS = ("Is there anything else I can help with?", "That is all for today.", "Ask me again tomorrow.")
LANGUAGES = {"de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese"}


def generated_rows(count: int, seed: int, max_instructions: int) -> list[dict[str, Any]]:
    """`count` rows of 1 to `max_instructions` instructions each; the same seed begins with the same rows."""
    rng = random.Random(f"ifeval/{seed}")
    made = itertools.count()
    return [row for row, _ in zip(_rows(rng, made, max_instructions), range(count), strict=False)]


def _rows(rng: random.Random, made: Iterator[int], max_instructions: int) -> Iterator[dict[str, Any]]:
    rubric = vf.InstructionRubric()
    while True:
        asked = _asked(rng, rng.randint(1, max_instructions))
        prompt = " ".join([f"{rng.choice(FORMS)} {rng.choice(TOPICS)}.", *(said for _, _, said in asked)])
        given = {name: arguments for name, arguments, _ in asked}
        if _is_fair(rubric, prompt, given):
            yield {
                "key": next(made),
                "prompt": prompt,
                "instruction_id_list": list(given),
                "kwargs": list(given.values()),
                "source": SOURCE,
            }


def _is_fair(rubric: vf.InstructionRubric, prompt: str, given: Mapping[str, Any]) -> bool:
    """Whether a reply can follow it, and neither the prompt sent back nor one that says nothing does."""
    info = {"instruction_id_list": list(given), "kwargs": list(given.values())}

    def follows(reply: str) -> bool:
        return bool(rubric.follows_all(rubric.parser, reply, {}, info))

    return follows(write(given)) and not any(map(follows, (prompt, "I don't know.", "the " * 1000)))


def _asked(rng: random.Random, count: int) -> list[Asked]:
    """Of one group at most one: they contradict each other or ask for the same."""
    groups = rng.sample(GROUPS, count)
    return [rng.choice(group)(rng) for group in groups]


def _keywords(rng: random.Random) -> Asked:
    words = rng.sample(WORDS, rng.randint(1, 3))
    return "keywords:existence", {"keywords": words}, f"Use the words {', '.join(words)}."


def _frequency(rng: random.Random) -> Asked:
    word, times = rng.choice(WORDS), rng.randint(2, 5)
    arguments = {"keyword": word, "frequency": times, "relation": "at least"}
    return "keywords:frequency", arguments, f"The word {word} has to occur at least {times} times."


def _forbidden(rng: random.Random) -> Asked:
    words = rng.sample(WORDS, 2)
    return "keywords:forbidden_words", {"forbidden_words": words}, f"Avoid the words {' and '.join(words)}."


def _letters(rng: random.Random) -> Asked:
    letter, times = rng.choice("bfgkvwxyz"), rng.randint(5, 15)
    arguments = {"letter": letter, "let_frequency": times, "let_relation": "at least"}
    return "keywords:letter_frequency", arguments, f"The letter {letter} has to occur at least {times} times."


def _language(rng: random.Random) -> Asked:
    code = rng.choice(sorted(LANGUAGES))
    return "language:response_language", {"language": code}, f"Reply in {LANGUAGES[code]} and in no other language."


def _sentences(rng: random.Random) -> Asked:
    number, relation = (rng.randint(3, 12), "at least") if rng.random() < 0.5 else (rng.randint(5, 9), "less than")
    said = f"Write {relation} {number} sentences."
    return "length_constraints:number_sentences", {"num_sentences": number, "relation": relation}, said


def _words(rng: random.Random) -> Asked:
    number, relation = (rng.randint(4, 20) * 10, rng.choice(["at least", "less than"]))
    return "length_constraints:number_words", {"num_words": number, "relation": relation}, (
        f"The reply has to have {relation} {number} words."
    )  # fmt: skip


def _paragraphs(rng: random.Random) -> Asked:
    number = rng.randint(2, 5)
    said = f"Write exactly {number} paragraphs and put the divider of three asterisks, ***, between them."
    return "length_constraints:number_paragraphs", {"num_paragraphs": number}, said


def _nth_paragraph(rng: random.Random) -> Asked:
    number, word = rng.randint(2, 4), rng.choice(WORDS)
    place = rng.randint(1, number)
    arguments = {"num_paragraphs": number, "nth_paragraph": place, "first_word": word}
    said = f"Write {number} paragraphs with an empty line between them. Paragraph {place} starts with the word {word}."
    return "length_constraints:nth_paragraph_first_word", arguments, said


def _placeholders(rng: random.Random) -> Asked:
    number = rng.randint(1, 5)
    said = f"Leave at least {number} placeholders in square brackets, such as one for a name."
    return "detectable_content:number_placeholders", {"num_placeholders": number}, said


def _postscript(rng: random.Random) -> Asked:
    marker = rng.choice(["P.S.", "P.P.S"])
    return "detectable_content:postscript", {"postscript_marker": marker}, f"End with a postscript after {marker}"


def _bullets(rng: random.Random) -> Asked:
    number = rng.randint(2, 6)
    said = f"Make exactly {number} bullet points, each on a line of its own after an asterisk and a space."
    return "detectable_format:number_bullet_lists", {"num_bullets": number}, said


def _highlights(rng: random.Random) -> Asked:
    number = rng.randint(1, 4)
    said = f"Highlight at least {number} parts by an asterisk before and after."
    return "detectable_format:number_highlighted_sections", {"num_highlights": number}, said


def _sections(rng: random.Random) -> Asked:
    number, name = rng.randint(2, 5), rng.choice(["Section", "Chapter", "Day"])
    arguments = {"section_spliter": name, "num_sections": number}
    said = f"Divide it into {number} parts, each under the word {name} and its number."
    return "detectable_format:multiple_sections", arguments, said


def _capitals(rng: random.Random) -> Asked:
    number = rng.randint(2, 6)
    arguments = {"capital_frequency": number, "capital_relation": "at least"}
    return "change_case:capital_word_frequency", arguments, f"Put at least {number} words into capital letters."


def _end(rng: random.Random) -> Asked:
    phrase = rng.choice(ENDINGS)
    return "startend:end_checker", {"end_phrase": phrase}, f'The last words of the reply have to be "{phrase}"'


def _plain(name: str, said: str) -> Callable[[random.Random], Asked]:
    return lambda rng: (name, {}, said)


GROUPS: tuple[tuple[Callable[[random.Random], Asked], ...], ...] = (
    (_keywords, _frequency, _letters),
    (_forbidden, _plain("punctuation:no_comma", "Use no comma.")),
    (_sentences, _words),
    (
        _paragraphs, _nth_paragraph, _bullets, _sections,
        _plain("detectable_format:json_format", "The whole reply has to be JSON."),
        _plain("combination:two_responses", "Give two different replies with six asterisks, ******, between them."),
    ),
    (_placeholders, _highlights, _plain("detectable_format:title", "Add a title inside double angle brackets.")),
    (_postscript, _end, _plain("startend:quotation", "Put the whole reply inside double quotation marks.")),
    (
        _language, _capitals,
        _plain("change_case:english_capital", "Write in English and in capital letters only."),
        _plain("change_case:english_lowercase", "Write in English and in small letters only."),
    ),
)  # fmt: skip
