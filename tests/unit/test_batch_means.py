"""Intervals by batch means: how often they hold the truth, which is known because we made it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter

from penstock import specs
from penstock.domain.metrics import Estimate
from penstock.stats import batch_means
from penstock.stats.batch_means import (
    compare,
    disagreement,
    of_ratio,
    of_repeats,
    of_share,
)
from penstock.stats.histogram import EMPTY, Histogram

Floats = npt.NDArray[np.float64]
# Of 300 intervals that hold the truth with 95 %, fewer than 88 % do so once in ten million times.
RUNS, MOST_OF_THEM = 300, 0.88


def ar1(rng: np.random.Generator, correlation: float, count: int) -> Floats:
    """Mean 0, variance 1, each value `correlation` times the one before plus something new."""
    noise = rng.standard_normal(count) * math.sqrt(1 - correlation**2)
    noise[0] = rng.standard_normal()
    return np.asarray(lfilter([1], [1, -correlation], noise))


def holds(estimate: Estimate, truth: float) -> bool:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= truth <= estimate.high


def width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


def naive(values: Floats) -> Estimate:
    """The formula for independent values."""
    mean, half = values.mean(), 1.96 * values.std(ddof=1) / math.sqrt(len(values))
    return Estimate(value=mean, low=mean - half, high=mean + half)


def coverage(one: Callable[[np.random.Generator], bool], runs: int = RUNS) -> float:
    rng = np.random.default_rng()  # no pinned seed: the claim is about the method
    return sum(one(rng) for _ in range(runs)) / runs


# --- means and rates -----------------------------------------------------------------------------


def test_independent_slices_get_the_interval_of_the_textbook() -> None:
    widths = []

    def one(rng: np.random.Generator) -> bool:
        values = 5 + rng.standard_normal(300)
        estimate = of_ratio(values, np.ones(300))
        widths.append(width(estimate) / width(naive(values)))
        return holds(estimate, 5)

    assert coverage(one) > MOST_OF_THEM
    assert 1 < np.mean(widths) < 1.25


@pytest.mark.parametrize(("correlation", "textbook"), [(0.5, 0.74), (0.8, 0.49), (0.95, 0.25)])
def test_correlated_slices_are_covered_where_the_textbook_fails(
    correlation: float, textbook: float
) -> None:
    """The textbook's interval is too short by √((1 + φ) / (1 - φ)), which makes those shares."""
    counted = []

    def one(rng: np.random.Generator) -> bool:
        values = 5 + ar1(rng, correlation, 500)
        counted.append(holds(naive(values), 5))
        return holds(of_ratio(values, np.ones(500)), 5)

    assert coverage(one) > 0.84
    assert np.mean(counted) < textbook + 0.12


def test_slices_of_unequal_weight_count_by_their_weight() -> None:
    """Busy slices are slow slices: the mean of the slices' means would miss the truth."""

    def one(rng: np.random.Generator) -> bool:
        counts = rng.poisson(20, 200) + 1
        times = counts * counts + counts * rng.standard_normal(200)
        # E[n²] / E[n] with n = 1 + Poisson(20)
        return holds(of_ratio(times, counts), (20 + 21**2) / 21)

    assert coverage(one) > MOST_OF_THEM


def test_batches_are_few_and_in_order_of_time() -> None:
    rng = np.random.default_rng(5)
    estimate = of_ratio(rng.random(3000), np.ones(3000))
    assert 10 <= len(estimate.batches) <= 30
    assert np.mean(estimate.batches) == pytest.approx(estimate.value, rel=0.01)
    drift = of_ratio(np.linspace(0, 1, 3000), np.ones(3000))
    assert len(drift.batches) == 10
    assert list(drift.batches) == sorted(drift.batches)


def test_a_drift_makes_the_interval_wide_and_not_narrow() -> None:
    drift = of_ratio(np.linspace(0, 1, 3000), np.ones(3000))
    assert drift.low is not None
    assert drift.high is not None
    assert drift.high - drift.low > 0.6  # ten independent batches would give .43


def test_three_slices_are_too_few_for_an_interval() -> None:
    estimate = of_ratio([1, 2, 3], [1, 1, 1])
    assert (estimate.value, estimate.low, estimate.high) == (2, None, None)
    assert of_ratio([1, 2, 3, 2], [1, 1, 1, 1]).low is not None


def test_slices_with_nothing_in_them_say_nothing() -> None:
    full = of_ratio([1, 2, 3, 2, 4], [1, 2, 1, 1, 2])
    assert of_ratio([1, 0, 2, 3, 0, 2, 4, 0], [1, 0, 2, 1, 0, 1, 2, 0]) == full
    assert math.isnan(of_ratio([], []).value)
    assert math.isnan(of_ratio([0, 0], [0, 0]).value)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        of_ratio([1, 2], [1])
    with pytest.raises(ValueError, match="denominator"):
        of_ratio([1, 2], [1, 0])
    with pytest.raises(ValueError, match="denominator"):
        of_ratio([1, 2], [1, -1])
    with pytest.raises(ValueError, match="more hits than messages"):
        of_share([5], [4])


def test_a_rate_is_not_below_zero() -> None:
    estimate = of_ratio([0, 0, 0, 100, 0, 0], [1] * 6)
    assert estimate.low == 0


# --- shares --------------------------------------------------------------------------------------


def bursts(rng: np.random.Generator, messages: int, share: float, length: float) -> Floats:
    """1 for a lost message: runs of `length` on the average, `share` of all."""
    pairs = int(4 * messages * share / length) + 100
    lost, kept = rng.geometric([1 / length, share / (1 - share) / length], (pairs, 2)).T
    fates = np.repeat(np.tile([1.0, 0.0], pairs), np.stack([lost, kept], axis=1).reshape(-1))
    # From somewhere in the middle, so that it does not begin with a loss.
    start = int(rng.integers(messages // 2, messages))
    assert len(fates) >= start + messages
    return fates[start : start + messages]


@pytest.mark.parametrize(("share", "length"), [(0.01, 50), (0.3, 50), (0.02, 200)])
def test_losses_in_bursts_are_covered_where_the_binomial_fails(share: float, length: int) -> None:
    counted = []

    def one(rng: np.random.Generator) -> bool:
        lost = bursts(rng, 100_000, share, length)
        counted.append(holds(naive(lost), share))
        return holds(of_share(lost.reshape(200, -1).sum(1), np.full(200, 500)), share)

    assert coverage(one, runs=150) > 0.84
    assert np.mean(counted) < 0.4


def test_independent_losses_are_covered() -> None:
    def one(rng: np.random.Generator) -> bool:
        return holds(of_share(rng.binomial(500, 0.003, 200), np.full(200, 500)), 0.003)

    assert coverage(one) > MOST_OF_THEM


def test_nothing_lost_is_not_proof_that_nothing_ever_is() -> None:
    none = of_share([0] * 100, [1200] * 100, together=1)
    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(3 / 120_000, rel=0.01)  # the rule of three
    requests = of_share([0] * 100, [1200] * 100, together=40)
    assert requests.high == pytest.approx(3 * 40 / 120_000, rel=0.01)
    slices = of_share([0] * 100, [1200] * 100)
    assert slices.high == pytest.approx(3 / 100, rel=0.02)
    everything = of_share([1200] * 100, [1200] * 100, together=40)
    assert (everything.value, everything.high) == (1, 1)
    assert everything.low == pytest.approx(1 - 3 * 40 / 120_000, rel=0.01)


def test_the_bound_of_what_was_never_seen_is_right_for_bursts_of_the_given_length() -> None:
    """4,000 messages in requests of 40 that live or die together: 100 trials."""
    share = 0.03

    def one(rng: np.random.Generator) -> bool:
        lost = 40.0 * rng.binomial(1, share, 100)
        return holds(of_share(lost, np.full(100, 40), together=40), share)

    assert coverage(one) > 0.86


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=40))
def test_a_share_and_its_interval_are_between_0_and_1(slices: list[tuple[int, int]]) -> None:
    hits, misses = [a for a, _ in slices], [b for _, b in slices]
    estimate = of_share(hits, [a + b for a, b in slices])
    if sum(hits) + sum(misses) == 0:
        assert math.isnan(estimate.value)
    elif estimate.low is not None and estimate.high is not None:
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
        assert estimate.low < estimate.high


def test_equal_slices_do_not_give_certainty() -> None:
    estimate = of_share([1] * 50, [10] * 50)
    assert holds(estimate, 0.08)
    assert holds(estimate, 0.12)


# --- quantiles -----------------------------------------------------------------------------------


def of_quantile(slices: list[Histogram], q: float) -> Estimate:
    return batch_means.of_quantiles(slices, (q,))[0]


@pytest.mark.parametrize(("correlation", "q"), [(0, 0.5), (0, 0.999), (0.95, 0.5), (0.95, 0.99)])
def test_quantiles_are_covered_with_correlation_too(correlation: float, q: float) -> None:
    truth = math.exp(15 + stats.norm.ppf(q))

    def one(rng: np.random.Generator) -> bool:
        times = np.exp(15 + ar1(rng, correlation, 20_000)).astype(np.int64)
        estimate = of_quantile([Histogram.of(part) for part in times.reshape(100, -1)], q)
        if estimate.low is None or estimate.high is None:
            return True
        # Three digits is what a histogram can tell.
        return estimate.low * 0.999 <= truth <= estimate.high * 1.001

    assert coverage(one, runs=60) > 0.8


def test_the_value_of_a_quantile_is_that_of_all_slices_together() -> None:
    rng = np.random.default_rng(5)
    slices = [Histogram.of(rng.lognormal(15, 1, 500).astype(np.int64)) for _ in range(50)]
    whole = Histogram.merged(slices)
    for q, estimate in zip(
        (0.5, 0.99), batch_means.of_quantiles([*slices, EMPTY], (0.5, 0.99)), strict=True
    ):
        assert estimate.value == whole.percentile(100 * q)
        assert holds(estimate, estimate.value)
        assert 10 <= len(estimate.batches) <= 30


def test_no_interval_beyond_the_sample() -> None:
    rng = np.random.default_rng(5)
    slices = [Histogram.of(rng.lognormal(15, 1, 20).astype(np.int64)) for _ in range(50)]
    assert of_quantile(slices, 0.5).high is not None
    for q in (0.999, 1.0, 0.0):
        estimate = of_quantile(slices, q)
        assert estimate.low is None
        assert estimate.high is None
    assert of_quantile(slices, 1.0).value == max(h.max_ns for h in slices)
    assert math.isnan(of_quantile([EMPTY], 0.5).value)
    assert of_quantile(slices[:3], 0.5).low is None


def test_nanoseconds_to_milliseconds() -> None:
    estimate = Estimate(value=2e6, low=1e6, high=3e6, batches=(1e6, 3e6))
    assert batch_means.scaled(estimate, 1e-6) == Estimate(value=2, low=1, high=3, batches=(1, 3))
    assert batch_means.scaled(Estimate(value=2e6), 1e-6) == Estimate(value=2)


# --- several runs --------------------------------------------------------------------------------


def test_repeats_are_independent_of_each_other() -> None:
    def one(rng: np.random.Generator) -> bool:
        return holds(of_repeats(list(5 + rng.standard_normal(3))), 5)

    assert coverage(one) > MOST_OF_THEM
    assert of_repeats([1.0, 2.0, 3.0]).batches == (1, 2, 3)
    assert of_repeats([7.0]) == Estimate(value=7)
    assert math.isnan(of_repeats([]).value)


def test_repeats_are_not_surer_than_the_runs_they_are_made_of() -> None:
    one = of_share([0] * 100, [1000] * 100, together=10)
    three = of_repeats([one, one, one])
    assert one.high is not None
    assert (three.value, three.low) == (0, 0)
    assert three.high == pytest.approx(one.high / math.sqrt(3))


def test_two_runs_of_one_thing_do_not_differ_and_two_of_two_things_do() -> None:
    def differs(shift: float) -> Callable[[np.random.Generator], bool]:
        def one(rng: np.random.Generator) -> bool:
            a, b = (of_ratio(5 + d + ar1(rng, 0.8, 300), np.ones(300)) for d in (0, shift))
            return compare(a, b).exceeds_noise

        return one

    assert coverage(differs(0.0)) < 0.13
    assert coverage(differs(2.0), runs=50) > 0.9


def test_a_difference_has_a_sign_and_an_interval() -> None:
    a = Estimate(value=10, low=9, high=11, batches=(9, 10, 11))
    b = Estimate(value=14, low=12, high=17, batches=(12, 14, 17))
    up, down = compare(a, b), compare(b, a)
    assert (up.difference, up.exceeds_noise) == (4, True)
    assert up.low == pytest.approx(4 - math.hypot(2, 1))
    assert up.high == pytest.approx(4 + math.hypot(3, 1))
    assert up.low is not None
    assert up.high is not None
    assert (down.difference, down.low, down.high) == (-4, -up.high, -up.low)
    assert not compare(a, a).exceeds_noise
    assert specs.to_data(up)["exceeds_noise"] is True


def test_without_an_interval_nothing_exceeds_the_noise() -> None:
    known = Estimate(value=10, low=9, high=11)
    difference = compare(known, Estimate(value=1000))
    assert (difference.difference, difference.low, difference.exceeds_noise) == (990, None, False)


def test_no_loss_against_much_loss_exceeds_the_noise_and_against_little_does_not() -> None:
    none = of_share([0] * 100, [1000] * 100, together=10)
    rng = np.random.default_rng(5)
    much = of_share(rng.binomial(1000, 0.1, 100), [1000] * 100)
    little = of_share([0] * 99 + [3], [1000] * 100)
    assert compare(none, much).exceeds_noise
    assert not compare(none, little).exceeds_noise


# --- repeats that disagree -----------------------------------------------------------------------


def runs_of(rng: np.random.Generator, *means: float, correlation: float = 0.8) -> list[Estimate]:
    return [of_ratio(mean + ar1(rng, correlation, 300), np.ones(300)) for mean in means]


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_runs_of_one_thing_seldom_disagree(correlation: float) -> None:
    # So low a level that chance alone makes a difference that matters.
    def one(rng: np.random.Generator) -> bool:
        return disagreement(runs_of(rng, 1, 1, 1, correlation=correlation)) is not None

    assert coverage(one) < 0.07


def test_a_run_that_stands_out_disagrees() -> None:
    def one(rng: np.random.Generator) -> bool:
        return disagreement(runs_of(rng, 5, 5, 7)) is not None

    assert coverage(one, runs=100) > 0.9


def test_a_disagreement_has_its_numbers() -> None:
    around = [Estimate(value=v, low=v - 1, high=v + 1) for v in (10.0, 10.5, 14.0)]
    result = disagreement(around)
    assert result is not None
    assert (result.smallest, result.largest) == (10, 14)
    distances = np.array([10, 10.5, 14]) - 11.5
    q = (1.959964**2 * distances**2).sum()
    assert result.p_value == pytest.approx(stats.chi2.sf(q, 2))
    assert specs.to_data(result)["largest"] == 14


def test_runs_that_are_close_agree_however_sure_they_are() -> None:
    sure = [Estimate(value=v, low=v - 0.001, high=v + 0.001) for v in (10.0, 10.9)]
    assert disagreement(sure) is None
    assert disagreement([*sure, replace(sure[0], value=11.1, low=11, high=11.2)]) is not None


def test_the_side_that_faces_the_others_counts() -> None:
    low = Estimate(value=10, low=9.9, high=20)
    high = Estimate(value=15, low=5, high=15.1)
    assert disagreement([low, high]) is None
    assert disagreement([replace(low, low=0, high=10.1), replace(high, low=14.9, high=25)])


def test_no_loss_against_much_loss_disagrees() -> None:
    none = of_share([0] * 100, [1000] * 100, together=10)
    rng = np.random.default_rng(5)
    much = of_share(rng.binomial(1000, 0.1, 100), [1000] * 100)
    assert disagreement([none, none]) is None
    result = disagreement([none, much])
    assert result is not None
    assert result.smallest == 0


def test_without_two_intervals_nothing_disagrees() -> None:
    known = Estimate(value=10, low=9, high=11)
    no_width = Estimate(value=20, low=20, high=20)
    unknown = Estimate(value=math.nan, low=1, high=2)
    for repeats in ([], [known], [known, Estimate(value=99)], [known, no_width], [known, unknown]):
        assert disagreement(repeats) is None
    assert disagreement([no_width, replace(no_width, value=1, low=1, high=1)]) is None
    assert disagreement([known, no_width, replace(known, value=30, low=29, high=31)]) is not None


sides = st.one_of(st.just(0.0), st.floats(1e-12, 1e6))


@given(st.lists(st.tuples(st.floats(0, 1e9), sides, sides), max_size=8))
def test_any_intervals_have_a_p_value(rows: list[tuple[float, float, float]]) -> None:
    result = disagreement([Estimate(value=v, low=v - a, high=v + b) for v, a, b in rows])
    if result is not None:
        assert 0 <= result.p_value < 0.01
        assert result.largest > 1.1 * result.smallest


# --- from run to run -------------------------------------------------------------------------------


def test_the_interval_of_a_run_allows_for_what_varies_between_runs() -> None:
    rng = np.random.default_rng(3)
    setting_mean, deviation, n = 10.0, 4.0, 400
    covered = narrow = 0
    for _ in range(n):
        # Each run has a mean of its own, as far from the setting's as is allowed for.
        mean = rng.normal(setting_mean, batch_means.RUN_TO_RUN * deviation)
        # Of messages that scatter by 4, the mean of four hundred scatters by 0.2.
        sums = rng.normal(mean, deviation / 20, 30)
        own = batch_means.of_ratio(sums.tolist(), [1.0] * 30)
        wide = batch_means.over_runs(own, deviation)
        assert wide.low is not None and wide.high is not None
        assert own.low is not None and own.high is not None
        covered += wide.low <= setting_mean <= wide.high
        narrow += own.low <= setting_mean <= own.high
    assert 0.92 <= covered / n <= 0.98
    assert narrow / n < 0.6


def test_without_an_interval_or_a_deviation_there_is_nothing_to_widen() -> None:
    bare = Estimate(value=3.0)
    assert batch_means.over_runs(bare, 1.0) == bare
    fixed = Estimate(value=3.0, low=2.9, high=3.1)
    same = batch_means.over_runs(fixed, 0.0)
    assert same.low == pytest.approx(2.9) and same.high == pytest.approx(3.1)
    assert same == replace(fixed, low=same.low, high=same.high)
    assert batch_means.over_runs(fixed, 100.0).low == 0.0
