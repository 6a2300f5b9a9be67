"""A distribution of a time: the abstract class."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Bisections of a quantile: each halves the interval, so this is to the last digit of a float.
_HALVINGS = 200


class Law(ABC):
    """A distribution on [0, ∞). Methods take one time or an array of them."""

    @property
    @abstractmethod
    def parameters(self) -> int:
        """The number of free parameters, for AIC."""

    @abstractmethod
    def pdf(self, x: npt.ArrayLike) -> Floats:
        """The density."""

    @abstractmethod
    def sf(self, x: npt.ArrayLike) -> Floats:
        """P(X > x), exact also far in the tail: the violation rate at the limit x."""

    @abstractmethod
    def moment(self, order: int) -> float:
        """E[X^order]."""

    @abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        """Independent draws."""

    def cdf(self, x: npt.ArrayLike) -> Floats:
        """P(X ≤ x)."""
        return np.asarray(1.0 - self.sf(x))

    @property
    def mean(self) -> float:
        return self.moment(1)

    @property
    def variance(self) -> float:
        return max(0.0, self.moment(2) - self.mean**2)

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    def quantile(self, share: npt.ArrayLike) -> Floats:
        """The time that this share of all is not above, by bisection."""
        shares = np.asarray(share, dtype=np.float64)
        if np.any((shares < 0) | (shares >= 1) | np.isnan(shares)):
            raise ValueError("a share must be at least 0 and below 1")
        above = 1.0 - shares
        low = np.zeros_like(shares)
        high = np.full_like(shares, max(self.mean, np.finfo(np.float64).tiny))
        while np.any(too_low := self.sf(high) > above):
            high = np.where(too_low, 2 * high, high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_below = self.sf(middle) > above
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
            if np.all(high - low <= 1e-12 * high):
                break
        return np.asarray(high)


def positive(**values: float) -> None:
    """Refuse parameters that are not finite numbers above zero."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0, not {value!r}")


def times(x: npt.ArrayLike) -> Floats:
    """As an array of floats."""
    return np.asarray(x, dtype=np.float64)
