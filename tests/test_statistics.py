"""Statistics of rewards, checked against numpy, scipy and statsmodels, and by their laws."""

import itertools
import math

import msgspec
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from verifiers.statistics import (
    Bounds,
    Summary,
    avg_at_k,
    clustered_standard_error,
    default_ks,
    mean_bounds,
    mean_scored,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    summarise,
    t_quantile_975,
)

rewards = st.floats(min_value=0, max_value=1, allow_nan=False).map(lambda x: round(x, 6))
rows_of_a_run = st.lists(st.tuples(st.integers(0, 6), st.none() | rewards), max_size=40)


def at(summary, k):
    (found,) = [entry for entry in summary.at_k if entry.k == k]
    return found


# --- counts, mean, bounds ---


def test_error_is_not_a_zero_in_the_mean():
    summary = summarise([(0, 1.0), (1, 1.0), (2, 0.0), (3, None)])
    assert summary.mean == pytest.approx(2 / 3)
    assert summary.scored_text == "3 of 4 scored"
    assert (summary.n_unscored, summary.n_examples, summary.n_examples_scored) == (1, 4, 3)
    assert summary.bounds == Bounds(lower=0.50, upper=0.75)


def test_all_errors_have_no_mean():
    summary = summarise([(0, None), (0, None), (1, None), (1, None)])
    assert summary.mean is None
    assert summary.scored_text == "0 of 4 scored"
    assert summary.bounds == Bounds(lower=0.0, upper=1.0)
    assert (summary.standard_error, summary.interval) == (None, None)
    assert [(entry.k, entry.n_examples, entry.pass_at_k) for entry in summary.at_k] == [(1, 0, None), (2, 0, None)]


def test_run_without_rollouts_has_nothing():
    summary = summarise([])
    assert (summary.n_total, summary.mean, summary.bounds, summary.at_k) == (0, None, None, ())


def test_range_moves_the_bounds_and_observed_rewards_widen_it():
    assert mean_bounds([1.0, None], reward_range=(-1.0, 1.0)) == Bounds(lower=0.0, upper=1.0)
    assert mean_bounds([3.0, None]) == Bounds(lower=1.5, upper=3.0)
    assert mean_bounds([-2.0, None]) == Bounds(lower=-2.0, upper=-0.5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_reward_that_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="example 'x'"):
        summarise([("x", bad)])


def test_summary_survives_json():
    summary = summarise([(0, 1.0), (1, None), (2, 0.0)])
    assert msgspec.json.decode(msgspec.json.encode(summary), type=Summary) == summary


@given(rows_of_a_run)
def test_mean_lies_within_bounds_and_agrees_with_numpy(rows):
    summary = summarise(rows)
    scored = [reward for _, reward in rows if reward is not None]
    assert summary.n_scored == len(scored)
    if scored:
        assert summary.mean == pytest.approx(np.mean(scored), abs=1e-12)
        assert summary.bounds.lower - 1e-12 <= summary.mean <= summary.bounds.upper + 1e-12
    if rows and len(scored) == len(rows):
        assert summary.bounds.lower == summary.bounds.upper == summary.mean


@given(rows_of_a_run, st.randoms())
def test_order_of_rows_does_not_matter(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    one, other = summarise(rows), summarise(shuffled)
    assert (one.mean, one.bounds) == (other.mean, other.bounds)
    assert one.standard_error == (None if other.standard_error is None else pytest.approx(other.standard_error))
    assert [entry.n_examples for entry in one.at_k] == [entry.n_examples for entry in other.at_k]
    assert [entry.pass_at_k for entry in one.at_k] == [entry.pass_at_k for entry in other.at_k]


# --- standard error and interval ---


@given(st.lists(rewards, min_size=2, max_size=30))
def test_with_one_try_each_it_is_the_ordinary_standard_error(values):
    assert clustered_standard_error([[value] for value in values]) == pytest.approx(scipy.stats.sem(values), abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=5), min_size=2, max_size=12))
def test_clustered_standard_error_agrees_with_statsmodels(clusters):
    from statsmodels.regression.linear_model import OLS

    values = np.concatenate(clusters)
    groups = np.repeat(np.arange(len(clusters)), [len(cluster) for cluster in clusters])
    fit = OLS(values, np.ones_like(values)).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    assert clustered_standard_error(clusters) == pytest.approx(float(fit.bse[0]), abs=1e-9)

    rows = [(int(group), float(value)) for group, value in zip(groups, values, strict=True)]
    interval = summarise(rows).interval
    assert (interval.low, interval.high) == pytest.approx(tuple(map(float, fit.conf_int()[0])), abs=1e-9)


def test_equal_tries_add_no_certainty():
    once = clustered_standard_error([[0.0], [1.0], [1.0]])
    assert clustered_standard_error([[0.0] * 8, [1.0] * 8, [1.0] * 8]) == pytest.approx(once)


def test_one_example_has_no_standard_error():
    assert clustered_standard_error([[0.0, 1.0, 1.0]]) is None
    assert clustered_standard_error([[0.0, 1.0], []]) is None
    assert summarise([(0, 0.0), (0, 1.0)]).interval is None


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 10, 29, 30, 199, 200, 201, 500, 10_000, 1_000_000])
def test_t_quantile_agrees_with_scipy(df):
    assert t_quantile_975(df) == pytest.approx(scipy.stats.t.ppf(0.975, df), rel=1e-9)


def test_t_quantile_needs_two_examples():
    with pytest.raises(ValueError, match="two or more examples"):
        t_quantile_975(0)


def test_interval_holds_the_true_mean_nineteen_times_of_twenty():
    generator = np.random.default_rng(7)
    hits = 0
    for _ in range(1000):
        skill = generator.normal(0.0, 1.0, size=(6, 1))  # six examples whose tries resemble each other
        tries = skill + generator.normal(0.0, 0.3, size=(6, 4))
        interval = summarise([(i, float(x)) for i, row in enumerate(tries) for x in row]).interval
        hits += interval.low <= 0.0 <= interval.high
    assert 930 <= hits <= 970


# --- k tries ---


def test_pass_at_k_of_the_worked_examples():
    assert pass_at_k(1, 1, 4) is None and pass_hat_k(1, 1, 4) is None
    assert [pass_at_k(4, 1, k) for k in (1, 2, 4)] == [0.25, 0.5, 1.0]
    assert pass_hat_k(4, 1, 2) == 0.0
    assert pass_hat_k(4, 1, 1) == 0.25


def test_k_counts_only_examples_with_enough_scored_tries():
    rows = [("a", 1.0), ("a", 0.0), ("a", 0.0), ("a", 0.0), ("b", 1.0), ("b", 1.0), ("b", None), ("b", None)]
    summary = summarise(rows)
    assert [entry.k for entry in summary.at_k] == [1, 2, 4]
    assert (at(summary, 4).n_examples, at(summary, 4).pass_at_k, at(summary, 4).pass_hat_k) == (1, 1.0, 0.0)
    assert (at(summary, 2).n_examples, at(summary, 2).pass_at_k, at(summary, 2).pass_hat_k) == (2, 0.75, 0.5)
    assert at(summary, 1).pass_at_k == at(summary, 1).avg_at_k == 0.625


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.booleans(), min_size=n, max_size=n)), st.integers(1, 6))
def test_k_estimators_equal_counting_all_draws(tries, k):
    draws = list(itertools.combinations(tries, k))
    n, c = len(tries), sum(tries)
    if not draws:
        assert pass_at_k(n, c, k) is pass_hat_k(n, c, k) is avg_at_k(tries, k) is None
        return
    assert pass_at_k(n, c, k) == pytest.approx(np.mean([any(draw) for draw in draws]))
    assert pass_hat_k(n, c, k) == pytest.approx(np.mean([all(draw) for draw in draws]))
    assert avg_at_k(tries, k) == pytest.approx(np.mean([np.mean(draw) for draw in draws]))


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_hat_is_at_most_the_share_and_pass_at_at_least(ncks):
    n, c, k = ncks
    assert 0.0 <= pass_hat_k(n, c, k) <= c / n <= pass_at_k(n, c, k) <= 1.0


def test_pass_at_k_stays_exact_for_many_tries():
    assert pass_at_k(10_000, 1, 5_000) == 0.5
    assert pass_at_k(100_000, 50_000, 1) == 0.5


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, -2)])
def test_impossible_counts_are_refused(n, c, k):
    with pytest.raises(ValueError, match="needed"):
        pass_at_k(n, c, k)
    with pytest.raises(ValueError, match="needed"):
        pass_hat_k(n, c, k)


def test_threshold_decides_what_passes():
    rows = [(0, 0.4), (0, 0.6)]
    assert at(summarise(rows), 1).pass_at_k == 0.5
    assert at(summarise(rows, pass_threshold=0.7), 1).pass_at_k == 0.0
    assert at(summarise(rows, pass_threshold=0.4), 1).pass_at_k == 1.0
    assert at(summarise(rows, pass_threshold=0.7), 2).avg_at_k == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("n", "ks"), [(0, ()), (1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (1, 2, 4)), (10, (1, 2, 4, 8, 10))]
)
def test_default_ks_are_powers_of_two_and_the_number_of_tries(n, ks):
    assert default_ks(n) == ks


def test_asked_ks_are_used():
    assert [entry.k for entry in summarise([(0, 1.0)] * 5, ks=[5, 3]).at_k] == [5, 3]


# --- two runs ---


def test_paired_difference_joins_by_example():
    baseline = [("a", 0.0), ("a", 1.0), ("b", 0.0), ("c", 1.0), ("d", None)]
    candidate = [("b", 1.0), ("a", 1.0), ("d", 1.0), ("c", None)]
    difference = paired_difference(baseline, candidate)
    assert (difference.n_examples, difference.n_only_baseline, difference.n_only_candidate) == (2, 1, 1)
    assert (difference.baseline_mean, difference.candidate_mean, difference.mean) == (0.25, 1.0, 0.75)
    assert difference.standard_error == pytest.approx(0.25)


def test_runs_without_a_shared_example_have_no_difference():
    difference = paired_difference([("a", 1.0)], [("b", 1.0)])
    assert difference.n_examples == 0
    assert (difference.mean, difference.standard_error, difference.interval) == (None, None, None)


@given(st.lists(st.tuples(rewards, rewards), min_size=2, max_size=30))
def test_paired_difference_agrees_with_the_paired_t_test(pairs):
    baseline, candidate = zip(*pairs, strict=True)
    difference = paired_difference(list(enumerate(baseline)), list(enumerate(candidate)))
    deltas = np.subtract(candidate, baseline)
    assert difference.mean == pytest.approx(np.mean(deltas), abs=1e-12)
    assert difference.standard_error == pytest.approx(scipy.stats.sem(deltas), abs=1e-12)
    margin = scipy.stats.t.ppf(0.975, len(pairs) - 1) * scipy.stats.sem(deltas)
    assert difference.interval.low == pytest.approx(np.mean(deltas) - margin, abs=1e-9)
    assert difference.interval.high == pytest.approx(np.mean(deltas) + margin, abs=1e-9)


@given(rows_of_a_run, rows_of_a_run)
def test_swapping_the_runs_flips_the_sign(one, other):
    there, back = paired_difference(one, other), paired_difference(other, one)
    assert there.n_examples == back.n_examples
    if there.mean is not None:
        assert there.mean == pytest.approx(-back.mean, abs=1e-12)
        assert there.standard_error == (None if back.standard_error is None else pytest.approx(back.standard_error))


def test_means_skip_what_is_not_scored():
    assert mean_scored([None, 1.0, None, 0.0]) == 0.5
    assert mean_scored([None]) is None
