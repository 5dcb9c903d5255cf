"""Rewards that compare texts and numbers: values known from elsewhere, laws, and bounds on what they cost."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import verifiers as vf
from verifiers.rubrics.similarity import common_subsequence, edit_distance, read_number
from verifiers.types import State

ALL = [vf.exact_match, vf.token_f1, vf.rouge_l, vf.edit_similarity, vf.numeric_match, vf.numeric_closeness]
TEXTS = ALL[:4]


async def score(func, completion, answer, parser=None):
    state = State(
        input={"prompt": "?", "answer": answer},
        completion=[{"role": "assistant", "content": completion}],
        trajectory=[],
    )
    await vf.Rubric(funcs=[func], parser=parser).score_rollout(state)
    return state["scores"][0]


KNOWN = [
    (vf.exact_match, "Paris", "paris", 1.0),
    (vf.exact_match, " New\n York", "new york", 1.0),
    (vf.exact_match, "ｆｕｌｌ", "full", 1.0),
    (vf.exact_match, "the answer is Paris", "Paris", 0.0),
    (vf.exact_match, "-5", "5", 0.0),
    (vf.exact_match, "5.", "5", 0.0),
    (vf.exact_match, "4", 4, 1.0),
    (vf.token_f1, "The Paris!", "paris", 1.0),
    (vf.token_f1, "Paris Paris Paris", "Paris", 0.5),
    (vf.token_f1, "Rome", "Paris", 0.0),
    (vf.rouge_l, "police kill the gunman", "police killed the gunman", 0.75),
    (vf.rouge_l, "gunman the kill police", "police killed the gunman", 0.25),
    (vf.edit_similarity, "kitten", "sitting", 1 - 3 / 7),
    (vf.edit_similarity, "same", "same", 1.0),
    (vf.edit_similarity, "abc", "xyz", 0.0),
    (vf.numeric_match, "1,234.50", "1234.5", 1.0),
    (vf.numeric_match, "0.333333333", "1/3", 1.0),
    (vf.numeric_match, "0.33", "1/3", 0.0),
    (vf.numeric_match, "12%", "0.12", 1.0),
    (vf.numeric_match, "6e-3", 0.006, 1.0),
    (vf.numeric_match, "−7", "-7", 1.0),
    (vf.numeric_match, "0", "0", 1.0),
    (vf.numeric_match, "1e-300", "0", 0.0),
    (vf.numeric_match, "3 or 4", "3", 0.0),
    (vf.numeric_match, "1e9999", "3", 0.0),
    (vf.numeric_match, "nan", "3", 0.0),
    (vf.numeric_match, "inf", "3", 0.0),
    (vf.numeric_match, "1/0", "3", 0.0),
    (vf.numeric_closeness, "90", "100", 0.9),
    (vf.numeric_closeness, "300", "100", 0.0),
    (vf.numeric_closeness, "-100", "100", 0.0),
]


@pytest.mark.parametrize(("func", "found", "gold", "value"), KNOWN)
async def test_known_pairs_have_their_value(func, found, gold, value):
    assert (await score(func, found, gold)).value == pytest.approx(value)


@pytest.mark.parametrize("func", ALL)
@pytest.mark.parametrize("gold", [None, "", "  ", [], [1], {}, float("nan"), True])
async def test_pattern_24_and_35_no_reference_matches_nothing_and_is_a_fault(func, gold):
    for reply in ("", "None", "nan", "True", "[1]", "null"):
        found = await score(func, reply, gold)
        assert (found.value, found.status, found.side) == (None, "fault", "reward")


@pytest.mark.parametrize("func", ALL)
async def test_an_empty_answer_is_worth_nothing(func):
    for reply in ("", "  ", None):
        assert (await score(func, reply, "5")).value == 0.0
    assert (await score(func, "5", "5", vf.XMLParser(["answer"]))).value == 0.0  # no tag, no answer
    assert (await score(func, "<answer>5</answer>", "5", vf.XMLParser(["answer"]))).value == 1.0


@pytest.mark.parametrize("size", ["1e-9", "1e-30", "1", "1e30"])
async def test_pattern_39_tolerance_is_relative(size):
    value = float(size)
    assert (await score(vf.numeric_match, repr(value * (1 + 1e-8)), size)).value == 1.0
    assert (await score(vf.numeric_match, repr(value * 1.001), size)).value == 0.0
    assert (await score(vf.numeric_match, repr(value * 2), size)).value == 0.0
    assert (await score(vf.numeric_match, "0", size)).value == 0.0


@pytest.mark.parametrize("func", [vf.token_f1, vf.rouge_l, vf.edit_similarity])
async def test_pattern_04_and_05_copies_and_padding_do_not_raise_the_reward(func):
    gold = "the treaty was signed in the city of Paris"
    once = (await score(func, gold, gold)).value
    assert once == 1.0
    assert (await score(func, f"{gold} " * 50, gold)).value < once
    wrong = (await score(func, "treaty in Rome", gold)).value
    assert (await score(func, "treaty in Rome. " + "Step 1: so be it. " * 50, gold)).value <= wrong


@given(left=st.text(alphabet="abc ", max_size=12), right=st.text(alphabet="abc ", max_size=12))
def test_distance_and_subsequence_are_those_of_the_plain_tables(left, right):
    assert edit_distance(left, right) == plain_distance(left, right)
    assert common_subsequence(left, right) == plain_subsequence(left, right)


def plain_distance(left, right):
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def plain_subsequence(left, right):
    row = [0] * (len(right) + 1)
    for a in left:
        before = 0
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], before + 1 if a == b else max(row[j], row[j - 1])
    return row[-1]


@given(found=st.text(max_size=30), gold=st.text(min_size=1, max_size=30).filter(lambda text: text.strip()))
def test_text_rewards_lie_between_0_and_1(found, gold):
    for func in TEXTS:
        try:
            assert 0.0 <= func(vf.Parser(), found, gold) <= 1.0
        except vf.RewardFault as fault:
            assert "no word" in str(fault) or "0 words" in str(fault)


@given(st.fractions(max_denominator=10**6))
def test_a_written_number_is_read_exactly(value):
    assert read_number(str(value)) == value


async def test_very_long_replies_cost_little_and_score_nothing():
    noise = random.Random(0)
    gold = "".join(noise.choices("abcdefgh ", k=10_000))
    other = "".join(noise.choices("abcdefgh ", k=10_000))
    for func in TEXTS:
        began = time.process_time()
        await score(func, other, gold)
        assert time.process_time() - began < 0.5, func.__name__
        for reply in ("9" * 200_000, "word " * 100_000, "a" * 2_000_000):
            began = time.process_time()
            assert (await score(func, reply, "5 word")).value < 0.01
            assert time.process_time() - began < 1.0, func.__name__
    assert (await score(vf.numeric_match, "9" * 200_000, "5")).value == 0.0


async def test_a_reference_too_long_to_compare_is_a_fault():
    assert (await score(vf.edit_similarity, "x", "y" * 10_001)).status == "fault"
    assert (await score(vf.rouge_l, "x", "y " * 10_001)).status == "fault"
