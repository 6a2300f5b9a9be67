"""Fits by maximum likelihood: expectation-maximisation on a weighted, censored histogram.

A hyper-Erlang distribution is fitted as a mixture of gamma distributions, whose shapes are real
numbers that EM can move; then the shapes are rounded to phases, and probabilities and rates are
fitted again. So no search over combinations of phases is needed, and neither their number nor that
of the branches has to be known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from penstock.stats.distributions.common import Gamma, Lognormal, Uniform
from penstock.stats.distributions.hyper_erlang import HyperErlang
from penstock.stats.distributions.law import Floats
from penstock.stats.distributions.observations import Observations

Ints = npt.NDArray[np.int64]

MOST_BRANCHES = 10
MOST_PHASES = 5_000
_LEAST_SHAPE = 1e-3
# Of each start, and of the best of them.
_FIRST_ROUNDS, _ROUNDS = 40, 600
# Per observation and round; a fit that gains less has ended.
_GAIN = 1e-9
# Of the logarithm of a censored time: as many quantiles of it.
_QUANTILES = (np.arange(32) + 0.5) / 32


@dataclass
class _Mixture:
    """Gamma branches; arrays with an entry each."""

    probabilities: Floats
    shapes: Floats
    rates: Floats

    def log_densities(self, x: Floats) -> Floats:
        """Of every time (rows) in every branch (columns), weighted by its probability."""
        constants = (
            np.log(self.probabilities)
            + self.shapes * np.log(self.rates)
            - special.gammaln(self.shapes)
        )
        return np.asarray(
            np.log(x)[:, np.newaxis] * (self.shapes - 1) - x[:, np.newaxis] * self.rates + constants
        )


def fit_gamma(data: Observations) -> Gamma:
    """The gamma distribution of the highest likelihood."""
    mixture, _ = _run(_start(data, np.zeros(data.weights.size, dtype=np.int64)), data)
    return Gamma(float(mixture.shapes[0]), float(1 / mixture.rates[0]))


def fit_erlang(data: Observations) -> HyperErlang:
    """The Erlang distribution of the highest likelihood."""
    return fit_hyper_erlang(data, branches=1)


def fit_uniform(data: Observations) -> Uniform:
    """From the first bin to the last one, or the limit if times above it are censored.

    With censored times the end lies so far above the limit that their share is right.
    """
    used = np.flatnonzero(data.weights > 0)
    low = float(data.lower[used[0]]) if used.size else 0.0
    high = float(data.upper[used[-1]]) if used.size else data.limit
    if data.censored:
        inside = data.weights.sum() / data.total
        if inside <= 0 or data.limit <= low:
            raise ValueError("all observations are censored, so there is nothing to fit")
        high = low + (data.limit - low) / inside
    return Uniform(low, high)


def fit_lognormal(data: Observations) -> Lognormal:
    """The lognormal distribution of the highest likelihood."""
    logs, weights = np.log(data.middles), data.weights
    mean = float(weights @ logs / weights.sum())
    deviation = math.sqrt(max(float(weights @ (logs - mean) ** 2 / weights.sum()), 1e-12))
    for _ in range(_ROUNDS if data.censored else 0):
        # Moments of a normal distribution above the limit, by the inverse Mills ratio.
        z = (math.log(data.limit) - mean) / deviation
        mills = math.exp(-0.5 * z * z - 0.5 * math.log(2 * math.pi) - float(special.log_ndtr(-z)))
        first = mean + deviation * mills
        second = mean**2 + deviation**2 + deviation * (math.log(data.limit) + mean) * mills
        new = (float(weights @ logs) + data.censored * first) / data.total
        square = (float(weights @ logs**2) + data.censored * second) / data.total
        spread = math.sqrt(max(square - new**2, 1e-12))
        is_done = abs(new - mean) < 1e-10 and abs(spread - deviation) < 1e-10
        mean, deviation = new, spread
        if is_done:
            break
    return Lognormal(mean, deviation)


def fit_hyper_erlang(data: Observations, branches: int | None = None) -> HyperErlang:
    """The hyper-Erlang distribution of the highest likelihood with so many branches.

    Without `branches`, their number is the one with the lowest AIC: they are added one by one until
    two more have not lowered it.
    """
    if branches is not None and not 1 <= branches <= MOST_BRANCHES:
        raise ValueError(f"branches must be from 1 to {MOST_BRANCHES}, not {branches}")
    coarse = data.coarse()
    laws: list[HyperErlang] = []
    aics: list[float] = []
    mixture: _Mixture | None = None
    for count in range(1, (branches or MOST_BRANCHES) + 1):
        mixture = _best_of_starts(coarse, count, mixture)
        laws.append(_rounded(mixture, coarse))
        aics.append(2 * laws[-1].parameters - 2 * coarse.log_likelihood(laws[-1]))
        if branches is None and count > 2 and min(aics) not in aics[-2:]:
            break
    return laws[-1] if branches is not None else laws[aics.index(min(aics))]


def _best_of_starts(data: Observations, count: int, before: _Mixture | None) -> _Mixture:
    """EM from several starts: observations divided by rank and by place, and the mixture with one
    branch less in which each of the heaviest branches was split."""
    starts = [_start(data, _by_rank(data, count)), _start(data, _by_place(data, count))]
    if before is not None and before.shapes.size == count - 1:
        heaviest = np.argsort(-before.probabilities)[:3]
        starts += [_split(before, int(branch)) for branch in heaviest]
    tries = [_run(start, data, rounds=_FIRST_ROUNDS) for start in starts]
    best, _ = max(tries, key=lambda tried: tried[1])
    return _run(best, data)[0]


def _by_rank(data: Observations, count: int) -> Ints:
    share = (np.cumsum(data.weights) - data.weights / 2) / max(data.weights.sum(), 1e-300)
    return np.asarray(np.minimum((share * count).astype(np.int64), count - 1))


def _by_place(data: Observations, count: int) -> Ints:
    low, high = data.middles[0], data.middles[-1]
    share = (data.middles - low) / max(high - low, 1e-300)
    return np.asarray(np.minimum((share * count).astype(np.int64), count - 1))


def _start(data: Observations, group: Ints) -> _Mixture:
    """One branch per group of observations, with its mean and variance."""
    probabilities, shapes, rates = [], [], []
    for number in np.unique(group):
        weights = np.where(group == number, data.weights, 0.0)
        total = float(weights.sum())
        if total <= 0:
            continue
        mean = float(weights @ data.middles) / total
        variance = float(weights @ (data.middles - mean) ** 2) / total
        shape = min(max(mean**2 / max(variance, 1e-300), _LEAST_SHAPE), 500.0)
        probabilities.append(total)
        shapes.append(shape)
        rates.append(shape / mean)
    if not probabilities:
        raise ValueError("all observations are censored, so there is nothing to fit")
    shares = np.asarray(probabilities) / sum(probabilities)
    return _Mixture(shares, np.asarray(shapes), np.asarray(rates))


def _split(mixture: _Mixture, branch: int) -> _Mixture:
    """That branch as two narrower ones, half a standard deviation below and above its mean."""
    shape, rate = mixture.shapes[branch], mixture.rates[branch]
    mean, deviation = shape / rate, math.sqrt(shape) / rate
    means = np.asarray([max(mean - deviation / 2, mean / 4), mean + deviation / 2])
    shapes = np.full(2, min(1.4 * shape, MOST_PHASES))
    half = mixture.probabilities[branch] / 2
    others = np.arange(mixture.shapes.size) != branch
    return _Mixture(
        np.append(mixture.probabilities[others], [half, half]),
        np.append(mixture.shapes[others], shapes),
        np.append(mixture.rates[others], shapes / means),
    )


def _rounded(mixture: _Mixture, data: Observations) -> HyperErlang:
    phases = np.clip(np.rint(mixture.shapes), 1, MOST_PHASES)
    means = mixture.shapes / mixture.rates
    start = _Mixture(mixture.probabilities, phases, phases / means)
    fitted, _ = _run(start, data, moves_shapes=False)
    order = [i for i in np.argsort(fitted.shapes / fitted.rates) if fitted.probabilities[i] > 1e-9]
    shares = fitted.probabilities[order] / fitted.probabilities[order].sum()
    return HyperErlang(
        tuple(shares.tolist()),
        tuple(int(n) for n in fitted.shapes[order]),
        tuple(fitted.rates[order].tolist()),
    )


def _run(
    mixture: _Mixture, data: Observations, *, moves_shapes: bool = True, rounds: int = _ROUNDS
) -> tuple[_Mixture, float]:
    """EM until the likelihood gains no more; the mixture and its likelihood (by densities)."""
    likelihood = -math.inf
    for _ in range(rounds):
        mixture, reached = _step(mixture, data, moves_shapes)
        if reached - likelihood < _GAIN * data.total:
            break
        likelihood = reached
    return mixture, likelihood


def _step(mixture: _Mixture, data: Observations, moves_shapes: bool) -> tuple[_Mixture, float]:
    logs = mixture.log_densities(data.middles)
    highest = logs.max(axis=1)
    parts = np.exp(logs - highest[:, np.newaxis])
    sums_of_parts = parts.sum(axis=1)
    total_log = highest + np.log(sums_of_parts)
    parts *= (data.weights / sums_of_parts)[:, np.newaxis]
    likelihood = float(data.weights @ total_log)
    sizes = parts.sum(axis=0)
    sums, log_sums = parts.T @ data.middles, parts.T @ np.log(data.middles)
    if data.censored:
        tails = special.gammaincc(mixture.shapes, mixture.rates * data.limit)
        above = mixture.probabilities * tails
        likelihood += data.censored * math.log(max(float(above.sum()), 1e-300))
        late = data.censored * above / max(float(above.sum()), 1e-300)
        means, log_means = _above(mixture, data.limit, tails)
        sizes, sums, log_sums = sizes + late, sums + late * means, log_sums + late * log_means
    kept = sizes > 1e-12 * data.total
    sizes, sums, log_sums = sizes[kept], sums[kept], log_sums[kept]
    shapes = mixture.shapes[kept]
    if moves_shapes:
        shapes = _shape(np.log(sums / sizes) - log_sums / sizes)
    return _Mixture(sizes / sizes.sum(), shapes, shapes * sizes / sums), likelihood


def _above(mixture: _Mixture, limit: float, tails: Floats) -> tuple[Floats, Floats]:
    """The mean of a time of each branch above the limit, and of its logarithm."""
    safe = np.maximum(tails, 1e-300)
    means = mixture.shapes / mixture.rates
    means = means * special.gammaincc(mixture.shapes + 1, mixture.rates * limit) / safe
    shares = tails[:, np.newaxis] * (1 - _QUANTILES)
    places = special.gammainccinv(mixture.shapes[:, np.newaxis], shares)
    places = np.maximum(places / mixture.rates[:, np.newaxis], limit)
    is_far = ~np.isfinite(places).all(axis=1) | (tails <= 1e-300)
    logs = np.where(
        is_far, math.log(limit), np.log(np.where(np.isfinite(places), places, limit)).mean(axis=1)
    )
    return np.where(is_far, limit, np.maximum(means, limit)), logs


def _shape(difference: Floats) -> Floats:
    """Solve log(shape) − ψ(shape) = difference by Newton's method, from a close start.

    The derivative of ψ is ζ(2, shape).
    """
    s = np.maximum(difference, 1.0 / (2 * MOST_PHASES))
    shape = (3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    for _ in range(4):
        error = np.log(shape) - special.digamma(shape) - s
        shape = shape - error / (1 / shape - special.zeta(2, shape))
        shape = np.maximum(shape, _LEAST_SHAPE)
    return np.asarray(np.clip(shape, _LEAST_SHAPE, MOST_PHASES))
