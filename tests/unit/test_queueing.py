"""M/PH/1: the document's formula, Pollaczek–Khinchine, closed forms, and a simulated queue."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_distributions import TABLE_6_1, phase_types

from penstock.domain.errors import BadInput
from penstock.domain.value import FieldError
from penstock.models.queueing import QueueMPh1, pollaczek_khinchine
from penstock.stats.distributions import HyperErlang, PhaseType

loads = st.floats(0.01, 0.95)


def queue(service: PhaseType, load: float) -> QueueMPh1:
    return QueueMPh1(load / service.mean, service)


@given(phase_types(), loads)
def test_means_agree_by_all_three_ways(service: PhaseType, load: float) -> None:
    one = queue(service, load)
    expected = pollaczek_khinchine(one.arrivals_per_unit, service.mean, service.moment(2))
    assert one.mean_time == pytest.approx(expected, rel=1e-7)
    assert one.sojourn.mean == pytest.approx(expected, rel=1e-7)
    assert one.waiting.mean == pytest.approx(expected - service.mean, rel=1e-6)


@given(st.floats(0.1, 50), loads, st.floats(0.0, 5))
def test_an_exponential_server_gives_an_exponential_time(
    rate: float, load: float, at_means: float
) -> None:
    """M/M/1: the time in the system is exponential with the rate μ − λ."""
    one = queue(HyperErlang.erlang(1, rate).to_phase_type(), load)
    at = at_means / (rate * (1 - load))
    assert float(one.sojourn.sf(at)) == pytest.approx(math.exp(-at_means), abs=1e-9)
    assert float(one.waiting.sf(at)) == pytest.approx(load * math.exp(-at_means), abs=1e-9)


@given(phase_types(), loads)
def test_the_second_moment_of_waiting_is_that_of_takacs(service: PhaseType, load: float) -> None:
    """E[W²] = 2E[W]² + λE[S³] / (3(1 − ρ)): the whole distribution, not only its mean."""
    one = queue(service, load)
    rate = one.arrivals_per_unit
    expected = 2 * one.waiting.mean**2 + rate * service.moment(3) / (3 * (1 - load))
    assert one.waiting.moment(2) == pytest.approx(expected, rel=1e-6)


def test_a_simulated_queue_has_these_percentiles() -> None:
    """Lindley's recursion, with service times of two kinds at ρ = 0.6."""
    rng = np.random.default_rng()
    law = HyperErlang((0.7, 0.3), (6, 3), (2.0, 0.4))
    one = queue(law.to_phase_type(), 0.6)
    count, parts = 60_000, 20
    shares = []
    at = one.sojourn.quantile([0.5, 0.9, 0.99])
    for _ in range(parts):
        service = law.sample(count, rng)
        gaps = rng.exponential(1 / one.arrivals_per_unit, count)
        steps = np.cumsum(service[:-1] - gaps[1:])
        walk = np.concatenate([[0.0], steps])
        waiting = walk - np.minimum.accumulate(np.minimum(walk, 0))
        times = (waiting + service)[2_000:]
        shares.append([float(np.mean(times > limit)) for limit in at])
    means, errors = np.mean(shares, axis=0), np.std(shares, axis=0, ddof=1) / math.sqrt(parts)
    # Five standard errors: one run in a million fails by chance.
    assert np.abs(means - [0.5, 0.1, 0.01]) == pytest.approx(0, abs=float(5 * errors.max()))


def test_hundreds_of_phases_are_no_problem() -> None:
    """Service times of the document's Table 6.1: 465 phases, 930 states."""
    one = queue(TABLE_6_1.to_phase_type(), 0.5)
    p50, p99 = (float(at) for at in one.sojourn.quantile([0.5, 0.99]))
    assert one.sojourn.mean == pytest.approx(one.mean_time, rel=1e-6)
    assert TABLE_6_1.mean < p50 < one.mean_time < p99
    assert float(one.sojourn.sf(p99)) == pytest.approx(0.01, abs=1e-9)


def test_more_than_can_be_served_is_refused_with_the_limit() -> None:
    service = HyperErlang.erlang(2, 10.0).to_phase_type()  # 0.2 each
    with pytest.raises(
        BadInput, match=r"the queue grows without bound: 5 requests .* and 5 can be"
    ):
        QueueMPh1(5, service)
    with pytest.raises(FieldError, match="arrivals_per_unit"):
        QueueMPh1(0, service)
    with pytest.raises(FieldError, match="must be below 5"):
        pollaczek_khinchine(6, 0.2, 0.06)
