"""Confidence intervals by batch means, for correlated figures.

Messages that are sent one after the other meet the same queue, the same lost packet, the same dead
broker. The usual formulas take them for independent and are far too sure. So the time of a run is
cut into batches, long enough to be nearly independent of each other, and the interval comes from
how much the batches differ (Student's t). Callers give the sums of many short slices of equal
length, in order of time, at best one to three hundred; how many make a batch is found here, from
the correlation of neighbours. All intervals are of 95 %.

Source: B. Schmeiser, "Batch size effects in the analysis of simulation output" (1982), for 10 to
30 batches; J. von Neumann's ratio as the test, as A. Law and J. Carson (1979) use it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated

import numpy as np
import numpy.typing as npt
from scipy import special

from penstock.domain.metrics import Estimate
from penstock.domain.value import Doc, Value
from penstock.stats.histogram import Histogram, rank

CONFIDENCE = 0.95
# More batches make t barely smaller and the batches more alike; fewer make it much larger.
MOST_BATCHES, LEAST_BATCHES = 30, 10
_Z = float(special.ndtri((1 + CONFIDENCE) / 2))
# With three or fewer, nothing can be said about how much they differ.
_TOO_FEW = 4
# The share of independent batches that the test takes for correlated. Generous, since longer
# batches cost little and dependent ones make the interval wrong.
_SUSPICION = 0.25
_SUSPICIOUS = float(special.ndtri(1 - _SUSPICION))
# Repeats disagree if chance makes them differ that much once in a hundred times, and by more than
# what matters to anyone, as a share of the smallest.
_DISAGREEMENT = 0.01
_MATTERS = 0.1
# The standard deviation of a mean from run to run of one setting, as a share of that from message to
# message: Java compiles differently, threads share a core with others. bench/repeatability.py
# measured 0 to .10 in seven settings, and .15 in one.
RUN_TO_RUN = 0.1
# At a correlation of 0.9 an interval is 4.4 times as wide; beyond, the run is one long drift.
_MOST_CORRELATION = 0.9

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Difference(Value):
    """How far b is from a, with its 95 % interval."""

    difference: Annotated[float, Doc("b - a")]
    low: float | None = None
    high: float | None = None
    exceeds_noise: Annotated[
        bool, Doc("the interval leaves out 0; never true without an interval")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Disagreement(Value):
    """Runs of one cell that differ by more than their own intervals allow."""

    smallest: Annotated[float, Doc("of the runs that have an interval")]
    largest: float
    p_value: Annotated[float, Doc("how likely runs of one and the same thing differ that much")]


def of_ratio(numerators: npt.ArrayLike, denominators: npt.ArrayLike) -> Estimate:
    """Sum over sum: a mean (sums, counts), a rate (counts, seconds), per slice of the run.

    A slice with nothing in it (0 / 0) says nothing and is passed over.
    """
    tops, bottoms = _slices(numerators, denominators)
    if not len(tops):
        return Estimate(value=math.nan)
    value = float(tops.sum() / bottoms.sum())
    batches = _batched(tops, bottoms)
    if len(batches.tops) < _TOO_FEW:
        return Estimate(value=value, batches=batches.values)
    half = batches.half_width(value)
    return _estimate(value, half, half, batches.values)


def of_share(hits: npt.ArrayLike, counts: npt.ArrayLike, together: float | None = None) -> Estimate:
    """A share of messages, per slice: `hits` of `counts`.

    Batch means say how many independent trials the messages are worth, n = p (1 - p) / variance;
    the interval is Clopper and Pearson's for n trials (Korn and Graubard 1998). So it stays within
    [0, 1] and holds for rare events, where a symmetric one does not.

    If no message was hit, or every one, batches do not differ and say nothing about n, and what
    never happened does not say how many it strikes at once. `together` says how many neighbours
    share one fate (those of one request, say): n = messages / together. Without it, a whole slice
    shares one fate. The one bound is then about 3 / n away (the "rule of three").
    """
    tops, bottoms = _slices(hits, counts)
    if (tops < 0).any() or (tops > bottoms).any():
        raise ValueError("a slice has more hits than messages, or fewer than none")
    if not len(tops):
        return Estimate(value=math.nan)
    share = float(tops.sum() / bottoms.sum())
    batches = _batched(tops, bottoms)
    if share in (0.0, 1.0):
        trials = bottoms.sum() / (together or bottoms.mean())
        # All of the 5 % on one side: the other has no room.
        away = 1 - (1 - CONFIDENCE) ** (1 / max(1.0, float(trials)))
        low, high = (0.0, away) if share == 0 else (1 - away, 1.0)
        return Estimate(value=share, low=low, high=high, batches=batches.values)
    if len(batches.tops) < _TOO_FEW:
        return Estimate(value=share, batches=batches.values)
    low, high = _clopper_pearson(share, batches.trials(share))
    return Estimate(value=share, low=low, high=high, batches=batches.values)


def of_quantiles(slices: Sequence[Histogram], qs: Sequence[float]) -> tuple[Estimate, ...]:
    """Quantiles of all values, in ns, from one histogram per slice; .99 is the 99th percentile.

    The value is that of all slices together. Its interval is Woodruff's: batch means say within
    which shares [l, h] the share below that value may truly lie (as in `of_share`); the ends are
    the quantiles l and h. Unlike the spread of the batches' own quantiles, which `batches` holds,
    this works for p99.9 where a batch has fewer than a thousand values. Where h is the largest
    value, nothing was seen of what lies beyond, and there is no interval.
    """
    full = [histogram for histogram in slices if histogram.count]
    whole = Histogram.merged(full)
    if not whole.count:
        return tuple(Estimate(value=math.nan) for _ in qs)
    counts = [float(histogram.count) for histogram in full]
    # 0.07 · 100 is 7.000000000000001.
    return tuple(_of_percentile(full, counts, whole, round(q * 100, 9)) for q in qs)


def over_runs(estimate: Estimate, deviation: float) -> Estimate:
    """A time of one run, with an interval for its setting: wider by what varies from run to run,
    which no single run can show. `deviation` is the standard deviation of all messages."""
    if estimate.low is None or estimate.high is None:
        return estimate
    between = _Z * RUN_TO_RUN * deviation
    below, above = (math.hypot(side, between) for side in _sides(estimate))
    return replace(estimate, low=max(0.0, estimate.value - below), high=estimate.value + above)


def of_repeats(repeats: Sequence[float | Estimate]) -> Estimate:
    """The mean over several runs of one cell, each of which is independent of the others.

    Where estimates are given, the interval is not narrower than their own intervals allow: three
    runs that lost nothing do not prove that nothing is ever lost.
    """
    known = [r if isinstance(r, Estimate) else Estimate(value=float(r)) for r in repeats]
    known = [estimate for estimate in known if not math.isnan(estimate.value)]
    values = tuple(estimate.value for estimate in known)
    if not values:
        return Estimate(value=math.nan)
    n = len(values)
    if n == 1:
        return known[0]
    mean = sum(values) / n
    between = _quantile_of_t(n - 1) * math.sqrt(float(np.var(values, ddof=1)) / n)
    below, above = (math.hypot(*side) / n for side in zip(*map(_sides, known), strict=True))
    return _estimate(mean, max(between, below), max(between, above), values)


def disagreement(repeats: Sequence[Estimate], cells: int = 1) -> Disagreement | None:
    """How far runs of one cell are apart, if that is more than chance; None if they agree.

    `cells`: how many are looked at; the more, the likelier is one that differs by chance.

    W. Cochran's Q (1954): the squared distances from the weighted mean, each in units of its own
    standard error, follow χ² with one degree of freedom less than there are runs. The standard
    error is the side of the interval that faces the mean, over z; over t it would be smaller, and
    too small for an error that is itself an estimate from a few batches. A run without an
    interval, or with one of no width, says nothing about its error and is left out.

    Of three to five runs of one thing, 1 % disagree if their slices are independent, and 3 to 4 %
    if their slices have a correlation of .95, which makes `of_ratio`'s intervals too narrow.
    """
    known = [r for r in repeats if math.isfinite(r.value) and 0 < sum(_sides(r)) < math.inf]
    if len(known) < 2:
        return None
    values = np.array([r.value for r in known])
    smallest, largest = float(values.min()), float(values.max())
    if largest - smallest <= _MATTERS * abs(smallest):
        return None
    below, above = np.array([_sides(r) for r in known]).T
    # An interval that ends at the value itself (a share of 0) has but one side.
    below, above = np.where(below > 0, below, above), np.where(above > 0, above, below)
    widths = below + above
    mean = float(np.average(values, weights=(widths.min() / widths) ** 2))
    distances = _Z * (values - mean) / np.where(values > mean, below, above)
    p_value = float(special.chdtrc(len(known) - 1, float(distances @ distances)))
    if p_value >= _DISAGREEMENT / cells:
        return None
    return Disagreement(smallest=smallest, largest=largest, p_value=p_value)


def compare(a: Estimate, b: Estimate) -> Difference:
    """b - a, with an interval made of both of theirs, which need be neither alike nor symmetric.

    Zou and Donner (2008), "MOVER": for a difference upwards, what counts is how far b may lie lower
    and a higher. Where both are symmetric it is Welch's interval but for its degrees of freedom.
    """
    difference = b.value - a.value
    if None in (a.low, a.high, b.low, b.high) or math.isnan(difference):
        return Difference(difference=difference)
    (a_below, a_above), (b_below, b_above) = _sides(a), _sides(b)
    low = difference - math.hypot(b_below, a_above)
    high = difference + math.hypot(b_above, a_below)
    return Difference(difference=difference, low=low, high=high, exceeds_noise=low > 0 or high < 0)


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """In another unit: ns to ms with 1e-6."""
    return Estimate(
        value=estimate.value * factor,
        low=None if estimate.low is None else estimate.low * factor,
        high=None if estimate.high is None else estimate.high * factor,
        batches=tuple(batch * factor for batch in estimate.batches),
    )


# --- batches -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Batches:
    """Neighbouring slices joined. `correlation` is what is left between neighbours, if any."""

    tops: Floats
    bottoms: Floats
    bounds: tuple[int, ...]  # the first slice of each batch
    correlation: float = 0.0

    @property
    def values(self) -> tuple[float, ...]:
        return tuple((self.tops / self.bottoms).tolist())

    def half_width(self, ratio: float) -> float:
        """Of the interval around a ratio of sums (the ratio estimator), widened by correlation."""
        n = len(self.tops)
        residuals = self.tops - ratio * self.bottoms
        variance = n / (n - 1) * float(residuals @ residuals) / float(self.bottoms.sum()) ** 2
        widened = variance * (1 + self.correlation) / (1 - self.correlation)
        return _quantile_of_t(n - 1) * math.sqrt(widened)

    def trials(self, share: float) -> float:
        """How many independent messages say as much about a share as these do.

        The half width is t times the standard error, so the few batches are allowed for too. No
        more than there are messages: batches that are alike by a schedule prove nothing.
        """
        half = self.half_width(share)
        worth = share * (1 - share) * (_Z / half) ** 2 if half > 0 else math.inf
        return min(worth, float(self.bottoms.sum()))


def _slices(numerators: npt.ArrayLike, denominators: npt.ArrayLike) -> tuple[Floats, Floats]:
    tops = np.asarray(numerators, dtype=np.float64)
    bottoms = np.asarray(denominators, dtype=np.float64)
    if tops.shape != bottoms.shape or tops.ndim != 1:
        raise ValueError(f"{tops.shape} numerators do not fit {bottoms.shape} denominators")
    empty = bottoms == 0
    if (bottoms < 0).any() or (tops[empty] != 0).any():
        raise ValueError("a slice has a negative denominator, or 0 and yet a numerator")
    return tops[~empty], bottoms[~empty]


def _batched(tops: Floats, bottoms: Floats) -> _Batches:
    """Join neighbours until they look independent, or there are too few to join more.

    If ten are still alike, they are kept, and the interval is widened as for a first-order
    autoregressive process with their correlation.
    """
    ratio = tops.sum() / bottoms.sum()
    count = min(len(tops), MOST_BATCHES)
    while True:
        bounds = np.arange(count) * len(tops) // count
        joined = _Batches(
            np.add.reduceat(tops, bounds), np.add.reduceat(bottoms, bounds), tuple(bounds.tolist())
        )
        if count < _TOO_FEW:
            return joined
        correlation, is_certain = _correlation(joined.tops - ratio * joined.bottoms)
        if not is_certain:
            return joined
        if count <= LEAST_BATCHES:
            return replace(joined, correlation=min(correlation, _MOST_CORRELATION))
        count = max(LEAST_BATCHES, count * 3 // 4)


def _correlation(residuals: Floats) -> tuple[float, bool]:
    """Correlation of neighbours by von Neumann's ratio, and whether it is hardly chance."""
    squares = float(residuals @ residuals)
    if squares == 0:
        return 0.0, False
    n = len(residuals)
    steps = np.diff(residuals)
    # 1 minus half the ratio; for independent ones its mean is 0 and its variance (n-2)/(n²-1).
    statistic = 1 - float(steps @ steps) / (2 * squares)
    limit = _SUSPICIOUS * math.sqrt((n - 2) / (n * n - 1))
    # The statistic is the correlation but for the ends; it is low by about 1/n for a mean that was
    # estimated from the same numbers.
    return max(0.0, statistic + 1 / n), statistic > limit


# --- percentiles ---------------------------------------------------------------------------------


def _of_percentile(
    slices: list[Histogram], counts: list[float], whole: Histogram, percent: float
) -> Estimate:
    value = float(whole.percentile(percent))
    below = [float(histogram.count_at_most(int(value))) for histogram in slices]
    tops, bottoms = _slices(below, counts)
    batches = _batched(tops, bottoms)
    values = tuple(float(h.percentile(percent)) for h in _joined(slices, batches.bounds))
    if len(values) < _TOO_FEW:
        return Estimate(value=value, batches=values)
    share = float(tops.sum() / bottoms.sum())
    if percent == 0 or share == 1:
        return Estimate(value=value, batches=values)
    low, high = _clopper_pearson(percent / 100, batches.trials(share))
    if rank(100 * high, whole.count) == whole.count:
        return Estimate(value=value, batches=values)
    low_ns, high_ns = whole.percentiles((100 * low, 100 * high))
    return Estimate(value=value, low=float(low_ns), high=float(high_ns), batches=values)


def _joined(slices: list[Histogram], bounds: tuple[int, ...]) -> list[Histogram]:
    ends = (*bounds[1:], len(slices))
    return [Histogram.merged(slices[a:b]) for a, b in zip(bounds, ends, strict=True)]


# --- small parts ---------------------------------------------------------------------------------


def _estimate(value: float, below: float, above: float, batches: tuple[float, ...]) -> Estimate:
    """Times, rates and shares are never negative: where no batch is, the interval is not either."""
    low = value - below
    return Estimate(
        value=value,
        low=max(0.0, low) if min(batches) >= 0 else low,
        high=value + above,
        batches=batches,
    )


def _sides(estimate: Estimate) -> tuple[float, float]:
    """How far the interval reaches below and above its value; 0 without an interval."""
    if estimate.low is None or estimate.high is None:
        return 0.0, 0.0
    return estimate.value - estimate.low, estimate.high - estimate.value


def _clopper_pearson(share: float, trials: float) -> tuple[float, float]:
    """For any number of trials, also 12.5: the binomial distribution by way of the beta."""
    hits, misses, tail = share * trials, (1 - share) * trials, (1 - CONFIDENCE) / 2
    low = float(special.betaincinv(hits, misses + 1, tail))
    high = float(special.betaincinv(hits + 1, misses, 1 - tail))
    return low, high


@cache
def _quantile_of_t(freedom: int) -> float:
    return float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2))
