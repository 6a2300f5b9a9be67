"""Lines and means over the repeats of an experiment. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from penstock.domain.facts import FittedLine, Over, PointConditions
from penstock.domain.metrics import Distribution, Estimate
from penstock.stats.batch_means import CONFIDENCE, of_repeats
from penstock.stats.histogram import Histogram

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def fit_line(
    x: Sequence[float], y: Sequence[float], *, figure: str, over: Over, conditions: PointConditions
) -> FittedLine | None:
    """Ordinary least squares, y = intercept + slope·x, with 95 % intervals of both (Student's t,
    n − 2 degrees of freedom). None if x does not vary; without intervals if n is 2.

    Every repeat is one observation: repeats are on clusters of their own, so they are independent,
    and a mean over them would hide how much they differ.
    """
    if len(set(x)) < 2:
        return None
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    n = len(xs)
    centred = xs - xs.mean()
    spread = float(centred @ centred)
    slope = float(centred @ (ys - ys.mean())) / spread
    intercept = float(ys.mean() - slope * xs.mean())
    rest = ys - intercept - slope * xs
    left, total = float(rest @ rest), float(np.square(ys - ys.mean()).sum())
    # All equal: the line explains all there is to explain.
    r_squared = 1 - left / total if total > 0 else 1.0
    if n == 2:
        ends = (Estimate(value=intercept), Estimate(value=slope))
        residual = 0.0
    else:
        residual = math.sqrt(left / (n - 2))
        t = float(special.stdtrit(n - 2, (1 + CONFIDENCE) / 2))
        slope_error = residual / math.sqrt(spread)
        intercept_error = residual * math.sqrt(1 / n + float(xs.mean()) ** 2 / spread)
        ends = (_around(intercept, t * intercept_error), _around(slope, t * slope_error))
    return FittedLine(
        figure=figure,
        over=over,
        intercept=ends[0],
        slope=ends[1],
        r_squared=max(0.0, r_squared),
        residual=residual,
        observations=n,
        valid_from=float(xs.min()),
        valid_to=float(xs.max()),
        conditions=conditions,
    )


def _around(value: float, half: float) -> Estimate:
    return Estimate(value=value, low=value - half, high=value + half)


def distribution(histograms: Sequence[Histogram]) -> Distribution | None:
    """One distribution from several repeats: buckets of all, figures as means over the repeats."""
    full = [h for h in histograms if h.count]
    if not full:
        return None
    whole = Histogram.merged(full)

    def over(values_ns: Sequence[float]) -> Estimate:
        return of_repeats([value / 1e6 for value in values_ns])

    return Distribution(
        count=whole.count,
        mean_ms=over([h.mean_ns for h in full]),
        deviation_ms=whole.deviation_ns / 1e6,
        percentiles_ms={f"{p:g}": over([h.percentile(p) for h in full]) for p in PERCENTILES},
        min_ms=whole.min_ns / 1e6,
        max_ms=whole.max_ns / 1e6,
        buckets=whole.to_buckets(),
    )


def merged_distribution(repeats: Sequence[Distribution]) -> Distribution | None:
    """The same from distributions that were written down."""
    return distribution([Histogram.of_distribution(times) for times in repeats])
