"""Which example comes next: ratios, pools, rounds, and the same order again after a save."""

from collections import Counter
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.errors import ConfigError
from verifiers.rl.curriculum import Curriculum, CurriculumState, Draw, Share
from verifiers.rl.pools import DRAWN, RETIRED, SET_ASIDE, Pools, PoolSettings
from verifiers.rl.staleness import off_policy_steps


def pools(n=10, settings=None, seed=0, **given):
    return Pools(range(n), settings or PoolSettings(), Random(seed), **given)


def drawn(curriculum, n):
    return [(draw.env, draw.example_id) for draw in (curriculum.draw() for _ in range(n))]


def saved(curriculum):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(curriculum.state()), type=CurriculumState)


def test_every_example_comes_once_before_any_comes_again():
    some = pools(10)
    for _ in range(3):
        assert sorted(some.draw() for _ in range(10)) == list(range(10))


def test_rounds_differ_in_their_order():
    some = pools(50)
    assert [some.draw() for _ in range(50)] != [some.draw() for _ in range(50)]


def test_pools_are_drawn_by_probability_one_draw_at_a_time():
    """Ten of a hundred examples are easy; they get a tenth of the draws, not the int(1 × 0.1) = 0 of them."""
    rates = {n: 0.8 if n < 10 else 0.1 if n < 20 else 0.5 for n in range(100)}
    some = pools(100, pass_rates=rates)
    names = ["easy"] * 10 + ["hard"] * 10 + ["normal"] * 80
    counts = Counter(names[some.draw()] for _ in range(4000))
    assert 300 < counts["easy"] < 500
    assert 300 < counts["hard"] < 500


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.sampled_from([0.0, 1.0]), max_size=4)), max_size=60))
def test_a_draw_fails_only_when_nothing_is_left(settled):
    some = pools(6)
    for id, rewards in settled:
        some.settle(id, rewards)
        assert sum(some.sizes.values()) == 6
        drawable = sum(some.sizes[name] for name in DRAWN)
        found = some.draw()
        assert (found is None) == (drawable == 0) == some.is_empty


def test_a_pool_without_a_share_is_drawn_from_when_it_is_all_there_is():
    some = pools(3, PoolSettings(shares={"easy": 0, "normal": 1, "hard": 0}), pass_rates={0: 0.0, 1: 0.0, 2: 0.0})
    assert sorted(some.draw() for _ in range(3)) == [0, 1, 2]


def test_what_is_always_solved_is_retired():
    some = pools(2)
    some.settle(0, [1.0, 1.0])
    assert some.sizes[RETIRED] == 1
    assert {some.draw() for _ in range(10)} == {1}


def test_rewards_that_are_no_0_or_1_pass_from_a_threshold_on():
    some = pools(2, PoolSettings(pass_at=0.9))
    some.settle(0, [0.93, 0.97])
    some.settle(1, [0.89, 0.97])
    assert some.sizes[RETIRED] == 1
    assert some.sizes["normal"] == 1


def test_nothing_is_retired_when_told_so():
    some = pools(1, PoolSettings(retire_from=None))
    some.settle(0, [1.0])
    assert some.draw() == 0
    assert some.sizes["easy"] == 1


def test_pass_rates_of_a_hub_are_where_examples_begin():
    some = pools(5, pass_rates={0: 1.0, 1: 0.8, 2: 0.5, 3: 0.1, 99: 0.5})
    assert some.sizes == {"easy": 1, "normal": 2, "hard": 1, RETIRED: 1, SET_ASIDE: 0}


def test_what_came_to_nothing_is_not_the_next_one():
    for seed in range(20):
        some = pools(10, seed=seed)
        first = some.draw()
        some.give_back(first)
        assert some.draw() != first
        assert first in [some.draw() for _ in range(9)], "it comes again in this round"


def test_what_came_to_nothing_too_often_is_set_aside():
    some = pools(3, PoolSettings(max_returns=2))
    assert [some.give_back(0) for _ in range(3)] == [False, False, True]
    assert {some.draw() for _ in range(20)} == {1, 2}


def test_a_group_that_got_through_clears_the_count():
    some = pools(3, PoolSettings(max_returns=1))
    for _ in range(5):
        assert not some.give_back(0)
        some.settle(0, [0.0, 1.0])


def test_what_an_example_cannot_be_blamed_for_does_not_count():
    some = pools(3, PoolSettings(max_returns=0))
    assert not any(some.give_back(0, counts=False) for _ in range(9))


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=5), st.integers(1, 300))
def test_environments_keep_their_ratio_at_every_moment(weights, n):
    shares = {f"e{i}": Share(range(3), weight=weight) for i, weight in enumerate(weights)}
    counts = Counter(env for env, _ in drawn(Curriculum(shares), n))
    for i, weight in enumerate(weights):
        assert abs(counts[f"e{i}"] - n * weight / sum(weights)) <= max(1, len(weights) / 2)


def test_an_environment_without_examples_left_leaves_its_part_to_the_others():
    curriculum = Curriculum({"a": Share([0]), "b": Share([0])})
    curriculum.settle(Draw(0, "a", 0), [1.0])
    assert {env for env, _ in drawn(curriculum, 6)} == {"b"}
    curriculum.settle(Draw(0, "b", 0), [1.0])
    assert curriculum.draw() is None


@given(st.data())
def test_a_saved_curriculum_goes_on_with_the_same_draws(data):
    def shares():
        return {"a": Share(range(7), weight=2.0), "b": Share(range(4), pass_rates={1: 0.0})}

    whole = Curriculum(shares(), seed=3)
    for _ in range(data.draw(st.integers(0, 30))):
        draw = whole.draw()
        if draw is None:
            break
        if data.draw(st.booleans()):
            whole.settle(draw, data.draw(st.lists(st.sampled_from([0.0, 1.0]), max_size=3)))
        else:
            whole.give_back(draw)
    again = Curriculum(shares(), seed=99)
    again.restore(saved(whole))
    for _ in range(30):
        one, other = whole.draw(), again.draw()
        assert one == other
        if one is not None:
            assert whole.give_back(one) == again.give_back(one)
    assert whole.sizes() == again.sizes()


def test_examples_and_environments_may_change_between_the_parts_of_a_run():
    curriculum = Curriculum({"a": Share(range(10)), "gone": Share([0])})
    for _ in range(200):
        curriculum.draw()
    changed = Curriculum({"a": Share([8, 9, 10, 11]), "new": Share([0, 1])})
    changed.restore(saved(curriculum))
    after = drawn(changed, 40)
    assert {id for env, id in after if env == "a"} == {8, 9, 10, 11}
    assert 19 <= sum(env == "new" for env, _ in after) <= 21, "it does not catch up on what it never missed"
    assert changed.draw().number == 240


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Curriculum({}), "environment"),
        (lambda: Curriculum({"a": Share([])}), "no examples"),
        (lambda: Curriculum({"a": Share([0], weight=0)}), "weight of environment 'a'"),
        (lambda: Curriculum({"a": Share([0, 0])}), "must differ"),
        (lambda: pools(1, pass_rates={0: 1.5}), "pass rate of example 0"),
        (lambda: PoolSettings(shares={"easy": 1}), "shares"),
        (lambda: PoolSettings(shares={"easy": 0, "normal": 0, "hard": 0}), "shares"),
        (lambda: PoolSettings(hard_below=0.9), "hard_below"),
        (lambda: PoolSettings(retire_from=0.5), "retire_from"),
        (lambda: PoolSettings(max_returns=-1), "max_returns"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(make, named):
    with pytest.raises(ConfigError, match=named):
        make()


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_age_counts_the_weight_updates_in_between(step, version):
    if version > step:
        with pytest.raises(ValueError, match="before it"):
            off_policy_steps(step, version)
    else:
        assert off_policy_steps(step, version) == len(range(version, step))
