"""Distributions of times, against scipy's and against each other; fits, against what made the data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy import stats as theirs
from scipy.linalg import expm

from penstock.stats.distributions import (
    Gamma,
    HyperErlang,
    Law,
    Lognormal,
    Observations,
    PhaseType,
    Uniform,
)
from penstock.stats.distributions.em import (
    fit_erlang,
    fit_gamma,
    fit_hyper_erlang,
    fit_lognormal,
    fit_uniform,
)
from penstock.stats.distributions.moments import gamma_of, hyper_erlang_of, lognormal_of
from penstock.stats.distributions.selection import select
from penstock.stats.histogram import Histogram

# S0, Table 6.1: B_S = 7, in milliseconds.
TABLE_6_1 = HyperErlang(
    (0.173600, 0.145600, 0.192600, 0.177733, 0.150733, 0.159733),
    (44, 148, 13, 18, 170, 72),
    (0.10376298, 0.20615273, 0.10828728, 0.06701713, 0.19943805, 0.12419047),
)
TIMES = np.linspace(0.01, 60, 200)

rates = st.floats(0.05, 20)


@st.composite
def phase_types(draw: st.DrawFn) -> PhaseType:
    """Any chain: every state may lead to every other one, and to the end."""
    size = draw(st.integers(1, 6))
    generator = np.array(
        [[draw(st.one_of(st.just(0.0), rates)) for _ in range(size)] for _ in range(size)]
    )
    np.fill_diagonal(generator, 0)
    exits = np.array([draw(rates) for _ in range(size)])
    np.fill_diagonal(generator, -generator.sum(axis=1) - exits)
    weights = np.array([draw(st.floats(0.01, 1)) for _ in range(size)])
    return PhaseType(weights / weights.sum(), generator)


@st.composite
def hyper_erlangs(draw: st.DrawFn) -> HyperErlang:
    count = draw(st.integers(1, 4))
    weights = [draw(st.floats(0.05, 1)) for _ in range(count)]
    return HyperErlang(
        tuple(weight / sum(weights) for weight in weights),
        tuple(draw(st.integers(1, 60)) for _ in range(count)),
        tuple(draw(rates) for _ in range(count)),
    )


PAIRS = [
    pytest.param(Gamma(36.0582, 2.35251), theirs.gamma(36.0582, scale=2.35251), id="gamma"),
    pytest.param(Gamma(0.4, 3), theirs.gamma(0.4, scale=3), id="gamma below 1"),
    pytest.param(HyperErlang.erlang(5, 2.0), theirs.erlang(5, scale=0.5), id="Erlang"),
    pytest.param(Lognormal(1, 0.7), theirs.lognorm(0.7, scale=math.e), id="lognormal"),
    pytest.param(Uniform(3, 40), theirs.uniform(3, 37), id="uniform"),
]


@pytest.mark.parametrize(("law", "scipys"), PAIRS)
def test_the_common_ones_are_those_of_scipy(law: Law, scipys: theirs.rv_continuous) -> None:
    assert law.pdf(TIMES) == pytest.approx(scipys.pdf(TIMES), rel=1e-9, abs=1e-300)
    assert law.cdf(TIMES) == pytest.approx(scipys.cdf(TIMES), rel=1e-9)
    assert law.sf(TIMES * 10) == pytest.approx(scipys.sf(TIMES * 10), rel=1e-8, abs=1e-300)
    for order in (1, 2, 3):
        assert law.moment(order) == pytest.approx(scipys.moment(order), rel=1e-9)
    shares = [0.001, 0.1, 0.5, 0.99, 0.9999]
    assert law.quantile(shares) == pytest.approx(scipys.ppf(shares), rel=1e-9)
    assert (float(law.cdf(-1)), float(law.sf(-1)), float(law.pdf(-1))) == (0, 1, 0)


def test_what_the_document_says_of_its_gamma_distribution() -> None:
    """S0 prints 0.14 for P(> 100 ms)."""
    assert float(Gamma(36.0582, 2.35251).sf(100)) == pytest.approx(0.1421, abs=5e-5)


@given(phase_types())
def test_a_phase_type_distribution_is_what_the_matrix_exponential_says(law: PhaseType) -> None:
    ones = np.ones(law.initial.size)
    for time in (0.0, 0.03, 0.7, 5.0):
        after = law.initial @ expm(law.generator * time)
        assert float(law.sf(time)) == pytest.approx(float(after @ ones), abs=1e-11)
        assert float(law.pdf(time)) == pytest.approx(float(after @ law.exit_rates), abs=1e-9)
    inverse = np.linalg.inv(law.generator)
    assert law.mean == pytest.approx(float(-law.initial @ inverse @ ones), rel=1e-9)
    assert law.moment(2) == pytest.approx(float(2 * law.initial @ inverse @ inverse @ ones))


@given(phase_types(), st.floats(0, 0.9999))
def test_a_quantile_is_where_the_distribution_function_has_its_share(
    law: PhaseType, share: float
) -> None:
    assert float(law.cdf(law.quantile(share))) == pytest.approx(share, abs=1e-9)


@given(hyper_erlangs())
def test_a_hyper_erlang_distribution_is_a_chain(law: HyperErlang) -> None:
    chain = law.to_phase_type()
    at = law.quantile([0.01, 0.3, 0.9, 0.999])
    assert chain.sf(at) == pytest.approx(law.sf(at), rel=1e-8)
    assert chain.pdf(at) == pytest.approx(law.pdf(at), rel=1e-7, abs=1e-12)
    for order in (1, 2, 3):
        assert chain.moment(order) == pytest.approx(law.moment(order), rel=1e-8)


@given(hyper_erlangs())
def test_a_density_adds_up_to_the_distribution_function(law: HyperErlang) -> None:
    low, high = (float(at) for at in law.quantile([0.2, 0.9]))
    area, _ = integrate.quad(lambda x: float(law.pdf(x)), low, high, limit=500)
    assert area == pytest.approx(float(law.cdf(high) - law.cdf(low)), abs=1e-6)


@pytest.mark.parametrize(
    "law",
    [
        TABLE_6_1,
        TABLE_6_1.to_phase_type(),
        PhaseType([0.3, 0.7], [[-3.0, 1.0], [2.0, -2.5]]),
        Gamma(2.5, 4),
        Lognormal(1, 0.5),
        Uniform(1, 2),
    ],
    ids=["Table 6.1", "Table 6.1 as a chain", "chain", "gamma", "lognormal", "uniform"],
)
def test_samples_are_of_the_distribution(law: Law) -> None:
    count = 4_000 if isinstance(law, PhaseType) and law.initial.size > 99 else 20_000
    values = np.sort(law.sample(count, np.random.default_rng()))
    steps = np.arange(1, count + 1) / count
    distance = float(np.abs(law.cdf(values) - steps).max())
    # Kolmogorov's bound that one sample in a million exceeds.
    assert distance < math.sqrt(math.log(2 / 1e-6) / (2 * count)) + 1 / count


def test_a_chain_may_end_before_it_begins() -> None:
    law = PhaseType([0.6], [[-2.0]])
    assert float(law.sf(0)) == pytest.approx(0.6)
    assert law.mean == pytest.approx(0.3)
    assert float(law.quantile(0.2)) == pytest.approx(0, abs=1e-9)
    assert np.mean(law.sample(20_000, np.random.default_rng()) == 0) == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Gamma(0, 1), "shape must be a finite number above 0"),
        (lambda: Gamma(1, math.inf), "scale must be"),
        (lambda: Lognormal(math.nan, 1), "mu must be"),
        (lambda: Uniform(3, 3), "low < high"),
        (lambda: HyperErlang.erlang(0, 1), "phases must be"),
        (lambda: HyperErlang((0.5, 0.4), (1, 1), (1, 1)), "must add up to 1"),
        (lambda: HyperErlang((1.0,), (1, 2), (1,)), "one entry per branch"),
        (lambda: HyperErlang((1.0,), (1.5,), (1,)), "whole numbers"),  # type: ignore[arg-type]
        (lambda: PhaseType([1.0], [[-1.0, 0.0]]), "square matrix"),
        (lambda: PhaseType([1.0], [[1.0]]), "must not add up to more than 0"),
        (lambda: PhaseType([0.5, 0.6], [[-1, 0], [0, -1]]), "at most 1"),
        (lambda: PhaseType([1.0, 0.0], [[-1, -1], [0, -1]]), "at least 0 beside"),
        (lambda: PhaseType([1.0, 0.0], [[-1.0, 1.0], [1.0, -1.0]]), "absorption must be reachable"),
        (lambda: Gamma(1, 1).moment(1) and TABLE_6_1.quantile(1.0), "below 1"),
        (lambda: Observations.of([]), "at least one observation"),
        (lambda: Observations.of([1.0, 0.0]), "above 0"),
        (lambda: Observations.of([1.0, 9.0], limit=5, censored=3), "limit must not be below"),
        (lambda: fit_hyper_erlang(Observations.of([1.0]), branches=11), "branches must be from 1"),
    ],
)
def test_impossible_parameters_are_refused(make: object, problem: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=problem):
        make()


# --- fits -----------------------------------------------------------------------------------------


def largest_difference(one: Law, two: Law) -> float:
    at = np.concatenate([one.quantile(np.linspace(0.001, 0.9999, 2000)), TIMES])
    return float(np.abs(one.cdf(at) - two.cdf(at)).max())


def test_table_6_1_is_recovered_without_its_branches_or_phases() -> None:
    data = Observations.of(TABLE_6_1.sample(100_000, np.random.default_rng()))
    selection = select(data)
    assert selection.best.name == "hyper-Erlang"
    assert largest_difference(TABLE_6_1, selection.best.law) <= 0.005
    assert "its AIC is lower than that of" in selection.reason
    fitted = selection.best.law
    assert isinstance(fitted, HyperErlang)
    assert 4 <= len(fitted.phases) <= 8
    assert fitted.mean == pytest.approx(TABLE_6_1.mean, rel=0.01)
    assert fitted.deviation == pytest.approx(TABLE_6_1.deviation, rel=0.02)


@pytest.mark.parametrize(
    ("law", "name"),
    [
        (Gamma(36.0582, 2.35251), "gamma"),
        (Lognormal(3, 0.4), "lognormal"),
        (Uniform(70, 640), "uniform"),
    ],
)
def test_the_simplest_that_fits_is_chosen(law: Law, name: str) -> None:
    selection = select(Observations.of(law.sample(20_000, np.random.default_rng())))
    # A hyper-Erlang distribution may come close by chance, and is not wrong then.
    best = selection.best if selection.best.name == name else selection.candidates[1]
    assert best.name == name
    assert best.aic - selection.best.aic < 15
    assert largest_difference(law, best.law) < 0.02


CENSORED_AT = 0.8  # of all


@pytest.mark.parametrize(
    ("law", "fit"),
    [
        (Gamma(3.5, 10), fit_gamma),
        (Lognormal(3, 0.6), fit_lognormal),
        (Uniform(10, 90), fit_uniform),
        (HyperErlang.erlang(4, 0.2), fit_erlang),
        (HyperErlang((0.4, 0.6), (20, 9), (1.0, 0.1)), fit_hyper_erlang),
    ],
    ids=["gamma", "lognormal", "uniform", "Erlang", "hyper-Erlang"],
)
def test_a_fifth_that_is_only_known_to_be_late_does_not_bend_the_fit(law: Law, fit: object) -> None:
    """Forgetting the censored tail would halve the mean of some."""
    assert callable(fit)
    values = law.sample(40_000, np.random.default_rng())
    limit = float(law.quantile(CENSORED_AT))
    known = values[values <= limit]
    data = Observations.of(known, limit=limit, censored=float(values.size - known.size))
    fitted = fit(data)
    assert float(fitted.sf(limit)) == pytest.approx(1 - CENSORED_AT, abs=0.015)
    assert fitted.mean == pytest.approx(law.mean, rel=0.05)
    assert largest_difference(law, fitted) < 0.02


def test_histograms_of_runs_are_observations() -> None:
    law = Gamma(9, 3)  # milliseconds
    values = law.sample(30_000, np.random.default_rng())
    histogram = Histogram.of((values * 1e6).astype(np.int64))
    data = Observations.of_histogram(histogram)
    assert data.total == 30_000
    fitted = fit_gamma(data)
    assert fitted.shape == pytest.approx(9, rel=0.05)
    assert fitted.scale == pytest.approx(3, rel=0.05)


def test_joined_bins_keep_total_and_mean() -> None:
    data = Observations.of(TABLE_6_1.sample(50_000, np.random.default_rng()))
    joined = data.coarse(100)
    assert joined.weights.size <= 100 < data.weights.size
    assert joined.total == data.total
    assert joined.weights @ joined.middles == pytest.approx(float(data.weights @ data.middles))


def test_values_that_are_all_alike_get_a_narrow_distribution() -> None:
    fitted = fit_hyper_erlang(Observations.of(np.full(100, 7.0)))
    assert fitted.mean == pytest.approx(7, rel=0.01)
    assert fitted.deviation < 0.2


def test_nothing_but_late_times_cannot_be_fitted() -> None:
    none = np.empty(0)
    data = Observations(none, none, none, none, limit=10.0, censored=5.0)
    for fit in (fit_gamma, fit_uniform, fit_hyper_erlang):
        with pytest.raises(ValueError, match="all observations are censored"):
            fit(data)


@given(st.floats(0.01, 1e4), st.floats(0.05, 10))
def test_two_moments_are_matched(mean: float, deviations: float) -> None:
    variance = (deviations * mean) ** 2
    for law in (
        gamma_of(mean, variance),
        lognormal_of(mean, variance),
        hyper_erlang_of(mean, variance),
    ):
        assert law.mean == pytest.approx(mean, rel=1e-6)
        assert law.variance == pytest.approx(variance, rel=1e-6)


@given(hyper_erlangs())
def test_three_moments_are_matched(law: HyperErlang) -> None:
    """Those of any distribution; one Erlang branch alone is the limit that no mixture reaches."""
    excess = law.mean * law.moment(3) / law.moment(2) ** 2 - 1
    matched_third = law.moment(3) * (1 + max(0.0, 0.01 - excess))
    matched = hyper_erlang_of(law.mean, law.variance, matched_third)
    assert matched.mean == pytest.approx(law.mean, rel=1e-6)
    assert matched.variance == pytest.approx(law.variance, rel=1e-5)
    assert matched.moment(3) == pytest.approx(matched_third, rel=1e-5)


def test_moments_that_nothing_has_are_refused() -> None:
    with pytest.raises(ValueError, match="no positive time has the moments"):
        hyper_erlang_of(1, 1, third_moment=3.9)
    with pytest.raises(ValueError, match="take it as constant"):
        hyper_erlang_of(1, 1e-9)
    with pytest.raises(ValueError, match="variance must be"):
        hyper_erlang_of(1, 0)
