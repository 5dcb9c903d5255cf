"""Are bad arguments refused, does a seed give the same texts, does an example have the right shape, does the reversed
text score full, and does everything else not?"""

from __future__ import annotations

import random

import pytest
from reverse_text import load_environment, sentence, similarity_gained

import verifiers as vf

TEXT = "Olga painted heavy drums, while Nils lost maps twice."
ANSWER = ".eciwt spam tsol sliN elihw ,smurd yvaeh detniap aglO"


def tagged(text: str) -> str:
    return f"<reversed_text>{text}</reversed_text>"


async def reward(reply: str, text: str = TEXT) -> float:
    row = {"prompt": [{"role": "user", "content": text}], "answer": text[::-1], "example_id": 0}
    results = await load_environment().generate([row], vf.ScriptedClient([reply]), "scripted")
    return results["outputs"][0]["reward"]


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_train_examples": 10**6}, "num_train_examples=1000000.*20000"),
        ({"num_eval_examples": 2.0}, r"num_eval_examples=2\.0"),
        ({"min_words": 3}, "min_words=3"),
        ({"min_words": 9, "max_words": 8}, "max_words=8: give a whole number from 9"),
        ({"max_words": 41}, "max_words=41"),
        ({"seed": "0"}, "seed='0'"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


# 2. same seed, same examples


def texts(rows) -> list[str]:
    return [row["question"] for row in rows]


def test_a_seed_gives_the_same_texts_and_another_seed_others():
    one, same, other = (load_environment(seed=seed) for seed in (1, 1, 2))
    assert texts(one.train_rows()) == texts(same.train_rows())
    assert texts(one.eval_rows()) == texts(same.eval_rows())
    assert not set(texts(one.eval_rows())) & set(texts(other.eval_rows()))


def test_no_seed_trains_on_a_text_that_another_evaluates():
    train = load_environment(seed=1, num_train_examples=5000, max_words=4).train_rows()
    evaluation = load_environment(seed=2, num_eval_examples=2000, max_words=4).eval_rows()
    assert len(set(texts(train))) == 5000
    assert not set(texts(train)) & set(texts(evaluation))


# 3. an example has the right shape


def test_an_example_is_a_text_with_its_reverse():
    for row in load_environment(min_words=5, max_words=20).eval_rows():
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        assert row["prompt"][1]["content"] == row["answer"][::-1]
        assert 5 <= len(row["question"].split()) <= 20


@pytest.mark.parametrize("length", range(4, 41))
def test_a_sentence_has_the_length_asked_for(length):
    assert len(sentence(random.Random(length), length).split()) == length


# 4. the reversed text scores full


@pytest.mark.parametrize("reply", [tagged(ANSWER), "  " + tagged("\n" + ANSWER + "\n") + "\n"])
async def test_the_reversed_text_scores_full(reply):
    assert await reward(reply) == pytest.approx(1.0)


async def test_every_reference_answer_scores_full():
    env = load_environment(num_eval_examples=20)
    client = vf.ScriptedClient(lambda request: tagged(request.messages[-1]["content"][::-1]))
    results = await env.evaluate(client=client, model="scripted")
    assert [output["reward"] for output in results["outputs"]] == pytest.approx([1.0] * 20)


async def test_the_right_text_in_a_loose_form_loses_only_form():
    assert 0.95 <= await reward(f"<think>I go from the end.</think> Here: {tagged(ANSWER)} Done.") < 1.0


async def test_a_small_slip_scores_most_of_the_half():
    assert 0.4 < await reward(tagged(ANSWER.replace("spam", "smap"))) < 0.5


# 5. a wrong, empty, hedged or echoed one does not


@pytest.mark.parametrize(
    "reply",
    ["", "I cannot.", ANSWER, f"<reversed_text>{ANSWER}"],
)
async def test_a_text_without_its_tags_scores_nothing(reply):
    assert await reward(reply) == 0.0


@pytest.mark.parametrize(
    "reply",
    [
        tagged(""),
        tagged("no idea"),
        f"<think>{tagged(ANSWER)}</think>",
        tagged(TEXT),
        tagged(f"{TEXT} {ANSWER} {TEXT}"),
        tagged(" ".join(TEXT.split()[::-1])),
        tagged("e" * len(TEXT)),
        tagged("".join(sorted(TEXT))),
        tagged(ANSWER * 1000),
        tagged(ANSWER) + tagged(TEXT),
        tagged(TEXT) + tagged(ANSWER),
    ],
)
async def test_an_echo_a_hedge_or_a_filler_scores_its_form_at_most(reply):
    assert await reward(reply) <= 0.05


@pytest.mark.parametrize("length", [4, 7, 12, 40])
def test_an_echo_gains_nothing_whatever_the_text(length):
    rng = random.Random(length)
    gained = [similarity_gained(text, text[::-1]) for text in (sentence(rng, length) for _ in range(50))]
    assert gained == [0.0] * 50


async def test_the_right_answer_written_fifty_times_scores_no_more_than_once():
    assert await reward(tagged(ANSWER) * 50) < await reward(tagged(ANSWER))


async def test_the_prompt_sent_back_scores_nothing():
    env = load_environment(num_eval_examples=20)
    client = vf.ScriptedClient(lambda request: "\n".join(message["content"] for message in request.messages))
    results = await env.evaluate(client=client, model="scripted")
    assert [output["metrics"]["exact"] + output["metrics"]["similarity"] for output in results["outputs"]] == [0.0] * 20
