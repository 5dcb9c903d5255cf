"""Arguments, reproducibility, the shape of an example, and what is paid for."""

import pytest
import reverse_letters as module
from reverse_letters import load_environment

import verifiers as vf


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"letters": 1}, "letters must be from 2 to 12, got 1"),
        ({"letters": "5"}, "letters must be an integer"),
        ({"letters": 2, "num_train_examples": 11}, "num_train_examples must be from 1 to 10, got 11"),
        ({"num_eval_examples": 0}, "num_eval_examples must be from 1"),
        ({"seed": 1.5}, "seed must be an integer"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        load_environment(**arguments)


def test_the_same_seed_gives_the_same_examples_and_another_one_others():
    first, again, other = (load_environment(seed=seed).train_rows(50) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_an_example_is_a_word_and_its_reverse_and_no_split_holds_another_ones():
    env = load_environment(letters=3, num_train_examples=80, num_eval_examples=60)
    train, held_out = env.train_rows(), env.eval_rows()
    for row in (*train, *held_out):
        (message,) = row["prompt"]
        assert len(message["content"]) == 3 and set(message["content"]) <= set(module.LETTERS)
        assert row["answer"] == message["content"][::-1] != message["content"]
    words = [[row["answer"] for row in rows] for rows in (train, held_out)]
    assert not set(words[0]) & set(words[1])
    assert [len(set(w)) for w in words] == [80, 60]


@pytest.mark.parametrize(
    ("reply", "reward"),
    [("edcba", 1.0), (" edcba\n", 1.0), ("abcde", 0.0), ("", 0.0), ("edcba or abcde", 0.0), ("EDCBA", 0.0)],
)
async def test_only_the_word_backwards_is_paid(reply, reward):
    env = load_environment()
    row = {"prompt": [{"role": "user", "content": "abcde"}], "answer": "edcba", "example_id": 0}
    state = await env.rollout(row, vf.ScriptedClient([reply]), "m")
    await env.rubric.score_rollout(state)
    assert state["reward"] == reward
