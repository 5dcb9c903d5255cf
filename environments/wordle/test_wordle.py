"""Are bad arguments refused, does a seed give the same games, does a game have the right shape, does the hidden word
score full, and does everything else not?"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from wordle import FIRST_MESSAGE, SYSTEM_PROMPT, feedback, load_environment, words
from wordle.game import Turn, marked, turn_of

import verifiers as vf

FULL = 1.0 + 0.2 + 0.2 * (1 - 1 / 6) + 0.05  # found at the first turn of six
LOST = 0.2 + 0.05  # more is not to be had without finding the word


def guess(word: str) -> str:
    return f"<guess>{word}</guess>"


async def play(*replies: str, answer: str = "crane", **arguments: Any) -> tuple[dict[str, Any], vf.ScriptedClient]:
    """The game's result, and the client that was asked; the last reply is repeated to the end."""
    env = load_environment(**arguments)
    row = {**env.eval_rows(1)[0], "answer": answer}
    client = vf.ScriptedClient([*replies, *[replies[-1]] * (env.max_turns - len(replies))])
    results = await env.generate([row], client, "scripted")
    return results["outputs"][0], client


def answers_of_env(output: dict[str, Any]) -> list[str]:
    return [message["content"] for message in output["completion"] if message["role"] == "user"]


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"num_eval_examples": "5"}, "num_eval_examples='5'"),
        ({"max_turns": -1}, "max_turns=-1"),
        ({"max_turns": True}, "max_turns=True"),
        ({"seed": None}, "seed=None"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


# 2. same seed, same examples


def hidden_words(rows) -> list[str]:
    return [row["answer"] for row in rows]


def test_a_seed_gives_the_same_games_and_another_seed_others():
    one, same, other = (load_environment(seed=seed) for seed in (1, 1, 2))
    assert hidden_words(one.train_rows()) == hidden_words(same.train_rows())
    assert hidden_words(one.eval_rows()) == hidden_words(same.eval_rows())
    assert hidden_words(one.train_rows()) != hidden_words(other.train_rows())


def test_no_seed_trains_on_a_word_that_another_evaluates():
    train = load_environment(seed=1, num_train_examples=2000).train_rows()
    evaluation = load_environment(seed=2, num_eval_examples=500).eval_rows()
    assert not set(hidden_words(train)) & set(hidden_words(evaluation))


def test_every_word_comes_once_before_one_comes_again():
    count = len(words("train"))
    drawn = hidden_words(load_environment(num_train_examples=2 * count).train_rows())
    assert sorted(drawn[:count]) == sorted(drawn[count:]) == sorted(words("train"))


# 3. an example has the right shape


def test_the_words_are_many_and_of_five_letters():
    every = words("train") + words("eval")
    assert len(set(every)) == len(every) > 400
    assert all(re.fullmatch("[a-z]{5}", word) for word in every)
    assert len(words("eval")) > 80


def test_a_game_starts_with_the_rules_and_without_the_word():
    for row in load_environment(max_turns=4).eval_rows():
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        assert "4 turns" in row["prompt"][0]["content"]


def test_no_hidden_word_is_in_a_text_of_ours():
    ours = [SYSTEM_PROMPT, FIRST_MESSAGE, "Turns left"]
    ours += [turn_of(written, (), "crane").problem for written in ([None], ["ab"], ["slate", "crane"])]
    ours += [turn_of(["slate"], [Turn("slate", "XXGXG")], "crane").problem]
    assert all(ours)
    assert not set(re.findall("[a-z]+", " ".join(ours).lower())) & {*words("train"), *words("eval")}


# The marks, against another definition of them.


def mark_by_definition(letters: str, answer: str, i: int) -> str:
    """Yellow goes to the first letters out of place, as many as the answer has places not matched by a green one."""
    letter = letters[i]
    if answer[i] == letter:
        return "G"
    unmatched = sum(a == letter != g for g, a in zip(letters, answer))
    earlier = sum(g == letter != a for g, a in zip(letters[:i], answer))
    return "Y" if earlier < unmatched else "X"


def test_marks_are_right_for_all_words_of_three_letters():
    every = ["".join(letters) for letters in product("abc", repeat=5)]
    wrong = [
        (letters, answer)
        for letters in every
        for answer in every
        if marked(letters, answer) != "".join(mark_by_definition(letters, answer, i) for i in range(5))
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("letters", "answer", "marks"),
    [
        ("crane", "crane", "GGGGG"),
        ("eerie", "beige", "XGXYG"),
        ("allot", "lemon", "XYXGX"),
        ("sassy", "glass", "YYXGX"),
        ("level", "hello", "YGXXY"),
    ],
)
def test_marks_of_words_with_double_letters(letters, answer, marks):
    assert marked(letters, answer) == marks


# 4. the hidden word scores full


@pytest.mark.parametrize("reply", [guess("crane"), guess(" CRANE\n"), f"<think>A word.</think>\n{guess('Crane')}"])
async def test_the_hidden_word_ends_the_game_with_a_full_score(reply):
    output, client = await play(reply)
    assert output["reward"] == pytest.approx(FULL)
    assert output["stop_condition"] == "was_solved"
    assert len(client.requests) == 1


async def test_a_later_turn_scores_less_than_an_early_one_and_more_than_a_lost_game():
    rewards = [(await play(*map(guess, ["solid", "bumpy", "jelly", "worth", "flick"][:n]), guess("crane")))[0]["reward"]
               for n in range(6)]  # fmt: skip
    assert rewards == sorted(rewards, reverse=True)
    assert len(set(rewards)) == 6
    assert rewards[-1] == pytest.approx(1.25) and rewards[-1] > 4 * LOST


async def test_the_word_at_the_last_turn_is_seen():
    output, _ = await play(guess("solid"), guess("crane"), max_turns=2)
    assert output["metrics"]["solved"] == 1.0
    assert output["metrics"]["turns_left"] == 0.0
    assert output["stop_condition"] == "was_solved"


async def test_a_guess_is_answered_with_marks_and_the_turns_left():
    output, _ = await play(guess("caper"), guess("crane"))
    assert answers_of_env(output) == ["C A P E R\nG Y X Y Y\nTurns left: 5"]


# 5. a wrong, empty, hedged or echoed one does not


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("", "no guess"),
        ("crane", "no guess"),
        ("<guess>crane", "no guess"),
        ("<think><guess>crane</guess></think>", "no guess"),
        ("<guess></guess>", "no guess"),
        (guess("cranes"), "exactly 5 letters"),
        (guess("crän"), "exactly 5 letters"),
        (guess("crane slate"), "exactly 5 letters"),
        (guess("crane") + guess("slate"), "several"),
        (guess("slate") + guess("crane"), "several"),
        (SYSTEM_PROMPT, "exactly 5 letters"),
    ],
)
async def test_a_reply_that_is_no_single_guess_is_told_and_scores_nothing(reply, told):
    output, _ = await play(reply)
    assert output["reward"] == 0.0
    assert output["metrics"]["invalid_guesses"] == output["metrics"]["num_turns"] == 6.0
    assert all(re.search(told, content) for content in answers_of_env(output))
    assert len(answers_of_env(output)) == 5


async def test_a_guess_made_earlier_costs_a_turn_and_earns_nothing():
    once, _ = await play(guess("caper"), "")
    often, _ = await play(guess("caper"))
    assert often["reward"] == once["reward"] < LOST
    assert "CAPER" in answers_of_env(often)[1]


async def test_valid_guesses_without_the_word_stay_below_a_word_found_in_bad_form():
    lost, _ = await play(*map(guess, ["crate", "crave", "craze", "brane", "crank", "trane"]))
    found, _ = await play(*["no form at all"] * 5, guess("crane"))
    assert lost["reward"] < LOST < 1.0 < found["reward"]


async def test_the_hidden_word_is_in_no_prompt():
    output, client = await play(guess("caper"), "what?", guess("slate"), guess("brine"), guess("crown"), guess("bring"))
    assert output["stop_condition"] == "max_turns_reached"
    assert len(client.requests) == 6
    shown = " ".join(message["content"] for request in client.requests for message in request.messages)
    assert "crane" not in shown.lower().replace(" ", "")


def test_feedback_spells_guess_and_marks():
    assert feedback(Turn("caper", "GYXYY")) == "C A P E R\nG Y X Y Y"
