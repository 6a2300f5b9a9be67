"""Arrivals against theory. Seeds are drawn anew each time: a wrong mean fails for any of them.

Limits are five standard deviations of the estimate: a correct generator fails once in 10⁶ runs.
"""

from __future__ import annotations

import math
import secrets
from itertools import islice, pairwise, takewhile
from random import Random

import numpy as np
import pytest

from penstock.domain.arrivals import (
    Arrivals,
    BurstArrivals,
    ConstantArrivals,
    PoissonArrivals,
    RecordedArrivals,
)
from penstock.domain.value import FieldError

FIVE_SIGMA = 5.0


@pytest.fixture
def rng() -> Random:
    return Random(secrets.randbits(64))


def _until(arrivals: Arrivals, rng: Random, end_s: float) -> list[float]:
    return list(takewhile(lambda t: t < end_s, arrivals.times_s(rng)))


@pytest.mark.parametrize(
    "arrivals",
    [
        ConstantArrivals(rate_per_s=1000),
        PoissonArrivals(rate_per_s=1000),
        BurstArrivals(calm_per_s=0, busy_per_s=3000, calm_s=0.01, busy_s=0.02),
        RecordedArrivals(at_s=(3, 3, 4.5, 7), speed=100),
    ],
)
def test_times_never_fall_and_are_the_same_for_a_seed(arrivals: Arrivals) -> None:
    seed = secrets.randbits(64)
    times = list(islice(arrivals.times_s(Random(seed)), 2000))
    assert all(a <= b for a, b in pairwise(times))
    assert times[0] >= 0
    assert times == list(islice(arrivals.times_s(Random(seed)), 2000))


def test_constant_arrivals_are_equally_far_apart(rng: Random) -> None:
    times = _until(ConstantArrivals(rate_per_s=400), rng, 5)
    assert len(times) in (2000, 2001)
    assert np.diff(times) == pytest.approx(1 / 400)


def test_producers_of_one_rate_do_not_send_at_once() -> None:
    arrivals = ConstantArrivals(rate_per_s=1)
    firsts = {next(iter(arrivals.times_s(Random(seed)))) for seed in range(20)}
    assert len(firsts) == 20


def test_poisson_gaps_are_exponential(rng: Random) -> None:
    rate, count = 250.0, 40_000
    gaps = np.diff(list(islice(PoissonArrivals(rate_per_s=rate).times_s(rng), count + 1)))
    assert gaps.mean() == pytest.approx(1 / rate, abs=FIVE_SIGMA / rate / math.sqrt(count))
    # Kolmogorov–Smirnov: the limit is that of a probability of 10⁻⁶.
    gaps.sort()
    empirical = np.arange(1, count + 1) / count
    distance = np.abs(1 - np.exp(-rate * gaps) - empirical).max()
    assert distance < math.sqrt(-math.log(1e-6 / 2) / 2 / count)


def test_bursts_keep_their_mean_rate_from_the_start(rng: Random) -> None:
    arrivals = BurstArrivals(calm_per_s=20, busy_per_s=400, calm_s=1.0, busy_s=0.5)
    assert arrivals.mean_per_s == pytest.approx((20 * 1.0 + 400 * 0.5) / 1.5)
    # Many short beginnings: a process that always began calm would show here.
    counts = np.array([len(_until(arrivals, rng, 0.2)) for _ in range(4000)])
    error = counts.std() / math.sqrt(len(counts))
    assert counts.mean() == pytest.approx(arrivals.mean_per_s * 0.2, abs=FIVE_SIGMA * error)


@pytest.mark.parametrize("window_s", [0.05, 0.5, 3.0])
def test_bursts_scatter_as_an_mmpp_does(rng: Random, window_s: float) -> None:
    """The index of dispersion of counts of a two-state MMPP, in closed form (Fischer and
    Meier-Hellstern, The MMPP cookbook, 1993), against counts of independent windows."""
    calm, busy, calm_s, busy_s = 30.0, 300.0, 0.4, 0.2
    arrivals = BurstArrivals(calm_per_s=calm, busy_per_s=busy, calm_s=calm_s, busy_s=busy_s)
    leave_calm, leave_busy = 1 / calm_s, 1 / busy_s
    both = leave_calm + leave_busy
    weight = (calm - busy) ** 2 * leave_calm * leave_busy
    growth = 1 - (1 - math.exp(-both * window_s)) / (both * window_s)
    expected = 1 + 2 * weight / (both**2 * (calm * leave_busy + busy * leave_calm)) * growth

    windows = 3000
    counts = np.array([len(_until(arrivals, rng, window_s)) for _ in range(windows)])
    measured = counts.var(ddof=1) / counts.mean()
    resampled = np.random.default_rng().choice(counts, (400, windows))
    error = (resampled.var(axis=1, ddof=1) / resampled.mean(axis=1)).std()
    assert measured == pytest.approx(expected, abs=FIVE_SIGMA * error)
    assert expected > 1.5  # a Poisson process, whose index is 1, would not pass


def test_a_recording_is_played_back_at_its_speed_and_again() -> None:
    arrivals = RecordedArrivals(at_s=(10.0, 10.5, 12.0), speed=2)
    times = list(islice(arrivals.times_s(Random(0)), 7))
    # A period is 2 s and the mean gap of 1 s, at double speed.
    assert times == pytest.approx([0, 0.25, 1, 1.5, 1.75, 2.5, 3])
    assert arrivals.mean_per_s == pytest.approx(3 / 1.5)


def test_a_recording_must_not_go_back_in_time() -> None:
    with pytest.raises(FieldError, match="must not be earlier"):
        RecordedArrivals(at_s=(1.0, 0.5))
    with pytest.raises(FieldError, match="must be given"):
        RecordedArrivals()
    with pytest.raises(FieldError, match="has not been read"):
        next(iter(RecordedArrivals(file="x").times_s(Random(0))))
