"""Which closed loops are corrected for coordinated omission, and with which interval."""

from __future__ import annotations

from typing import Literal

import pytest

from penstock.analysis.closed_loop import corrected
from penstock.domain.arrivals import Arrivals, ConstantArrivals, PoissonArrivals
from penstock.domain.workload import Workload
from penstock.stats.histogram import Histogram

MS = 1_000_000
FROZEN = Histogram.of([MS // 2] * 100 + [100 * MS])


def workload(arrivals: Arrivals, loop: Literal["open", "closed"] = "closed") -> Workload:
    return Workload(arrivals=arrivals, loop=loop)


def test_a_loop_that_kept_its_schedule_is_corrected_with_its_interval() -> None:
    distribution = corrected(workload(ConstantArrivals(rate_per_s=1000)), FROZEN)
    assert distribution is not None
    assert distribution.count == 101 + 99
    assert distribution.percentiles_ms["90"].value == pytest.approx(80, rel=0.01)
    # Every answer took the whole interval: it just kept its schedule.
    assert corrected(workload(ConstantArrivals(rate_per_s=2000)), FROZEN) is not None


def test_a_loop_that_sends_as_fast_as_answers_come_has_no_interval() -> None:
    assert corrected(workload(ConstantArrivals(rate_per_s=100_000)), FROZEN) is None


def test_arrivals_without_one_interval_are_not_corrected() -> None:
    assert corrected(workload(PoissonArrivals(rate_per_s=1000)), FROZEN) is None


def test_an_open_loop_and_one_without_answers_need_no_correction() -> None:
    constant = ConstantArrivals(rate_per_s=1000)
    assert corrected(workload(constant, "open"), FROZEN) is None
    assert corrected(workload(constant), None) is None
