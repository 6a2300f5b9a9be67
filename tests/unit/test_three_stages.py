"""The document's rule for batched producers: its stages, its formula, what each needs."""

from __future__ import annotations

import numpy as np
import pytest
from test_distributions import TABLE_6_1, largest_difference

from penstock.domain.value import FieldError
from penstock.models.three_stages import SyncLatency, latency, stage, uniform_stage
from penstock.stats.distributions import Gamma, HyperErlang, Observations

SYNC = SyncLatency(min_ms=60, max_ms=150)


def observed(law: Gamma | HyperErlang) -> Observations:
    return Observations.of(law.sample(30_000, np.random.default_rng()))


def test_the_stages_are_those_of_the_document() -> None:
    assert [stage(size) for size in (1, 2, 10, 11, 1000)] == [
        "gamma",
        "hyper-Erlang",
        "hyper-Erlang",
        "uniform",
        "uniform",
    ]


@pytest.mark.parametrize("limit_ms", [60, 300, 700, 1_000])
def test_violations_of_the_third_stage_are_those_of_its_formula(limit_ms: float) -> None:
    """η = (αL_max − ζ) / (αL_max − L_min), with L_max = 150 + 1,000 and α = 0.9."""
    law = latency(20, linger_ms=1_000, sync=SYNC)
    expected = (0.9 * 1_150 - limit_ms) / (0.9 * 1_150 - 60)
    assert float(law.sf(limit_ms)) == pytest.approx(expected)


def test_beyond_its_ends_a_share_stays_one() -> None:
    law = uniform_stage(1_000, SYNC)
    assert (float(law.sf(10)), float(law.sf(2_000))) == (1, 0)


def test_the_first_stages_are_fits() -> None:
    without_batches = Gamma(36.0582, 2.35251)  # the document's, at B_S = 1
    one = latency(1, measured=observed(without_batches))
    assert isinstance(one, Gamma)
    assert float(one.sf(100)) == pytest.approx(0.1421, abs=0.01)
    seven = latency(7, measured=observed(TABLE_6_1))
    assert isinstance(seven, HyperErlang)
    assert largest_difference(TABLE_6_1, seven) < 0.015


def test_the_range_of_synchronous_runs() -> None:
    sync = SyncLatency.of(Observations.of([61.0, 70.0, 149.0]))
    assert sync.min_ms == pytest.approx(61, rel=2e-3)
    assert sync.max_ms == pytest.approx(149, rel=2e-3)


def test_what_is_missing_is_named() -> None:
    for size, problem in ((1, "measured: .*needed"), (5, "measured"), (11, "sync: .*linger_ms")):
        with pytest.raises(FieldError, match=problem):
            latency(size)
    with pytest.raises(FieldError, match="batch_messages: 0 must be 1 or more"):
        stage(0)
    with pytest.raises(FieldError, match="too short for this stage"):
        uniform_stage(1, SyncLatency(min_ms=60, max_ms=61))
