"""Rows of exactly the public schema, written for this project: for places without a network.

Each has at least one instruction that neither a random text nor the prompt itself follows.
"""

from __future__ import annotations

from typing import Any

# of all instructions; the public rows have each of them, `None` where it does not belong
_ARGUMENTS = (
    "num_highlights relation num_words num_placeholders prompt_to_repeat num_bullets section_spliter num_sections "
    "capital_relation capital_frequency keywords num_paragraphs language let_relation letter let_frequency end_phrase "
    "forbidden_words keyword frequency num_sentences postscript_marker first_word nth_paragraph"
)


def _row(key: int, prompt: str, *asked: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "key": key,
        "prompt": prompt,
        "instruction_id_list": [name for name, _ in asked],
        "kwargs": [dict.fromkeys(_ARGUMENTS.split()) | given for _, given in asked],
    }


_PARROT = "Describe a day in the life of a lighthouse keeper's parrot."

OWN_ROWS: tuple[dict[str, Any], ...] = (
    _row(
        9001,
        "Recommend a weekend walk in the hills. Give the text a title in double angle brackets, mention the words "
        "'bridge' and 'picnic', and use no comma anywhere.",
        ("detectable_format:title", {}),
        ("keywords:existence", {"keywords": ["bridge", "picnic"]}),
        ("punctuation:no_comma", {}),
    ),
    _row(
        9002,
        "Explain to a child why bread rises. Answer with exactly 4 bullet points, each on a line that starts with an "
        "asterisk, and with fewer than 120 words in all.",
        ("detectable_format:number_bullet_lists", {"num_bullets": 4}),
        ("length_constraints:number_words", {"num_words": 120, "relation": "less than"}),
    ),
    _row(
        9003,
        "Write a short note to a neighbour about a noisy dog. After it add a postscript that starts with P.S., and "
        "leave at least 2 placeholders in square brackets for names to be filled in.",
        ("detectable_content:postscript", {"postscript_marker": "P.S."}),
        ("detectable_content:number_placeholders", {"num_placeholders": 2}),
    ),
    _row(
        9004,
        "List three uses of an old bicycle tyre. The whole output has to be JSON.",
        ("detectable_format:json_format", {}),
    ),
    _row(
        9005,
        "Erzähle kurz von einem Fluss. Write the reply in German only, and wrap all of it in double quotation marks.",
        ("language:response_language", {"language": "de"}),
        ("startend:quotation", {}),
    ),
    _row(
        9006,
        "Tell a joke about a slow elevator in two different ways. Put 6 asterisks (******) between the two versions "
        "and nothing else between them; the word 'stairs' may not occur.",
        ("combination:two_responses", {}),
        ("keywords:forbidden_words", {"forbidden_words": ["stairs"]}),
    ),
    _row(
        9007,
        "Is it wise to paint a cellar red? Answer with one of 'My answer is yes.', 'My answer is no.' and 'My answer "
        "is maybe.'",
        ("detectable_format:constrained_response", {}),
    ),
    _row(
        9008,
        "Draft a speech for the opening of a skating rink. Divide it into at least 3 sections, marked Part 1, Part 2 "
        "and so on, and end with the exact words Now lace up your boots.",
        ("detectable_format:multiple_sections", {"section_spliter": "Part", "num_sections": 3}),
        ("startend:end_checker", {"end_phrase": "Now lace up your boots."}),
    ),
    _row(
        9009,
        "Compare tea and coffee in exactly 3 paragraphs with the divider *** between them, the word 'cup' at least "
        "3 times.",
        ("length_constraints:number_paragraphs", {"num_paragraphs": 3}),
        ("keywords:frequency", {"keyword": "cup", "frequency": 3, "relation": "at least"}),
    ),
    _row(
        9010,
        "Praise a library in 2 paragraphs with an empty line between them; the second paragraph has to start with the "
        "word silence. Write at least 4 sentences.",
        (
            "length_constraints:nth_paragraph_first_word",
            {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "silence"},
        ),
        ("length_constraints:number_sentences", {"num_sentences": 4, "relation": "at least"}),
    ),
    _row(
        9011,
        f"{_PARROT} First repeat the request above word for word, then answer. Highlight at least 2 parts of the "
        "answer with asterisks, like *this*, and give it a title in double angle brackets.",
        ("combination:repeat_prompt", {"prompt_to_repeat": _PARROT}),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 2}),
        ("detectable_format:title", {}),
    ),
    _row(
        9012,
        "Announce a flea market, in English and in capital letters only, with a title in double angle brackets.",
        ("change_case:english_capital", {}),
        ("detectable_format:title", {}),
    ),
    _row(
        9013,
        "Write a lullaby for a train driver, in English and without one capital letter. Leave one placeholder in "
        "square brackets for the driver's name.",
        ("change_case:english_lowercase", {}),
        ("detectable_content:number_placeholders", {"num_placeholders": 1}),
    ),
    _row(
        9014,
        "Warn of thin ice. At least 3 words have to stand in capital letters, the letter z has to occur at least "
        "4 times, and the whole warning stands in double quotation marks.",
        ("change_case:capital_word_frequency", {"capital_frequency": 3, "capital_relation": "at least"}),
        ("keywords:letter_frequency", {"letter": "z", "let_frequency": 4, "let_relation": "at least"}),
        ("startend:quotation", {}),
    ),
)
