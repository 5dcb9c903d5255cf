"""`TokenRollout`: one sequence of a rollout, and what becomes of rollouts that cannot be trained."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rl_rollouts import Said, rollout

from verifiers.records import Failure
from verifiers.rl.advantage import advantages
from verifiers.rl.token_rollout import mean_where_none, token_rollout

TURNS = [Said([1, 2], [3, 4], [-0.1, -0.2]), Said([1, 2, 3, 4, 8], [5], [-0.3])]
FORK = Said([1, 9], [6], [-0.4])


def made(said=TURNS, reward=1.0, **fields):
    return token_rollout(rollout(said, reward, **fields).record)


def test_turns_are_one_completion_and_what_lies_between_is_masked():
    one = made()
    assert (one.prompt_ids, one.completion_ids, one.mask) == ([1, 2], [3, 4, 8, 5], [1, 1, 0, 1])
    assert one.logprobs == pytest.approx([-0.1, -0.2, 0.0, -0.3])
    assert (one.reward, one.problem, one.forks) == (1.0, None, 0)


def test_where_the_context_was_rewritten_the_last_turns_branch_is_taken_and_the_others_counted():
    one = made([*TURNS, FORK])
    assert (one.prompt_ids, one.completion_ids, one.forks) == ([1, 9], [6], 1)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"reward": None}, "fault: no reward"),
        ({"reward": math.nan}, "scored: no reward"),
        (
            {"reward": None, "status": "failed", "errors": [Failure(side="tool", type="ToolError", message="gone")]},
            "failed: ToolError: gone",
        ),
        ({"said": [Said([1], [2], finish_reason="abort")]}, "the server ended a reply before the model did"),
    ],
)
def test_without_a_reward_nothing_is_trained_and_the_reason_is_told(fields, problem):
    one = made(**fields)
    assert (one.reward, one.problem) == (None, problem)
    assert one.completion_ids and not any(one.mask)


def test_tokens_that_cannot_be_trained_take_the_reward_with_them():
    one = made([Said([1], [2], [math.nan])])
    assert one.reward is None and "not finite" in str(one.problem)
    assert made([]).problem == "no turn has tokens"


def test_a_rollout_without_tokens_keeps_its_place_with_one_that_is_not_trained():
    one = made([], None).padded([1, 2], 0)
    assert (one.prompt_ids, one.completion_ids, one.mask, one.logprobs) == ([1, 2], [0], [0], [0.0])
    whole = made()
    assert whole.padded([7], 0) is whole


def test_a_cut_sequence_counts_as_truncated():
    one = made().cut(2)
    assert (one.completion_ids, one.mask, len(one.logprobs), one.is_truncated) == ([3, 4], [1, 1], 2, True)
    assert made().cut(4) == made()


@given(st.lists(st.one_of(st.none(), st.floats(-10, 10)), min_size=2, max_size=8))
def test_a_try_without_a_reward_moves_no_others_advantage(rewards):
    known = [reward for reward in rewards if reward is not None]
    filled = advantages(mean_where_none(rewards))
    if known:
        alone = iter(advantages(known) if len(known) > 1 else [0.0])
        expected = [0.0 if reward is None else next(alone) for reward in rewards]
        assert filled == pytest.approx(expected, abs=1e-9)
    else:
        assert set(filled) == {0.0}
