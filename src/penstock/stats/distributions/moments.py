"""Fits by moments: exact, and at once. For when there is no histogram, or no time."""

from __future__ import annotations

import math

from penstock.stats.distributions.common import Gamma, Lognormal
from penstock.stats.distributions.hyper_erlang import HyperErlang
from penstock.stats.distributions.law import positive

_MOST_PHASES = 10_000


def gamma_of(mean: float, variance: float) -> Gamma:
    """The gamma distribution with these moments."""
    positive(mean=mean, variance=variance)
    return Gamma(mean**2 / variance, variance / mean)


def lognormal_of(mean: float, variance: float) -> Lognormal:
    """The lognormal distribution with these moments."""
    positive(mean=mean, variance=variance)
    square = math.log1p(variance / mean**2)
    return Lognormal(math.log(mean) - square / 2, math.sqrt(square))


def hyper_erlang_of(mean: float, variance: float, third_moment: float | None = None) -> HyperErlang:
    """A hyper-Erlang distribution with two branches and these moments (E[X³], if it is given).

    Two moments, c² = variance / mean²: below 1 Erlang distributions of k − 1 and k phases and one
    rate, 1/k ≤ c² ≤ 1/(k − 1) (Tijms, Stochastic Models, 1994); from 1 on two exponential branches
    with balanced means.

    Three moments: two branches of n phases, with the least n that can have them. E[X^i] is
    n(n + 1)…(n + i − 1)·E[θ^i], where θ is the mean of a phase, so θ has two values with three
    given moments: the roots of a quadratic equation (Johnson and Taaffe, 1989).
    """
    positive(mean=mean, variance=variance)
    if variance / mean**2 < 1 / _MOST_PHASES:
        raise ValueError(
            f"a variance of {variance:g} with a mean of {mean:g} needs more than "
            f"{_MOST_PHASES:,} phases: take it as constant"
        )
    if third_moment is None:
        return _of_two(mean, variance / mean**2)
    return _of_three(mean, variance + mean**2, third_moment)


def _of_two(mean: float, c2: float) -> HyperErlang:
    if c2 >= 1:
        p = (1 + math.sqrt((c2 - 1) / (c2 + 1))) / 2
        return HyperErlang((p, 1 - p), (1, 1), (2 * p / mean, 2 * (1 - p) / mean))
    k = math.ceil(1 / c2 - 1e-9)
    root = math.sqrt(max(k * (1 + c2) - k * k * c2, 0.0))
    p = (k * c2 - root) / (1 + c2)
    rate = (k - p) / mean
    if p < 1e-12:
        return HyperErlang.erlang(k, rate)
    return HyperErlang((p, 1 - p), (k - 1, k), (rate, rate))


def _of_three(first: float, second: float, third: float) -> HyperErlang:
    excess = first * third - second**2
    if not (math.isfinite(third) and excess > 0):
        raise ValueError(
            f"no positive time has the moments {first:g}, {second:g} and {third:g}: "
            "E[X]·E[X³] must be above E[X²]²"
        )
    # Both must hold with the moments of θ: E[θ²] > E[θ]², E[θ]·E[θ³] > E[θ²]².
    least = max(first**2 / (second - first**2), (2 * second**2 - first * third) / excess)
    n = max(1, math.floor(least * (1 + 1e-9)) + 1)
    if n > _MOST_PHASES:
        raise ValueError(f"these moments need more than {_MOST_PHASES:,} phases in a branch")
    a, b, c = first / n, second / (n * (n + 1)), third / (n * (n + 1) * (n + 2))
    spread = b - a * a
    half, product = (c - a * b) / (2 * spread), (a * c - b * b) / spread
    root = math.sqrt(max(half * half - product, 0.0))
    high = half + root
    low = product / high
    p = (a - low) / (high - low)
    return HyperErlang((p, 1 - p), (n, n), (1 / high, 1 / low))
