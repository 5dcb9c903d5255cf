"""InstructionRubric: every instruction followed and just not followed, faults of rows, and checks of one's own."""

import asyncio
import json
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import verifiers as vf
from verifiers.rubrics.instruction_checks import INSTRUCTIONS, sentences_of
from verifiers.types import State

ENGLISH = "The river runs quietly through the old town and its gardens."
GERMAN = "Der Fluss fließt ruhig durch die alte Stadt und ihre schönen Gärten."
PROMPT = "Write a line about rivers."

# id, arguments, a reply that follows it, one that just does not
CASES = [
    ("keywords:existence", {"keywords": ["River", "boat"]}, "a boat on the river", "a boat on the lake"),
    ("keywords:frequency", {"keyword": "the", "frequency": 2, "relation": "at least"}, "The end of the day", "the end"),
    ("keywords:frequency", {"keyword": "the", "frequency": 2, "relation": "less than"}, "the end", "the the"),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "concatenate", "A Cat!"),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 2, "let_relation": "at least"}, "Q and q", "q"),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": "less than"}, "#", "##"),
    ("language:response_language", {"language": "de"}, GERMAN, ENGLISH),
    ("language:response_language", {"language": "kn"}, "ವೇಗದ ಕಂದು ನರಿ ಸೋಮಾರಿ ನಾಯಿಯ ಮೇಲೆ ಹಾರುತ್ತದೆ", ENGLISH),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3, "relation": "at least"},
        "One. Two! Three?",
        "1. Two.",
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        "It cost 3.5 m.",
        "A b. C d.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo", "one\n\ntwo"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***\none\n***\ntwo\n***", "one\n***\n***\ntwo"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one two three", "one, two..."),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "one two", "one two three"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "river"},
        "One.\n\n“River” two.",
        "One.\n\nRivers two.",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "one"},
        "one\n\ntwo",
        "one\n\ntwo\n\nthree",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] at [place]", "[name] at []"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP.S. Come soon.", "Bye.\nP.S."),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\n**P. S.** Come", "Bye. P.S. Come"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP.P.S. Come", "Bye.\nP.S. Come"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n- b\n* c"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "**so**\n---\n* a", "**a"),
    ("detectable_format:constrained_response", {}, "My answer is no.", "My answer is yes. My answer is no."),
    ("detectable_format:constrained_response", {}, "My answer is maybe.", "My answer is perhaps."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a b* and **c**", "*a* and ** **"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "* *a*", "* a\n* b"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
        "Section 1\na\nSection 1\nb",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', '{"a": [1]} so'),
    ("detectable_format:json_format", {}, "[1, 2]", "[NaN]"),
    ("detectable_format:json_format", {}, '{"a": "b"}', "5"),
    ("detectable_format:title", {}, "<<My day>>\nIt was", "<< >>\nIt was"),
    ("combination:two_responses", {}, "one\n******\ntwo", "one\n******\none"),
    ("combination:two_responses", {}, "one\n******\ntwo\n******", "one\n******\n"),
    ("combination:two_responses", {}, "one ****** two", "one\n******\ntwo\n******\nthree"),
    ("combination:repeat_prompt", {"prompt_to_repeat": PROMPT}, f"{PROMPT} The river.", "The river."),
    ("startend:end_checker", {"end_phrase": "Is that all?"}, 'So. "Is that ALL?"', "Is that all? Yes"),
    ("startend:quotation", {}, '"so it is"', '"so" it is'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "I SEE it",
        "So I",
    ),
    ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "less than"}, "so", "SO"),
    ("change_case:english_capital", {}, ENGLISH.upper(), ENGLISH),
    ("change_case:english_capital", {}, ENGLISH.upper(), GERMAN.upper()),
    ("change_case:english_lowercase", {}, ENGLISH.lower(), ENGLISH),
    ("punctuation:no_comma", {}, "no comma", "one, comma"),
]
NEEDS_LANGUAGE = ("language:response_language", "change_case:english_capital", "change_case:english_lowercase")


def scores_of(reply, names, arguments, rubric=None, **row):
    return run(rubric or vf.InstructionRubric(), reply, {"instruction_id_list": names, "kwargs": arguments}, row)


def run(rubric, reply, info, row):
    state = State(
        input={"prompt": "?", "answer": "", "info": info, **row},
        completion=[{"role": "assistant", "content": reply}],
        trajectory=[],
    )
    asyncio.run(rubric.score_rollout(state))
    return state["scores"]


def skip_without_language(name):
    if name in NEEDS_LANGUAGE:
        pytest.importorskip("py3langid")


@pytest.mark.parametrize(("name", "arguments", "follows", "breaks"), CASES)
def test_an_instruction_is_followed_to_the_letter_or_not_at_all(name, arguments, follows, breaks):
    skip_without_language(name)
    all_followed, share = scores_of(follows, [name], [arguments])
    assert (all_followed.value, share.value) == (1.0, 1.0)
    all_followed, share = scores_of(breaks, [name], [arguments])
    assert (all_followed.value, share.value) == (0.0, 0.0)
    assert name in all_followed.reason


def test_every_public_instruction_has_a_case():
    assert {case[0] for case in CASES} == set(INSTRUCTIONS)
    assert len(INSTRUCTIONS) == 25


def test_all_must_be_followed_and_the_share_is_a_metric():
    names = ["punctuation:no_comma", "startend:quotation", "detectable_format:title", "keywords:existence"]
    arguments = [{}, None, {}, {"keywords": ["day"]}]
    all_followed, share = scores_of('"<<My day>>"', names, arguments)
    assert (all_followed.value, share.value, share.weight) == (1.0, 1.0, 0.0)
    all_followed, share = scores_of("<<My day>>", names, arguments)
    assert (all_followed.value, share.value) == (0.0, 0.75)
    assert all_followed.reason == "not followed: startend:quotation"


@pytest.mark.parametrize("name", INSTRUCTIONS)
@pytest.mark.parametrize("reply", ["", "  \n", None, "<think>so", "<think>so</think>"])
def test_pattern_24_an_empty_reply_follows_nothing(name, reply):
    arguments = next(case[1] for case in CASES if case[0] == name)
    all_followed, share = scores_of(reply, [name], [arguments])
    assert (all_followed.value, share.value) == (0.0, 0.0)


def test_pattern_07_the_reasoning_is_no_part_of_the_reply():
    assert scores_of("<think>a, b</think>a b", ["punctuation:no_comma"], [{}])[0].value == 1.0
    assert scores_of("<think><<title>></think>a b", ["detectable_format:title"], [{}])[0].value == 0.0


@pytest.mark.parametrize(
    ("name", "arguments"), [(case[0], case[1]) for case in CASES if case[1]], ids=lambda value: str(value)[:40]
)
def test_a_missing_argument_is_a_fault_that_names_it(name, arguments):
    for lost in arguments:
        for given_ in ({**arguments, lost: None}, {k: v for k, v in arguments.items() if k != lost}):
            for score in scores_of("so it is", [name], [given_]):
                assert (score.value, score.status, score.side) == (None, "fault", "reward")
                assert name in score.reason and f"'{lost}'" in score.reason


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("keywords:frequency", {"keyword": "a", "frequency": 2, "relation": "more or less"}),
        ("keywords:frequency", {"keyword": "", "frequency": 2, "relation": "at least"}),
        ("keywords:existence", {"keywords": "river"}),
        ("keywords:existence", {"keywords": []}),
        ("length_constraints:number_words", {"num_words": "many", "relation": "at least"}),
        ("length_constraints:number_words", {"num_words": 2.5, "relation": "at least"}),
        ("length_constraints:number_words", {"num_words": True, "relation": "at least"}),
        ("language:response_language", {"language": "tlh"}),
        ("keywords:letter_frequency", {"letter": "ab", "let_frequency": 2, "let_relation": "at least"}),
    ],
)
def test_an_argument_that_makes_no_sense_is_a_fault(name, arguments):
    score = scores_of("so it is", [name], [arguments])[0]
    assert (score.value, score.status) == (None, "fault")
    assert name in score.reason


def test_an_unknown_instruction_is_a_fault_that_names_it():
    score = scores_of("so", ["punctuation:no_comma", "punctuation:no_dots"], [{}, {}])[0]
    assert (score.value, score.status) == (None, "fault")
    assert "'punctuation:no_dots'" in score.reason


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"instruction_id_list": [], "kwargs": []},
        {"instruction_id_list": "punctuation:no_comma", "kwargs": [{}]},
        {"instruction_id_list": ["punctuation:no_comma"], "kwargs": []},
        {"instruction_id_list": ["punctuation:no_comma"]},
        {"instruction_id_list": ["punctuation:no_comma"], "kwargs": ["no"]},
    ],
)
def test_a_row_without_instructions_is_a_fault(info):
    assert run(vf.InstructionRubric(), "so", info, {})[0].status == "fault"


def test_rows_in_the_public_shape_are_scored_as_they_are():
    rows = [
        {
            "key": 1000,
            "question": "Say hello without a comma in at least 2 words.",
            "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
            "kwargs": [{"num_words": None, "relation": None}, {"num_words": 2, "relation": "at least"}],
        }
    ]
    for made in (rows, [{**rows[0], "kwargs": json.dumps(rows[0]["kwargs"])}]):
        env = vf.SingleTurnEnv(dataset=made, rubric=vf.InstructionRubric())
        assert env.evaluate_sync(vf.ScriptedClient("hello you"), model="scripted")["reward"] == [1.0]
        assert env.evaluate_sync(vf.ScriptedClient("hello"), model="scripted")["reward"] == [0.0]


def test_pattern_04_fifty_copies_of_a_section_are_one_section():
    arguments = {"section_spliter": "Section", "num_sections": 2}
    for copies in (1, 50):
        assert scores_of("Section 1\n" * copies, ["detectable_format:multiple_sections"], [arguments])[0].value == 0.0


def test_pattern_28_giving_every_constrained_answer_is_no_answer():
    hedge = "My answer is yes. My answer is no. My answer is maybe."
    assert scores_of(hedge, ["detectable_format:constrained_response"], [{}])[0].value == 0.0


def test_a_check_of_ones_own_is_added_by_name():
    rubric = vf.InstructionRubric()
    rubric.add_instruction("shop:mentions", lambda reply, brand, times=1: reply.count(brand) >= times)
    assert scores_of("Acme!", ["shop:mentions"], [{"brand": "Acme"}], rubric)[0].value == 1.0
    assert scores_of("Acme!", ["shop:mentions"], [{"brand": "Acme", "times": 2}], rubric)[0].value == 0.0
    score = scores_of("Acme!", ["shop:mentions"], [{"times": 2}], rubric)[0]
    assert score.status == "fault" and "'brand'" in score.reason
    with pytest.raises(ValueError, match="already"):
        rubric.add_instruction("punctuation:no_comma", lambda reply: True)
    assert "shop:mentions" not in vf.InstructionRubric().instructions


def test_pattern_40_a_check_that_returns_no_truth_value_is_a_fault():
    rubric = vf.InstructionRubric()
    rubric.add_instruction("mine:odd", lambda reply: "False")
    score = scores_of("so", ["mine:odd"], [{}], rubric)[0]
    assert (score.value, score.status) == (None, "fault") and "mine:odd" in score.reason


def test_the_language_of_a_reply_is_the_same_every_time():
    pytest.importorskip("py3langid")
    from verifiers.rubrics.language import language_of

    for text, code in ((ENGLISH, "en"), (GERMAN, "de"), ("12 34 %", None), ("", None)):
        assert {language_of(text) for _ in range(5)} == {code}


def test_without_the_language_package_the_score_is_a_fault_that_says_what_to_install():
    program = f"""
import sys
sys.modules["py3langid"] = None
import asyncio
import verifiers as vf
rubric = vf.InstructionRubric()
info = {{"instruction_id_list": ["language:response_language"], "kwargs": [{{"language": "en"}}]}}
state = vf.State(input={{"prompt": "?", "info": info}}, completion={ENGLISH!r}, trajectory=[])
asyncio.run(rubric.score_rollout(state))
print(state["reward"], state["scores"][0].status, state["scores"][0].reason)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("None fault") and "verifiers[language]" in done.stdout


def test_sentences_do_not_end_at_abbreviations_numbers_or_initials():
    for sentence in (
        "Dr. Smith paid 3.5 million, e.g. to J. R. Hartley.",
        "He said “no.”",
        "Wait... what?!",
        "これは文です。",
    ):
        assert [part.strip() for part in sentences_of(f"{sentence} So it is.")][-1] == "So it is."
    assert len(sentences_of("Dr. Smith paid 3.5 million, e.g. to J. R. Hartley. So it is.")) == 2
    assert len(sentences_of("1. First thing.\n2. Second thing.")) == 2
    assert len(sentences_of("A heading\n\nA sentence.")) == 2


@given(st.text(max_size=200))
def test_no_reply_breaks_a_check(reply):
    for name, arguments, _, _ in CASES:
        if name not in NEEDS_LANGUAGE:
            assert scores_of(reply, [name], [arguments])[0].status == "scored"


STALLING = [
    "[" * 100_000,
    "*" * 100_000,
    "<<" * 50_000,
    "<<" + "a " * 50_000,
    "a." * 50_000,
    "\n \n" * 30_000,
    "[" * 9_000 + "]" * 9_000,
    "P." * 50_000,
    "* " * 50_000,
    "  " * 50_000 + "x",
    "Section 1" * 10_000,
]


@pytest.mark.parametrize("reply", STALLING, ids=lambda reply: repr(reply[:6]))
def test_long_replies_made_to_stall_are_checked_at_once(reply):
    for name, arguments, _, _ in CASES:
        if name not in NEEDS_LANGUAGE:
            began = time.process_time()
            INSTRUCTIONS[name].check(reply, **INSTRUCTIONS[name].read(name, arguments))
            assert time.process_time() - began < 0.5, name
