"""Sizes against theory, for seeds drawn anew each time; limits of five standard deviations."""

from __future__ import annotations

import math
import secrets
from itertools import islice
from random import Random

import numpy as np
import pytest

from penstock.domain.sizes import LognormalSizes, Sizes, UniformSizes, WeightedSizes
from penstock.domain.sizes.sizes import ID_BYTES
from penstock.domain.sizes.weighted import WeightedSize

COUNT = 50_000


def _draw(sizes: Sizes) -> np.ndarray:
    return np.array(list(islice(sizes.draw(Random(secrets.randbits(64))), COUNT)))


@pytest.mark.parametrize(
    "sizes",
    [
        UniformSizes(min_bytes=50, max_bytes=1000),
        LognormalSizes(median_bytes=400, sigma=0.8),
        LognormalSizes(median_bytes=400, sigma=1.5, max_bytes=2000),
        WeightedSizes(
            sizes=(WeightedSize(bytes=100, weight=3), WeightedSize(bytes=5000, weight=1))
        ),
    ],
)
def test_the_mean_is_what_the_distribution_says(sizes: Sizes) -> None:
    drawn = _draw(sizes)
    error = drawn.std() / math.sqrt(COUNT)
    assert drawn.mean() == pytest.approx(sizes.mean_bytes, abs=5 * error)
    assert drawn.min() >= ID_BYTES


def test_uniform_sizes_reach_both_ends() -> None:
    drawn = _draw(UniformSizes(min_bytes=10, max_bytes=19))
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == list(range(10, 20))
    limit = 5 * math.sqrt(COUNT * 0.1 * 0.9)
    assert np.abs(counts - COUNT / 10).max() < limit


def test_lognormal_sizes_are_cut_off_and_have_their_median() -> None:
    sizes = LognormalSizes(median_bytes=1000, sigma=1.0, max_bytes=5000)
    drawn = _draw(sizes)
    assert drawn.max() == 5000
    below = np.count_nonzero(drawn < 1000) / COUNT
    assert below == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(COUNT))


def test_weights_are_shares() -> None:
    sizes = WeightedSizes(
        sizes=(WeightedSize(bytes=100, weight=1), WeightedSize(bytes=200, weight=4))
    )
    share = np.count_nonzero(_draw(sizes) == 100) / COUNT
    assert share == pytest.approx(0.2, abs=5 * math.sqrt(0.2 * 0.8 / COUNT))
