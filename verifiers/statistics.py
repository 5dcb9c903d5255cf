"""Statistics of rewards: means with honest counts, bounds, clustered errors, pass@k, paired differences.

Plain numbers in, frozen values out. A reward of None is *unscored*: it is left out of every mean and
shown in the counts. An example is the unit of sampling; its tries are not independent of each other,
so errors are clustered by example.
"""

import math
from collections import deque
from collections.abc import Hashable, Iterable, Sequence

import msgspec

Row = tuple[Hashable, float | None]  # example_id, reward (None: unscored)

# The largest degrees of freedom for which Student's t is computed by its finite sum.
_EXACT_T_LIMIT = 200
_NORMAL_QUANTILE_975 = 1.959963984540054


class Bounds(msgspec.Struct, frozen=True):
    """The mean if every unscored rollout had the smallest reward of the range, and the largest."""

    lower: float
    upper: float


class Interval(msgspec.Struct, frozen=True):
    """A two-sided 95 % confidence interval. Not cut to the range of the rewards."""

    low: float
    high: float


class AtK(msgspec.Struct, frozen=True):
    """Results for k tries, averaged over the examples with at least k scored ones; None if there is none."""

    k: int
    n_examples: int
    pass_at_k: float | None  # at least one of k tries passes
    pass_hat_k: float | None  # all of k tries pass (pass^k)
    avg_at_k: float | None  # mean reward of k tries


class Summary(msgspec.Struct, frozen=True):
    """What one reward (or metric) amounts to over a run."""

    n_total: int
    n_scored: int
    n_examples: int
    n_examples_scored: int  # examples with at least one scored try: the clusters of the standard error
    mean: float | None  # over scored rollouts; None if none is scored
    bounds: Bounds | None  # None only without any rollout
    standard_error: float | None  # None with fewer than two scored examples
    interval: Interval | None  # None where standard_error is
    pass_threshold: float
    at_k: tuple[AtK, ...]

    @property
    def n_unscored(self) -> int:
        return self.n_total - self.n_scored

    @property
    def scored_text(self) -> str:
        return f"{self.n_scored} of {self.n_total} scored"


class PairedDifference(msgspec.Struct, frozen=True):
    """Candidate minus baseline, over the examples that both runs scored."""

    n_examples: int
    n_only_baseline: int  # examples left out because only this run has a scored try of them
    n_only_candidate: int
    baseline_mean: float | None
    candidate_mean: float | None
    mean: float | None
    standard_error: float | None
    interval: Interval | None


class Ungraded(msgspec.Struct, frozen=True):
    """How many rollouts that were to be graded could not be: of late, and before."""

    n: int  # rollouts that were to be graded
    n_ungraded: int
    n_recent: int  # the last so many of them
    recent_share: float | None  # None without any
    earlier_share: float | None  # of those before; None without any
    is_alarming: bool


class UngradedTrend:
    """Counts, in the order of their ends, rollouts that could not be graded (`undecided` or `fault`).

    It alarms while more than `alarm_above` of the last `window` could not be, and at least three.

    >>> trend = UngradedTrend(window=10)
    >>> for number in range(30):
    ...     trend.add(number >= 26)
    >>> trend.now.recent_share, trend.now.earlier_share, trend.now.is_alarming
    (0.4, 0.0, True)
    """

    LEAST = 3  # of a handful, one is already a large share

    def __init__(self, window: int = 200, alarm_above: float = 0.05) -> None:
        self.alarm_above = alarm_above
        self.n = self.n_ungraded = self._recent_ungraded = 0
        self._recent: deque[bool] = deque(maxlen=window)

    def add(self, is_ungraded: bool) -> None:
        if len(self._recent) == self._recent.maxlen:
            self._recent_ungraded -= self._recent[0]
        self._recent.append(is_ungraded)
        self._recent_ungraded += is_ungraded
        self.n += 1
        self.n_ungraded += is_ungraded

    @property
    def now(self) -> Ungraded:
        n_recent = len(self._recent)
        n_earlier = self.n - n_recent
        share = self._recent_ungraded / n_recent if n_recent else None
        return Ungraded(
            n=self.n,
            n_ungraded=self.n_ungraded,
            n_recent=n_recent,
            recent_share=share,
            earlier_share=(self.n_ungraded - self._recent_ungraded) / n_earlier if n_earlier else None,
            is_alarming=share is not None and share > self.alarm_above and self._recent_ungraded >= self.LEAST,
        )


def summarise(
    rows: Iterable[Row],
    *,
    pass_threshold: float = 0.5,
    reward_range: tuple[float, float] = (0.0, 1.0),
    ks: Sequence[int] | None = None,
) -> Summary:
    """Everything about one run's rewards. A try passes with a reward of at least `pass_threshold`.

    `ks` defaults to 1, 2, 4, 8 … and the largest number of tries of an example, scored or not.

    >>> summary = summarise([("a", 1.0), ("a", 1.0), ("b", 0.0), ("b", None)])
    >>> summary.scored_text, summary.bounds
    ('3 of 4 scored', Bounds(lower=0.5, upper=0.75))
    """
    rows = list(rows)
    rewards = [reward for _, reward in rows]
    scored = _scored_by_example(rows)
    if ks is None:
        ks = default_ks(max(_count_tries(rows).values(), default=0))
    mean = mean_scored(rewards)
    error = clustered_standard_error(scored.values())
    return Summary(
        n_total=len(rows),
        n_scored=sum(len(tries) for tries in scored.values()),
        n_examples=len({example_id for example_id, _ in rows}),
        n_examples_scored=len(scored),
        mean=mean,
        bounds=mean_bounds(rewards, reward_range=reward_range),
        standard_error=error,
        interval=confidence_interval(mean, error, degrees_of_freedom=len(scored) - 1),
        pass_threshold=pass_threshold,
        at_k=tuple(_at_k(scored.values(), k, pass_threshold) for k in ks),
    )


def paired_difference(baseline: Iterable[Row], candidate: Iterable[Row]) -> PairedDifference:
    """Compares two runs over the examples both scored.

    Each example counts once, with the difference of its two mean rewards; so the tries of an example
    form one cluster and the runs may have different numbers of them. The standard error is the sample
    standard deviation of these differences over the square root of their number.
    """
    of_baseline = {example_id: _mean(tries) for example_id, tries in _scored_by_example(baseline).items()}
    of_candidate = {example_id: _mean(tries) for example_id, tries in _scored_by_example(candidate).items()}
    shared = [example_id for example_id in of_baseline if example_id in of_candidate]
    differences = [of_candidate[example_id] - of_baseline[example_id] for example_id in shared]
    mean = mean_scored(differences)
    error = clustered_standard_error([difference] for difference in differences)
    return PairedDifference(
        n_examples=len(shared),
        n_only_baseline=len(of_baseline) - len(shared),
        n_only_candidate=len(of_candidate) - len(shared),
        baseline_mean=mean_scored(of_baseline[example_id] for example_id in shared),
        candidate_mean=mean_scored(of_candidate[example_id] for example_id in shared),
        mean=mean,
        standard_error=error,
        interval=confidence_interval(mean, error, degrees_of_freedom=len(shared) - 1),
    )


def mean_scored(rewards: Iterable[float | None]) -> float | None:
    """The mean of the rewards that are not None; None if there is none."""
    scored = [reward for reward in rewards if reward is not None]
    return _mean(scored) if scored else None


def mean_bounds(rewards: Iterable[float | None], *, reward_range: tuple[float, float] = (0.0, 1.0)) -> Bounds | None:
    """The mean with every unscored reward at the smallest, and at the largest, value of the range.

    A reward seen outside `reward_range` widens it: a bound that an observed reward breaks is none.
    None without any rollout.
    """
    rewards = list(rewards)
    if not rewards:
        return None
    scored = [reward for reward in rewards if reward is not None]
    low, high = min([reward_range[0], *scored]), max([reward_range[1], *scored])
    n_unscored = len(rewards) - len(scored)
    total = math.fsum(scored)
    return Bounds(
        lower=(total + n_unscored * low) / len(rewards),
        upper=(total + n_unscored * high) / len(rewards),
    )


def clustered_standard_error(clusters: Iterable[Sequence[float]]) -> float | None:
    """Standard error of the mean over all values, robust to any dependence inside a cluster.

    The cluster-robust ("sandwich") estimator of Liang and Zeger (1986) for a mean, with the usual
    small-sample factor. With G clusters, N values, their mean m, and e_g the sum of (x - m) over cluster g:

        SE = sqrt( G / (G - 1) * sum_g e_g^2 ) / N

    It equals the ordinary s / sqrt(N) when each cluster holds one value. None with fewer than two
    clusters: one example says nothing about the next.
    """
    clusters = [cluster for cluster in clusters if len(cluster)]
    if len(clusters) < 2:
        return None
    values = [value for cluster in clusters for value in cluster]
    mean = _mean(values)
    squares = math.fsum(math.fsum(value - mean for value in cluster) ** 2 for cluster in clusters)
    return math.sqrt(len(clusters) / (len(clusters) - 1) * squares) / len(values)


def confidence_interval(
    mean: float | None, standard_error: float | None, *, degrees_of_freedom: int
) -> Interval | None:
    """mean ± t · SE at 95 %, by Student's t with (number of clusters - 1) degrees of freedom.

    With the five examples of a quick run, t is 2.78; a normal 1.96 would be far too sure of itself.
    """
    if mean is None or standard_error is None:
        return None
    margin = t_quantile_975(degrees_of_freedom) * standard_error
    return Interval(low=mean - margin, high=mean + margin)


def share_interval(count: int, n: int) -> Interval | None:
    """95 % interval of a share, by Wilson: it stays within 0 and 1, and 0 of 20 is not "certainly none".

    >>> share_interval(0, 20)
    Interval(low=0.0, high=0.16113)
    """
    if n <= 0:
        return None
    z = 1.959964
    share, weight = count / n, 1 + z * z / n
    middle = (share + z * z / (2 * n)) / weight
    margin = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / weight
    return Interval(low=round(max(0.0, middle - margin), 5), high=round(min(1.0, middle + margin), 5))


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Chance that at least one of k tries, drawn from n of which c pass, passes. None if k > n.

    The unbiased estimator 1 - C(n-c, k) / C(n, k), in exact integers.
    """
    _check_counts(n, c, k)
    if k > n:
        return None
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """pass^k: chance that all of k tries, drawn from n of which c pass, pass: C(c, k) / C(n, k). None if k > n."""
    _check_counts(n, c, k)
    if k > n:
        return None
    return math.comb(c, k) / math.comb(n, k)


def avg_at_k(rewards: Sequence[float], k: int) -> float | None:
    """Mean reward of k tries of one example. None if it has fewer than k.

    Expected over the choice of the k tries, it is the mean of all of them: no order of tries is preferred.
    """
    _check_counts(len(rewards), 0, k)
    return _mean(rewards) if len(rewards) >= k else None


def default_ks(n_tries: int) -> tuple[int, ...]:
    """The powers of two up to `n_tries`, and `n_tries` itself."""
    powers = [1 << i for i in range(n_tries.bit_length()) if 1 << i <= n_tries]
    return tuple(sorted({*powers, n_tries} - {0}))


def t_quantile_975(degrees_of_freedom: int) -> float:
    """The 0.975 quantile of Student's t: what a two-sided 95 % interval multiplies the error with.

    Solved by bisection on the finite sum for whole degrees of freedom (Abramowitz and Stegun 26.7.3
    and 26.7.4); above 200 by the expansion around the normal quantile (26.7.5), right to 1e-9 there.
    """
    df = degrees_of_freedom
    if df < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, got {df}: use two or more examples")
    if df > _EXACT_T_LIMIT:
        return _t_from_normal(_NORMAL_QUANTILE_975, df)
    low, high = 1.0, 16.0  # the quantile lies between 1.96 (df → ∞) and 12.71 (df = 1)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _t_central_mass(middle, df) > 0.95 else (middle, high)
    return (low + high) / 2


def _t_central_mass(t: float, df: int) -> float:
    """Chance that |T| < t, for whole degrees of freedom."""
    theta = math.atan(t / math.sqrt(df))
    sine, cosine_squared = math.sin(theta), math.cos(theta) ** 2
    is_odd = df % 2
    term = math.cos(theta) if is_odd else 1.0
    total = 0.0
    for i in range(df // 2):
        total += term
        term *= cosine_squared * ((2 * i + 2) / (2 * i + 3) if is_odd else (2 * i + 1) / (2 * i + 2))
    return 2 / math.pi * (theta + sine * total) if is_odd else sine * total


def _t_from_normal(z: float, df: int) -> float:
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / df + second / df**2 + third / df**3


def _at_k(scored: Iterable[Sequence[float]], k: int, pass_threshold: float) -> AtK:
    eligible = [tries for tries in scored if len(tries) >= k]
    counts = [(len(tries), sum(reward >= pass_threshold for reward in tries)) for tries in eligible]
    return AtK(
        k=k,
        n_examples=len(eligible),
        pass_at_k=mean_scored(pass_at_k(n, c, k) for n, c in counts),
        pass_hat_k=mean_scored(pass_hat_k(n, c, k) for n, c in counts),
        avg_at_k=mean_scored(avg_at_k(tries, k) for tries in eligible),
    )


def _scored_by_example(rows: Iterable[Row]) -> dict[Hashable, list[float]]:
    """The scored rewards of each example that has any."""
    scored: dict[Hashable, list[float]] = {}
    for example_id, reward in rows:
        if reward is None:
            continue
        if not math.isfinite(reward):
            raise ValueError(f"the reward of example {example_id!r} is {reward}; an unscored rollout has None")
        scored.setdefault(example_id, []).append(reward)
    return scored


def _count_tries(rows: Iterable[Row]) -> dict[Hashable, int]:
    counts: dict[Hashable, int] = {}
    for example_id, _ in rows:
        counts[example_id] = counts.get(example_id, 0) + 1
    return counts


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _check_counts(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n:
        raise ValueError(f"of n={n} tries, c={c} cannot have passed: 0 <= c <= n is needed")
    if k < 1:
        raise ValueError(f"k={k}: at least one try is needed")
