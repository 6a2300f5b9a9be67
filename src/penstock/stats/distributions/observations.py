"""What a distribution is fitted to: a weighted histogram, with a censored tail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from penstock.stats.distributions.law import Floats, Law, times
from penstock.stats.histogram import Histogram, bucket_index, lower_edge_ns, upper_edge_ns

# The width of the bins of single values, as a share of the value: that of HDR histograms.
_RESOLUTION = 1e-3
# Enough that a fit does not notice, and few enough that it is fast.
_MOST_BINS = 800


@dataclass(frozen=True, eq=False)
class Observations:
    """Bins [lower, upper) with a weight each, in ascending order, and a weight above `limit`.

    A weight is a number of observations, or a part of one. `middles` are the means of the bins, as far
    as they are known. What is censored is only known to be above the limit: messages that were
    given up after it, or that had not arrived when the run ended.
    """

    lower: Floats
    upper: Floats
    weights: Floats
    middles: Floats
    limit: float = 0.0
    censored: float = 0.0

    def __post_init__(self) -> None:
        if self.total <= 0:
            raise ValueError("there must be at least one observation")
        if np.any(self.weights < 0) or self.censored < 0:
            raise ValueError("weights must be 0 or more")
        if np.any(self.lower < 0) or np.any(self.upper <= self.lower):
            raise ValueError("bins must be above 0 and have a width")
        if np.any(np.diff(self.lower) <= 0) or np.any(self.lower[1:] < self.upper[:-1] - 1e-9):
            raise ValueError("bins must be in ascending order and must not overlap")
        if self.censored and self.lower.size and self.limit < self.lower[-1]:
            raise ValueError("limit must not be below the last bin: what is above it is censored")

    @classmethod
    def of(cls, values: npt.ArrayLike, *, limit: float = 0.0, censored: float = 0.0) -> Self:
        """Of single values, which must be above 0."""
        found = times(values)
        if not np.all(np.isfinite(found) & (found > 0)):
            raise ValueError("values must be finite numbers above 0")
        index = np.floor(np.log(found) / np.log1p(_RESOLUTION)).astype(np.int64)
        bins, place, counts = np.unique(index, return_inverse=True, return_counts=True)
        sums = np.bincount(place, weights=found, minlength=bins.size)
        lower = np.exp(bins * np.log1p(_RESOLUTION))
        upper = np.exp((bins + 1) * np.log1p(_RESOLUTION))
        return cls(lower, upper, counts.astype(float), sums / counts, limit, censored)

    @classmethod
    def of_histogram(
        cls,
        histogram: Histogram,
        *,
        unit_ns: float = 1e6,
        limit: float = 0.0,
        censored: float = 0.0,
    ) -> Self:
        """Of a histogram, in milliseconds or another unit."""
        edges = np.asarray([lower for lower, _ in histogram.to_buckets()], dtype=np.int64)
        counts = times([count for _, count in histogram.to_buckets()])
        index = bucket_index(edges)
        lower, upper = lower_edge_ns(index) / unit_ns, (upper_edge_ns(index) + 1) / unit_ns
        return cls(lower, upper, counts, (lower + upper) / 2, limit, censored)

    @property
    def total(self) -> float:
        return float(self.weights.sum() + self.censored)

    def coarse(self, most: int = _MOST_BINS) -> Observations:
        """Neighbouring bins joined, about as heavy each. The mean of all stays the same."""
        if self.weights.size <= most:
            return self
        share = np.cumsum(self.weights) / self.weights.sum()
        # By weight, but also by place: the tail has few observations and needs its bins.
        by_weight = np.minimum((share * most / 2).astype(np.int64), most // 2 - 1)
        span = np.log(self.upper[-1] / self.lower[self.lower > 0][0])
        first = self.lower[self.lower > 0][0]
        place = np.log(np.maximum(self.middles, first) / first) / span
        by_place = np.minimum((place * most / 2).astype(np.int64), most // 2 - 1)
        group = by_weight + by_place
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        weights = np.add.reduceat(self.weights, starts)
        means = np.add.reduceat(self.weights * self.middles, starts) / np.maximum(weights, 1e-300)
        ends = np.append(starts[1:], self.weights.size) - 1
        return Observations(
            self.lower[starts], self.upper[ends], weights, means, self.limit, self.censored
        )

    def log_likelihood(self, law: Law) -> float:
        """Of the bins: the logarithm of the probability of what was observed."""
        inside = np.where(
            self.middles < law.mean,
            law.cdf(self.upper) - law.cdf(self.lower),
            law.sf(self.lower) - law.sf(self.upper),
        )
        tiny = np.finfo(np.float64).tiny
        likelihood = float(self.weights @ np.log(np.maximum(inside, tiny)))
        if self.censored:
            likelihood += self.censored * float(np.log(max(float(law.sf(self.limit)), tiny)))
        return likelihood

    def distance(self, law: Law) -> float:
        """The largest difference between both distribution functions, at the upper edges."""
        empirical = np.cumsum(self.weights) / self.total
        return float(np.abs(empirical - law.cdf(self.upper)).max(initial=0.0))
