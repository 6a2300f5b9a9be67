"""Gamma, uniform and lognormal distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from penstock.stats.distributions.law import Floats, Law, positive, times


@dataclass(frozen=True)
class Gamma(Law):
    """Gamma: density x^(shape−1)·e^(−x/scale) / (Γ(shape)·scale^shape)."""

    shape: float
    scale: float

    def __post_init__(self) -> None:
        positive(shape=self.shape, scale=self.scale)

    @property
    def parameters(self) -> int:
        return 2

    def pdf(self, x: npt.ArrayLike) -> Floats:
        return gamma_density(times(x), self.shape, 1 / self.scale)

    def sf(self, x: npt.ArrayLike) -> Floats:
        return np.asarray(special.gammaincc(self.shape, np.maximum(times(x), 0) / self.scale))

    def cdf(self, x: npt.ArrayLike) -> Floats:
        return np.asarray(special.gammainc(self.shape, np.maximum(times(x), 0) / self.scale))

    def moment(self, order: int) -> float:
        return float(self.scale**order * special.poch(self.shape, order))

    def quantile(self, share: npt.ArrayLike) -> Floats:
        return np.asarray(self.scale * special.gammaincinv(self.shape, times(share)))

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        return rng.gamma(self.shape, self.scale, count)


@dataclass(frozen=True)
class Uniform(Law):
    """Uniform between `low` and `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (0 <= self.low < self.high < math.inf):
            raise ValueError(f"0 ≤ low < high must hold, not {self.low!r} and {self.high!r}")

    @property
    def parameters(self) -> int:
        return 2

    def pdf(self, x: npt.ArrayLike) -> Floats:
        at = times(x)
        inside = (at >= self.low) & (at <= self.high)
        return np.where(inside, 1 / (self.high - self.low), 0.0)

    def sf(self, x: npt.ArrayLike) -> Floats:
        return np.clip((self.high - times(x)) / (self.high - self.low), 0.0, 1.0)

    def moment(self, order: int) -> float:
        n = order + 1
        return (self.high**n - self.low**n) / (n * (self.high - self.low))

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        return rng.uniform(self.low, self.high, count)


@dataclass(frozen=True)
class Lognormal(Law):
    """Lognormal: ln X is normal with mean `mu` and standard deviation `sigma`."""

    mu: float
    sigma: float

    def __post_init__(self) -> None:
        positive(sigma=self.sigma)
        if not math.isfinite(self.mu):
            raise ValueError(f"mu must be a finite number, not {self.mu!r}")

    @property
    def parameters(self) -> int:
        return 2

    def pdf(self, x: npt.ArrayLike) -> Floats:
        at = times(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.exp(-0.5 * self._score(at) ** 2) / (at * self.sigma * math.sqrt(2 * np.pi))
        return np.where(at > 0, density, 0.0)

    def sf(self, x: npt.ArrayLike) -> Floats:
        return np.asarray(special.ndtr(-self._score(times(x))))

    def moment(self, order: int) -> float:
        return math.exp(order * self.mu + 0.5 * (order * self.sigma) ** 2)

    def quantile(self, share: npt.ArrayLike) -> Floats:
        return np.asarray(np.exp(self.mu + self.sigma * special.ndtri(times(share))))

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        return rng.lognormal(self.mu, self.sigma, count)

    def _score(self, x: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray((np.log(np.maximum(x, 0)) - self.mu) / self.sigma)


def gamma_density(x: Floats, shape: float, rate: float) -> Floats:
    """The density of a gamma distribution; by logarithms, since shapes may be in the hundreds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = special.xlogy(shape - 1, x) - rate * x
        density = np.exp(logarithm + shape * math.log(rate) - special.gammaln(shape))
    return np.where(x >= 0, density, 0.0)
