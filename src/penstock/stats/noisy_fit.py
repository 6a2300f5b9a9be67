"""Least squares for functions that are simulated, so that their values are noisy. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import lsq_linear

Floats = npt.NDArray[np.float64]

# Beyond this a residual counts less than squared: one run that a model cannot explain must not spoil
# the rest.
_OUTLIER = 3.0
# Points per parameter and round.
_POINTS = 3
_SEED = 1


def least_squares(
    residuals: Callable[[Sequence[Floats]], Floats],
    begin: Floats,
    *,
    low: Floats,
    high: Floats,
    radii: Sequence[float],
) -> Floats:
    """The point between `low` and `high` whose residuals are smallest.

    `residuals` gives a row for each point, in units of their usual error. In each round the residuals
    of random points around the best one so far, `radius` being their standard deviation, are described
    by a plane, whose minimum is tried: Gauss and Newton's method. A plane through many points averages
    the noise of simulations, which differences of two do not.
    """
    rng = np.random.default_rng(_SEED)
    best = begin
    least = _cost(residuals([best])[0])
    for radius in radii:
        points = best + radius * rng.standard_normal((_POINTS * best.size, best.size))
        points = np.clip(points, low, high)
        values = residuals(list(points))
        candidates = [(_cost(value), point) for value, point in zip(values, points, strict=True)]
        middle = points.mean(axis=0)
        design = np.column_stack([np.ones(len(points)), points - middle])
        plane, *_ = np.linalg.lstsq(design, values, rcond=None)
        here, slopes = plane[0], plane[1:].T
        # Large residuals count as if they were smaller: Huber's weights.
        weights = np.sqrt(np.minimum(1.0, _OUTLIER / np.maximum(np.abs(here), 1e-9)))
        step = lsq_linear(
            slopes * weights[:, None],
            -here * weights,
            bounds=(
                np.maximum(low, best - 2 * radius) - middle - 1e-12,
                np.minimum(high, best + 2 * radius) - middle + 1e-12,
            ),
        ).x
        found = np.clip(middle + step, low, high)
        candidates.append((_cost(residuals([found])[0]), found))
        cost, point = min(candidates, key=lambda one: one[0])
        if cost < least:
            least, best = cost, point
    return np.asarray(best)


def _cost(residuals: Floats) -> float:
    """The sum of squares, of which large ones count less (Huber's function)."""
    sizes = np.abs(residuals)
    large = _OUTLIER * (sizes - _OUTLIER / 2)
    return float(np.where(sizes <= _OUTLIER, sizes**2 / 2, large).sum())
