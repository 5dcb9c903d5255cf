"""Advantages and their laws: sums, shifts, order, and what makes a group trivial."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from verifiers.rl.advantage import advantages, is_trivial, turn_advantages

reward_lists = st.lists(st.floats(-100, 100), min_size=2, max_size=16)
NOTHING = pytest.approx(0, abs=1e-9)


@given(reward_lists, st.sampled_from(["mean", "leave_one_out"]))
def test_advantages_of_a_group_add_up_to_nothing(rewards, baseline):
    assert math.fsum(advantages(rewards, baseline=baseline)) == NOTHING


@given(st.lists(st.tuples(st.floats(-100, 100), st.integers(0, 10_000)), min_size=2, max_size=16))
def test_length_weighted_advantages_add_up_to_nothing_over_tokens(tries):
    rewards, lengths = zip(*tries)
    assume(sum(lengths))
    found = advantages(rewards, baseline="length_weighted", lengths_G=lengths)
    assert math.fsum(a * n for a, n in zip(found, lengths)) == pytest.approx(0, abs=1e-6)


@given(reward_lists)
def test_equal_lengths_weigh_equally(rewards):
    found = advantages(rewards, baseline="length_weighted", lengths_G=[7] * len(rewards))
    assert found == pytest.approx(advantages(rewards), abs=1e-9)


@given(reward_lists)
def test_leaving_one_out_compares_with_the_mean_of_the_others(rewards):
    for at, advantage in enumerate(advantages(rewards, baseline="leave_one_out")):
        others = rewards[:at] + rewards[at + 1 :]
        assert advantage == pytest.approx(rewards[at] - math.fsum(others) / len(others), abs=1e-9)


@given(reward_lists, st.floats(-100, 100), st.sampled_from(["mean", "leave_one_out"]))
def test_a_reward_given_to_all_changes_nothing(rewards, gift, baseline):
    shifted = advantages([reward + gift for reward in rewards], baseline=baseline)
    assert shifted == pytest.approx(advantages(rewards, baseline=baseline), abs=1e-9)


@given(reward_lists.flatmap(lambda rewards: st.tuples(st.just(rewards), st.permutations(range(len(rewards))))))
def test_the_order_of_the_tries_does_not_matter(case):
    rewards, order = case
    found = advantages(rewards)
    assert advantages([rewards[at] for at in order]) == [found[at] for at in order]


def test_advantages_are_not_scaled_by_the_spread():
    assert advantages([0.0, 0.002]) == [-0.001, 0.001]


def test_a_rollout_alone_has_nothing_to_be_compared_with():
    assert advantages([3.0]) == [0.0] and advantages([]) == []


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_refused(reward):
    with pytest.raises(ValueError, match="no advantage"):
        advantages([0.0, reward])


@pytest.mark.parametrize("lengths", [None, [1], [1, -1]])
def test_lengths_must_be_those_of_the_rewards(lengths):
    with pytest.raises(ValueError, match="length"):
        advantages([0.0, 1.0], baseline="length_weighted", lengths_G=lengths)


def test_rewards_of_rollouts_that_said_nothing_still_have_advantages():
    assert advantages([0.0, 1.0], baseline="length_weighted", lengths_G=[0, 0]) == [-0.5, 0.5]


@given(st.floats(-100, 100), st.integers(1, 16))
def test_equal_rewards_are_trivial_whatever_they_are(reward, tries):
    assert is_trivial([reward] * tries)


@given(reward_lists)
def test_a_group_is_trivial_exactly_when_no_advantage_differs_from_nothing(rewards):
    largest = max(map(abs, advantages(rewards)))
    if largest > 1e-6:
        assert not is_trivial(rewards)
    if is_trivial(rewards):
        assert largest == pytest.approx(0, abs=1e-6)


def test_rounding_makes_no_difference_and_a_small_reward_does():
    assert is_trivial([0.1 + 0.2, 0.3]) and is_trivial([])
    assert not is_trivial([0.3, 0.3001])


@given(st.lists(st.lists(st.none() | st.floats(-10, 10), max_size=5), min_size=1, max_size=6))
def test_turn_advantages_add_up_to_nothing_at_each_turn(rewards_GT):
    found = turn_advantages(rewards_GT)
    assert [len(one) for one in found] == [len(one) for one in rewards_GT]
    for turn in range(5):
        assert math.fsum(one[turn] for one in found if turn < len(one)) == NOTHING
    for rewards_T, advantages_T in zip(rewards_GT, found):
        assert all(advantage == 0.0 for reward, advantage in zip(rewards_T, advantages_T) if reward is None)
