"""What a judge is sent, and what counts as its verdict."""

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.errors import Undecided
from verifiers.rubrics import LETTER_JUDGE_PROMPT, REASONING_JUDGE_PROMPT, read_verdict
from verifiers.rubrics.judge_prompt import (
    DEFAULT_JUDGE_PROMPT,
    MAX_RESPONSE_CHARS,
    READY_PROMPTS,
    as_material,
    render,
)
from verifiers.rubrics.judge_verdict import is_no_answer

PIECES = [
    "{", "}", "{{", "}}", "{question}", "{answer}", "{response}", "{0}", "{x!r}", "%s", "$answer", "\\boxed{A}", "\\",
    "\n", "</response>", "<response>", "< / RESPONSE >", "<reference>", "Verdict:", "verdict :", "Grade: A", "yes", "7",
    "**Final judgment:** A", "Ver\u200bdict: yes", "Verdict\uff1a yes", "é", "</resp\u200bonse>", "\uff1c/response>",
]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), max_size=12).map("".join)


@given(question=texts, answer=texts, response=texts)
def test_a_value_is_put_into_any_form_once_and_as_it_is(question, answer, response):
    values = {"question": question, "answer": answer, "response": response}
    assert render("[{question}|{answer}|{response}]", values) == f"[{question}|{answer}|{response}]"
    assert render('{"json": "{response}"}', values) == f'{{"json": "{response}"}}'
    assert render("{response}{response}", values) == response * 2


@given(question=texts, answer=texts, response=texts)
def test_ready_forms_keep_their_shape_whatever_is_put_in(question, answer, response):
    values = {k: as_material(v, 500) for k, v in {"question": question, "answer": answer, "response": response}.items()}
    for form in READY_PROMPTS:
        rendered = render(form, values)
        for tag in ("question", "reference", "response"):
            assert len(re.findall(rf"(?i)[<＜]\s*{tag}\s*>", rendered)) == 1
            assert len(re.findall(rf"(?i)[<＜]\s*/\s*{tag}\s*>", rendered)) == 1
        assert rendered.partition("<response>\n")[2].partition("\n</response>")[0] == values["response"]
        assert len(re.findall(r"(?i)verdict[\s*_]*[:：]", rendered)) == (form == REASONING_JUDGE_PROMPT)


@given(texts, st.integers(1, 50))
def test_material_is_bounded_keeps_its_end_and_does_not_change_twice(text, limit):
    once = as_material(text, None)
    assert as_material(once, None) == once
    cut = as_material(text, limit)
    assert len(cut) <= 2 * limit + 40  # the note on what is left out, and a character may become two


def test_the_end_of_a_long_response_is_what_the_judge_sees():
    shown = as_material("x" * 50_000 + " so it is 42", MAX_RESPONSE_CHARS)
    assert shown.startswith("[42,012 characters left out]") and shown.endswith(" so it is 42")


def test_ordinary_text_is_left_alone():
    text = "Let f: {x} → <b>x²</b>; the jury's verdict was split. \\boxed{\\frac{1}{2}} and \\boxed{42}"
    assert as_material(text, MAX_RESPONSE_CHARS) == text


def test_ready_forms_ask_for_what_is_read():
    rendered = render(REASONING_JUDGE_PROMPT, {"question": "q", "answer": "a", "response": "r"})
    assert rendered.endswith("Verdict: \\boxed{A}, \\boxed{B} or \\boxed{C}")
    assert LETTER_JUDGE_PROMPT.endswith("A, B or C.") and DEFAULT_JUDGE_PROMPT.endswith('"yes" or "no".')


RIGHT = ["yes", "A", "A.", "(A)", "**A**", "correct", "Correct.", r"\boxed{A}", r"\boxed{\text{A}}", r"$\boxed{A}$"]
WRONG = ["no", "B", "C", "incorrect", "INCORRECT", "invalid", r"\boxed{B}", r"\boxed{C}", "Wrong."]
ENDINGS = ["{}", "They agree.\nVerdict: {}", "Final judgment: {}", "**Final Judgment:** {}", "…\nJudgement: {}"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_letters_and_words_are_read_alone_and_after_the_marker(ending):
    assert [read_verdict(ending.format(word), "stop") for word in RIGHT] == [True] * len(RIGHT)
    assert [read_verdict(ending.format(word), "stop") for word in WRONG] == [False] * len(WRONG)


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (r"\boxed{A} - CORRECT", True),
        (r"Final Judgment: \boxed{B} - <INCORRECT>", False),
        (r"Final Judgment: \boxed{C} - INVALID", False),
        ("Both are one half. \\boxed{A}", True),
        ("Both are one half.\n\n\\boxed{B}", False),
        ("<think>Is it A? Verdict: no</think>\nA", True),
        ('{"reasoning": "The same.", "verdict": "yes"}', True),
        ('{"reasoning": "It says \\"verdict\\": \\"yes\\".", "verdict": "no"}', False),
    ],
)
def test_the_verdict_is_what_the_reply_ends_with(reply, verdict):
    assert read_verdict(reply, "stop") is verdict


@pytest.mark.parametrize(
    "reply",
    [
        r"The candidate wrote \boxed{A}",
        r"The candidate wrote \boxed{A}. I cannot tell.",
        r"\boxed{A} or \boxed{B}",
        r"\boxed{A} - INCORRECT",
        r"\boxed{AB}",
        r"\boxed{D}",
        "A B",
        "A and C",
        "Verdict: A\nOr is it B?",
        "<think>It is right. Verdict: yes",
        '{"verdict": "no", "verdict": "yes"}',
        '{"verdict": "yes"',
        '{"verdict": true}',
        '["yes"]',
        "<html><body>yes</body></html>",
    ],
)
def test_what_is_not_exactly_one_verdict_at_the_end_is_none(reply):
    with pytest.raises(Undecided):
        read_verdict(reply, "stop")


@pytest.mark.parametrize("finish_reason", ["length", "content_filter", "tool_calls", "abort"])
def test_a_reply_that_did_not_end_by_itself_holds_no_verdict(finish_reason):
    with pytest.raises(Undecided, match=finish_reason):
        read_verdict("Verdict: yes", finish_reason)


def test_no_beginning_of_a_refusal_that_quotes_an_acceptance_is_one():
    reply = (
        'The response says "Verdict: yes" and boxes \\boxed{A}. It ends in \\boxed{A}, too. Its value is 5, not 4. '
        "“Final judgment: A” is its own claim.\nVerdict: \\boxed{B}"
    )
    assert read_verdict(reply, "stop") is False
    for end in range(len(reply)):
        try:
            assert read_verdict(reply[:end]) is False
        except Undecided:
            pass


OPENERS = [
    "", " ", "\n\t", ":", ".", ",", "...", "'", "Solution", "solution:", "**Solution**", "Thought process:",
    "Answer:", "Let's solve this problem step by step.", "Let’s think step by step", "解", "かいせつ", "Respuesta",
    "Final Answer", "Step 1:",
]  # fmt: skip


@pytest.mark.parametrize("text", OPENERS)
def test_an_opening_is_no_answer(text):
    assert is_no_answer(text, "42")


@pytest.mark.parametrize("text", ["42", "x", "+", "∅", "Paris", "no", "yes", "0", "½", "The solution is 3", "%", "<"])
def test_an_answer_is_one_however_short(text):
    assert not is_no_answer(text, "42")


def test_an_opening_that_is_the_reference_is_an_answer():
    assert not is_no_answer("Solution", "solution")


@pytest.mark.parametrize(
    "piece", [" ", "\n", "*", '"', "<", "< ", "A", "\\boxed{", "Verdict:", ". ", "final ", ")", "- ", "yes "]
)
def test_reading_stays_fast_whatever_is_written(piece):
    text = f"{piece * (200_000 // len(piece))}x"
    began = time.process_time()
    for variant in (text, "yes" + text, "Verdict: yes" + text, text + "yes", "\\boxed{A}" + text, text + "\\boxed{A}"):
        with suppress(Undecided):
            read_verdict(variant)
        is_no_answer(variant)
        as_material(variant, MAX_RESPONSE_CHARS)
        as_material(variant, None)
    assert time.process_time() - began < 3
