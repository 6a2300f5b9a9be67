"""Least squares on functions with noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from penstock.stats.noisy_fit import least_squares

Floats = npt.NDArray[np.float64]
TRUTH = np.array([0.7, -0.4, 0.2])
AT = np.linspace(-1, 1, 40)
RADII = (0.6, 0.4, 0.3, 0.2, 0.15, 0.1)
LOW, HIGH = np.full(3, -2.0), np.full(3, 2.0)


def curve(point: Floats) -> Floats:
    a, b, c = point
    return np.asarray(np.exp(a) * AT + b * AT**2 + c)


def made(noise: float, outlier: float = 0.0) -> Floats:
    measured = curve(TRUTH)
    measured[5] += outlier
    rng = np.random.default_rng(3)

    def residuals(points: Sequence[Floats]) -> Floats:
        rows = [(curve(point) - measured) / 0.05 for point in points]
        return np.array([row + noise * rng.standard_normal(AT.size) for row in rows])

    return least_squares(residuals, np.zeros(3), low=LOW, high=HIGH, radii=RADII)


@pytest.mark.parametrize(("noise", "within"), [(0.0, 0.005), (0.3, 0.05)])
def test_it_finds_the_parameters_through_the_noise(noise: float, within: float) -> None:
    assert made(noise) == pytest.approx(TRUTH, abs=within)


def test_one_value_that_nothing_explains_hardly_moves_them() -> None:
    assert made(0.0, outlier=20.0) == pytest.approx(TRUTH, abs=0.05)


def test_it_stays_within_its_bounds() -> None:
    def residuals(points: Sequence[Floats]) -> Floats:
        return np.asarray(points) - 5.0

    found = least_squares(residuals, np.zeros(3), low=LOW, high=HIGH, radii=RADII)
    assert found == pytest.approx(HIGH, abs=0.2)
    assert (found <= HIGH).all()
