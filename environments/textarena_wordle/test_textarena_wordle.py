"""Are bad arguments refused, does a seed give the same games, does an example have the right shape, does the word
score full, and do others not?"""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("textarena", reason="needs the package 'textarena' (the extra textarena)")

import textarena_wordle
from textarena_wordle import load_environment, make_game, own_words, reference_reply

import verifiers as vf


@pytest.fixture(autouse=True)
def our_own_words(monkeypatch):
    """The same words wherever the test runs, and no word list is fetched."""
    from textarena.envs.Wordle import env as game  # pyright: ignore[reportMissingImports]

    def no_words(*args: Any, **kwargs: Any) -> None:
        raise LookupError("Resource words not found")

    monkeypatch.setattr(game.WordleEnv, "_load_word_list", no_words)


def guess(word: str) -> str:
    return f"<think>perhaps</think><guess>[{word}]</guess>"


def others(word: str, count: int) -> list[str]:
    """Words that are not it, and have a letter in common with it."""
    return [other for other in own_words() if other != word and set(other) & set(word)][:count]


async def played(env: vf.Environment, row: Any, replies: Any) -> Any:
    return (await env.generate([row], vf.ScriptedClient(replies), "scripted"))["outputs"][0]


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": "5"}, "num_eval_examples='5'"),
        ({"seed": None}, "seed=None"),
        ({"num_guesses": 13}, "num_guesses=13: give a whole number from 1 to 12"),
        ({"hardcore": 1}, "hardcore=1"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


# 2. same seed, same games


def test_a_seed_gives_the_same_words_and_another_seed_others():
    def words(seed: int) -> list[str]:
        env = load_environment(seed=seed, num_train_examples=8, num_eval_examples=8)
        return [row["answer"] for row in (*env.train_rows(), *env.eval_rows())]

    assert words(1) == words(1)
    assert words(1) != words(100)


# 3. an example has the right shape


def test_an_example_is_the_game_s_prompt_with_a_hidden_word():
    for row in load_environment(num_train_examples=1, num_eval_examples=8).eval_rows():
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        assert row["answer"] in own_words()
        text = " ".join(message["content"] for message in row["prompt"])
        assert "Wordle" in text and not re.search(rf"\b{row['answer']}\b", text)


def test_our_own_words_have_five_letters_and_no_word_twice():
    assert all(re.fullmatch(r"[a-z]{5}", word) for word in own_words())
    assert len(set(own_words())) == len(own_words()) > 400


def test_without_nltk_s_words_it_is_said(caplog):
    make_game(word_length=5, num_guesses=6, hardcore=False)
    assert "SCORES ARE NOT THOSE OF TextArena's Wordle" in caplog.text


# 4. the word scores full


async def test_the_word_scores_full_at_once_and_at_the_last_guess():
    env = load_environment(num_train_examples=1, num_eval_examples=3)
    for row in env.eval_rows():
        known = await played(env, row, lambda request, row=row: reference_reply(request.messages, row))
        late = await played(env, row, [*map(guess, others(row["answer"], 5)), guess(row["answer"])])
        assert known["reward"] == late["reward"] == pytest.approx(1.2)
        assert (known["metrics"]["guesses"], late["metrics"]["guesses"]) == (1.0, 6.0)


async def test_every_guess_is_marked():
    env = load_environment(num_train_examples=1, num_eval_examples=1)
    row = env.eval_rows()[0]
    output = await played(env, row, [*map(guess, others(row["answer"], 2)), guess(row["answer"])])
    told = [message["content"] for message in output["completion"] if message["role"] == "user"]
    assert all(re.search(r"\b[GYX]( [GYX]){4}\b", text) for text in told[:2])
    assert "Congratulations" in told[-1]


# 5. others do not


async def test_a_lost_game_gets_less_than_a_fifth():
    env = load_environment(num_train_examples=1, num_eval_examples=2, num_guesses=3)
    for row in env.eval_rows():
        output = await played(env, row, [*map(guess, others(row["answer"], 3))])
        assert output["metrics"]["solved"] == 0.0
        assert 0.0 <= output["reward"] < 0.2


@pytest.mark.parametrize(
    "reply", ["", "stone", "<guess>[four]</guess>", "<think>[WORD]</think>", "<guess>WORD</guess>"]
)
async def test_what_is_no_guess_is_paid_nothing(reply):
    env = load_environment(num_train_examples=1, num_eval_examples=1)
    row = env.eval_rows()[0]
    output = await played(env, row, reply.replace("WORD", row["answer"]))
    assert output["reward"] == 0.0
    assert output["stop_condition"] == "has_final_env_response"


async def test_the_same_wrong_word_again_and_again_ends_the_game():
    env = load_environment(num_train_examples=1, num_eval_examples=1)
    row = env.eval_rows()[0]
    output = await played(env, row, guess(others(row["answer"], 1)[0]))
    assert output["metrics"]["num_turns"] == 3.0
    assert output["metrics"]["solved"] == 0.0


def test_the_game_is_registered_once():
    textarena_wordle.register_game()
    textarena_wordle.register_game()
