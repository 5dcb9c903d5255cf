"""ChoiceRubric: what counts as choosing an option, what never does, and options in another order."""

import asyncio
import json
from functools import partial
from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

import verifiers as vf
from verifiers.errors import DatasetError
from verifiers.rubrics.choice_answers import choice_in
from verifiers.types import State

CITIES = {"A": "Rome", "B": "Paris", "C": "London", "D": "Both A and B"}
NUMBERS = {"A": "3", "B": "3.5", "C": "12", "D": "-1"}
TEN = {letter: f"city {number}" for number, letter in enumerate("ABCDEFGHIJ")}

CHOSEN = [
    (CITIES, r"\boxed{B}", "B"),
    (CITIES, r"\boxed{b}", "B"),
    (CITIES, r"\boxed{\text{(B)}}", "B"),
    (CITIES, r"\boxed{\textbf{(B)}\ Paris}", "B"),
    (CITIES, r"\boxed{B. Paris}", "B"),
    (CITIES, r"\boxed{Option C}", "C"),
    (CITIES, r"\boxed{Paris}", "B"),
    (CITIES, r"\boxed{Both A and B}", "D"),
    (CITIES, r"First \boxed{A}, no: \boxed{B}", "B"),
    (CITIES, r"Answer: A. So \boxed{B}", "B"),
    (NUMBERS, r"\boxed{12}", "C"),
    (CITIES, "Answer: B", "B"),
    (CITIES, "**Answer:** B", "B"),
    (CITIES, "**Answer: (B)**", "B"),
    (CITIES, "Answer:\n\nB", "B"),
    (CITIES, "answer: b", "B"),
    (CITIES, "Answer：B", "B"),
    (CITIES, "the answer is (a)", "A"),
    (CITIES, "The correct answer is: **C) London**", "C"),
    (CITIES, "The correct option is **B**", "B"),
    (CITIES, "The answer is Option B: Paris, in France", "B"),
    (CITIES, "Final Answer: The final answer is B. I hope it is correct.", "B"),
    (CITIES, "The answer is A. No wait, the answer is C.", "C"),
    (CITIES, "The answer is B. I hope my answer is clear.", "B"),
    (CITIES, "The answer is not A. The answer is B", "B"),
    (CITIES, "The answer is B, not A.", "B"),
    (CITIES, "The answer is B because A is wrong.", "B"),
    (CITIES, "Answer: B. A is wrong, as Rome is in Italy.", "B"),
    (CITIES, "Answer: D) Both A and B", "D"),
    (CITIES, "Answer: Both A and B", "D"),
    (CITIES, "The answer is Paris.", "B"),
    (NUMBERS, "The answer is 3.5", "B"),
    (NUMBERS, "The answer is 3.", "A"),
    (NUMBERS, "Answer: -1", "D"),
    (CITIES, "Answer: B\nA or C would be wrong", "B"),
    (CITIES, "The answer is B because A or C would be silly", "B"),
    (CITIES, "The answer is A. But no: the answer is B", "B"),
    (CITIES, "The answer to this question is therefore B", "B"),
    (CITIES, '{"answer": "B"}', "B"),
    (CITIES, "Answer: B is correct.", "B"),
    (CITIES, "The answer is b) Paris", "B"),
    (CITIES, r"\boxed{B} \boxed{B}", "B"),
    (TEN, "The answer is I.", "I"),
    (CITIES, "Paris", "B"),
    (CITIES, "paris.", "B"),
    (CITIES, "B. Paris", "B"),
]
NOT_CHOSEN = [
    (CITIES, ""),
    (CITIES, "B"),
    (CITIES, "I would go with B"),
    (CITIES, "A B C D"),
    (CITIES, "Rome Paris"),
    (CITIES, r"\boxed{}"),
    (CITIES, r"\boxed{E}"),
    (CITIES, r"\boxed{AB}"),
    (CITIES, r"\boxed{B) Rome}"),
    (CITIES, r"Answer: B, so \boxed{B"),
    (CITIES, "Answer:"),
    (CITIES, "Answer: E"),
    (CITIES, "The answer is B) London"),
    (CITIES, "The answer is B. Wait, the answer is not B."),
    (NUMBERS, "The answer is 3.55"),
    (NUMBERS, "Answer: 1"),
]
HEDGES = [
    r"\boxed{A or B}",
    r"\boxed{A, B}",
    r"\boxed{A/B/C/D}",
    r"\boxed{\text{A or B}}",
    "The answer is A or B",
    "The answer is either A or B",
    "Answer: A, B",
    "Answer: A/B",
    "Answer: A and C",
    "Answer: A, B, C, D",
    "Answer: A\nB\nC\nD",
    "The answer is B (or C)",
    "The answer is B. Or C.",
    "The answer is B, but it could be C.",
    "The answer is Paris or London",
    r"\boxed{A} or \boxed{B}",
    r"\boxed{A}, \boxed{B}, \boxed{C}, \boxed{D}",
    "Answer: A\nAnswer: B",
    "The answer is A. The answer is B.",
]


async def score(completion, answer="B", options=CITIES, rubric=None, prompt="?"):
    rubric = rubric or vf.ChoiceRubric()
    state = State(
        input={"prompt": prompt, "answer": answer, "info": {"options": options}},
        completion=[{"role": "assistant", "content": completion}],
        trajectory=[],
    )
    await rubric.score_rollout(state)
    return state["scores"][0]


@pytest.mark.parametrize(("options", "reply", "letter"), CHOSEN)
async def test_the_marked_option_is_chosen_whatever_its_notation(options, reply, letter):
    assert choice_in(reply, options).letter == letter
    assert (await score(reply, letter, options)).value == 1.0
    other = next(other for other in options if other != letter)
    assert (await score(reply, other, options)).value == 0.0


@pytest.mark.parametrize(("options", "reply"), NOT_CHOSEN)
async def test_a_reply_that_marks_no_option_chooses_none_and_says_why(options, reply):
    for letter in options:
        found = await score(reply, letter, options)
        assert (found.value, found.status) == (0.0, "scored")
        assert found.reason


@pytest.mark.parametrize("reply", HEDGES)
async def test_pattern_28_hedging_between_options_is_never_right(reply):
    for letter in "ABC":
        assert (await score(reply, letter)).value == 0.0


# What public graders got wrong: letters found in words and formulas.
REPORTED = [
    ("a letter of a foreign word for answer", CITIES, "Antwort: unklar. Answer: Antwort unklar"),
    ("a letter of a word after the anchor", {**TEN, "S": "city 18"}, "The answer seems obvious"),
    ("the pronoun I", TEN, "Answer: I think it is hard to say"),
    ("the pronoun I anywhere", TEN, "I do not know"),
    ("the article a", CITIES, "the answer is a tough one"),
    ("the article A after a colon", CITIES, "Answer: A common mistake is to say Rome"),
    ("the article at the end of a reply that was cut off", CITIES, "the answer is a"),
    ("a variable of a formula", CITIES, r"The answer is $A = \pi r^2$"),
    ("a variable of a formula in a box", CITIES, r"\boxed{A = 5}"),
    ("the first letter of Answer", CITIES, "Answer"),
    ("the first letter of Answer in a box", CITIES, r"\boxed{Answer}"),
    ("the last capital", CITIES, "Rome is in Italy, which leaves only B"),
]


@pytest.mark.parametrize(("options", "reply"), [case[1:] for case in REPORTED], ids=[case[0] for case in REPORTED])
def test_a_letter_of_a_word_or_formula_is_no_choice(options, reply):
    assert choice_in(reply, options).letter is None


async def test_pattern_07_a_draft_in_the_reasoning_is_not_the_choice():
    assert (await score(r"<think>\boxed{B}</think> \boxed{A}")).value == 0.0
    assert (await score(r"<think>Answer: B</think> I do not know.")).value == 0.0
    assert (await score(r"maybe \boxed{A}</think> \boxed{B}")).value == 1.0


async def test_unfinished_reasoning_is_no_choice_and_says_so():
    for reply in (r"<think>so \boxed{B}", r"\boxed{B}<think>or is it"):
        found = await score(reply)
        assert (found.value, found.reason) == (0.0, "reasoning not finished")


async def test_pattern_06_cutting_a_reply_before_its_box_closes_is_never_right():
    reply = r"The capital of France is Paris, so that \boxed{\text{B}}"
    for end in range(len(reply)):
        assert (await score(reply[:end])).value == 0.0
    assert (await score(reply)).value == 1.0


async def test_pattern_04_fifty_copies_score_like_one():
    for reply in (r"\boxed{B} ", "Answer: B\n", "<answer>B</answer>"):
        for letter in CITIES:
            assert (await score(reply, letter)).value == (await score(reply * 50, letter)).value


@pytest.mark.parametrize("row", range(5))
async def test_pattern_29_the_prompt_as_reply_scores_nothing(row):
    made = vf.shuffle_options({"question": "2 + 2?", "options": ["3", "4", "5"], "answer": 1}, seed=row)
    for end in (
        "",
        "\nAnswer:",
        "\nPut the letter into \\boxed{}.",
        "\nEnd with 'Answer: B'.",
        "\nAnswer: A\n\nAnswer:",
    ):
        asked = made["question"] + end
        found = await score(asked, made["answer"], made["info"]["options"], prompt=[vf.UserMessage(asked)])
        assert found.value == 0.0


async def test_pattern_24_and_35_missing_gold_or_options_are_a_fault_whatever_the_reply():
    for reply in ("", "None", r"\boxed{None}", "Answer: None", r"\boxed{B}"):
        for answer in (None, "", "None", "E", "Rom"):
            found = await score(reply, answer)
            assert (found.value, found.status, found.side) == (None, "fault", "reward")
        for options in (None, [], "ABCD", {}, {"first": "Rome"}):
            found = await score(reply, "B", options)
            assert (found.value, found.status) == (None, "fault")
            assert "info['options']" in found.reason


async def test_gold_may_be_an_options_text_but_not_an_ambiguous_one():
    assert (await score(r"\boxed{B}", "Paris")).value == 1.0
    assert (await score(r"\boxed{B}", "Same", ["Same", "same"])).status == "fault"
    assert (await score("same", "A", ["Same", "same"])).value == 0.0


async def test_where_options_are_letters_themselves_the_reply_names_the_option_by_its_letter():
    vitamins = ["C", "A", "B"]
    for reply in ("Answer: B", r"\boxed{B}", "The answer is B."):
        assert (await score(reply, "B", vitamins)).value == 1.0
        assert (await score(reply, "C", vitamins)).value == 0.0
    assert (await score("Answer: B. A", "B", vitamins)).value == 1.0


async def test_a_parser_of_ones_own_marks_the_answer():
    tags = vf.ChoiceRubric(parser=vf.XMLParser(["answer"]))
    assert (await score("<answer>B</answer>", rubric=tags)).value == 1.0
    assert (await score("<answer>(b) Paris</answer>", rubric=tags)).value == 1.0
    assert (await score("<answer>A or B</answer>", rubric=tags)).value == 0.0
    assert (await score("Answer: B", rubric=tags)).value == 0.0
    letter = vf.ChoiceRubric(parser=vf.MaybeThinkParser())
    assert (await score("<think>hm</think> B", rubric=letter)).value == 1.0
    assert (await score("I would say B", rubric=letter)).value == 0.0


def test_info_may_be_json_text_as_in_saved_datasets():
    rubric = vf.ChoiceRubric()
    info = json.dumps({"options": ["Rome", "Paris"]})
    assert rubric.correct_choice(rubric.parser, "Answer: B", "B", info) == 1.0
    assert rubric.correct_choice(rubric.parser, "Answer: B", "Paris", {"choices": ["Rome", "Paris"]}) == 1.0
    assert rubric.correct_choice(rubric.parser, "Answer: B", "B", {"options": {"A": "Rome", "B": "Paris"}}) == 1.0


def test_a_very_long_reply_is_read_at_once():
    for reply in (
        "\\boxed{A} " * 20_000,
        "Answer: A\n" * 20_000,
        "Answer: " * 20_000,
        "the answer is not A " * 8_000,
        r"\boxed{" * 20_000,
        "(" * 100_000,
    ):
        asyncio.run(asyncio.wait_for(score(reply), 60.0))


@given(reply=st.text(alphabet="ABCDabcd .,:()/*\n$\\{}boxedisanwer", max_size=60), answer=st.sampled_from("ABCD"))
def test_no_reply_is_right_for_two_answers(reply, answer):
    right = [letter for letter in CITIES if asyncio.run(score(reply, letter)).value == 1.0]
    assert len(right) <= 1


# Options in another order


ROW = {"question": "The capital of France?", "options": ["Rome", "Paris", "London", "Bern"], "answer": "Paris"}


def test_pattern_34_the_shuffled_letter_and_order_are_stored_with_the_row():
    made = vf.shuffle_options(ROW, seed=7)
    options, order = made["info"]["options"], made["info"]["option_order"]
    assert options == [ROW["options"][place] for place in order]
    assert options[ascii_uppercase.index(made["answer"])] == "Paris"
    assert made["info"]["option_seed"] == 7
    assert all(f"{letter}. {text}" in made["question"] for letter, text in zip("ABCD", options))
    assert ROW["options"] == ["Rome", "Paris", "London", "Bern"]


@given(
    texts=st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=10, unique_by=str.casefold),
    data=st.data(),
    seed=st.integers(0, 1000),
)
def test_same_seed_same_order_and_the_right_option_stays_right(texts, data, seed):
    place = data.draw(st.integers(0, len(texts) - 1))
    row = {"question": "Which?", "choices": texts, "answer": place}
    made = vf.shuffle_options(row, seed=seed)
    assert made == vf.shuffle_options(row, seed=seed)
    assert sorted(made["info"]["option_order"]) == list(range(len(texts)))
    assert made["info"]["options"][ascii_uppercase.index(made["answer"])] == texts[place]


def test_rows_differ_in_their_order_and_every_letter_is_right_about_as_often():
    made = [vf.shuffle_options({**ROW, "question": f"Question {n}?"}, seed=1) for n in range(400)]
    counts = [sum(row["answer"] == letter for row in made) for letter in "ABCD"]
    assert min(counts) > 70


def test_the_order_is_the_same_in_every_release_of_python():
    assert vf.shuffle_options(ROW, seed=0)["info"]["option_order"] == [1, 3, 2, 0]


def test_options_that_speak_of_their_place_or_of_letters_stay():
    texts = ["Rome", "Paris", "London", "None of the above"]
    for seed in range(20):
        made = vf.shuffle_options({"question": "?", "options": texts, "answer": 3}, seed=seed)
        assert (made["info"]["options"][3], made["answer"]) == ("None of the above", "D")
        made = vf.shuffle_options(
            {"question": "?", "options": ["Rome", "Paris", "Both A and B"], "answer": 2}, seed=seed
        )
        assert made["info"]["option_order"] == [0, 1, 2]


REFUSED = [
    {"answer": "Berlin"},
    {"answer": 4},
    {"answer": None},
    {"answer": True},
    {"options": "ABCD"},
    {"options": []},
    {"question": None},
]


@pytest.mark.parametrize("change", REFUSED)
def test_a_row_that_cannot_be_shuffled_is_refused(change):
    with pytest.raises(DatasetError, match="shuffle_options"):
        vf.shuffle_options({**ROW, **change})


def test_an_environment_of_shuffled_rows_pays_the_right_letter():
    rows = [vf.shuffle_options({**ROW, "question": f"{n}. The capital of France?"}, seed=n) for n in range(3)]
    env = vf.SingleTurnEnv(dataset=rows, rubric=vf.ChoiceRubric())
    results = env.evaluate_sync(vf.ScriptedClient("The answer is Paris."), model="scripted")
    assert results["reward"] == [1.0, 1.0, 1.0]


def test_options_are_shuffled_by_map_over_a_dataset_as_in_a_list():
    datasets = pytest.importorskip("datasets")
    rows = [{**ROW, "question": f"{n}. The capital of France?"} for n in range(5)]
    made = datasets.Dataset.from_list(rows).map(partial(vf.shuffle_options, seed=3))
    for row, alone in zip(made, (vf.shuffle_options(row, seed=3) for row in rows), strict=True):
        assert {name: row[name] for name in alone} == alone
