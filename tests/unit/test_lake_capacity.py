"""What counts as a cycle, and what one lane can do."""

from __future__ import annotations

import pytest

from penstock.domain.lake.partition import Partition
from penstock.domain.lake.report import BatchReport, LandedRange, LaneReport
from penstock.lake.capacity import saturated, stored_share, summarise
from penstock.lake.landing import Landed


def batch(number: int, *is_saturated: bool) -> Landed:
    lanes = tuple(
        LaneReport(
            batch=number,
            lane=lane,
            ranges=(
                LandedRange(
                    topic="t",
                    partition=lane,
                    start=0,
                    end=100,
                    known_end=1000 if full else 100,
                    lost_from=0,
                    rows={"events": 100},
                    offset_sums={"events": "1"},
                    size_bytes=10_000,
                ),
            ),
            gather_s=0.1,
            decode_s=0.2,
            write_s=0.3,
        )
        for lane, full in enumerate(is_saturated)
    )
    return Landed(BatchReport(batch=number, lanes=lanes), 0.1, 0, False)


def test_only_saturated_cycles_count_and_the_first_ones_do_not() -> None:
    landed = [
        (float(i), batch(i, full)) for i, full in enumerate([True, True, True, True, False, True])
    ]
    cycles, idle = saturated(landed)
    assert len(cycles) == 1
    # Three while it got warm, one that left nothing to read, one that began with nothing to read.
    assert idle == 5
    capacity = summarise(cycles, idle)
    assert capacity is not None
    assert capacity.bytes_per_s.p50 == pytest.approx(10_000)
    assert capacity.rows_per_s.p95 == pytest.approx(100)
    assert capacity.phase_s == pytest.approx(
        {"gather": 0.1, "decode": 0.2, "write": 0.3, "commit": 0.1, "rest": 0.3}
    )


def test_lanes_side_by_side_count_each() -> None:
    cycles, _ = saturated((float(i), batch(i, True, True)) for i in range(5))
    assert len(cycles) == 4


def test_of_idle_cycles_nothing_is_known() -> None:
    assert summarise(*saturated((float(i), batch(i, False)) for i in range(9))) is None


def test_what_is_stored_is_counted_for_what_was_landed() -> None:
    # A log of 50,000 bytes with 1,000 records: 100 of them, 10,000 bytes, are 5,000 bytes there.
    reports = [batch(0, True, True).report]
    assert stored_share(reports, {Partition("t", 0): 50_000}) == pytest.approx(0.5)
    assert stored_share(reports, {}) is None
    both = {Partition("t", 0): 50_000, Partition("t", 1): 100_000, Partition("u", 0): 1}
    assert stored_share(reports, both) == pytest.approx(0.75)
    cycles, idle = saturated((float(i), batch(i, True)) for i in range(5))
    capacity = summarise(cycles, idle, 0.75)
    assert capacity is not None and capacity.stored_bytes_per_s == pytest.approx(7_500)
    capacity = summarise(cycles, idle)
    assert capacity is not None and capacity.stored_bytes_per_s is None
