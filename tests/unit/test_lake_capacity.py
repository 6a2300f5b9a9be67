"""What counts as a cycle, and what one lane can do."""

from __future__ import annotations

import pytest

from penstock.domain.lake.report import BatchReport, LandedRange, LaneReport
from penstock.pipeline.lake.capacity import saturated, summarise
from penstock.pipeline.lake.landing import Landed


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
                    known_end=1000,
                    lost_from=0,
                    rows={"events": 100},
                    offset_sums={"events": "1"},
                    size_bytes=10_000,
                ),
            ),
            gather_s=0.1,
            decode_s=0.2,
            write_s=0.3,
            is_saturated=full,
        )
        for lane, full in enumerate(is_saturated)
    )
    return Landed(BatchReport(batch=number, lanes=lanes), {}, 0.1, 0, False)


def test_only_saturated_cycles_count_and_the_first_ones_do_not() -> None:
    landed = [
        (float(i), batch(i, full)) for i, full in enumerate([True, True, True, True, False, True])
    ]
    cycles, idle = saturated(landed)
    assert len(cycles) == 2
    assert idle == 4  # three while it got warm, one that had nothing more to read
    found = summarise(cycles, idle)
    assert found is not None
    assert found.bytes_per_s.p50 == pytest.approx(10_000)
    assert found.rows_per_s.p95 == pytest.approx(100)
    assert found.phase_s == pytest.approx(
        {"gather": 0.1, "decode": 0.2, "write": 0.3, "commit": 0.1, "rest": 0.3}
    )


def test_lanes_side_by_side_count_each() -> None:
    cycles, _ = saturated((float(i), batch(i, True, True)) for i in range(5))
    assert len(cycles) == 4


def test_of_idle_cycles_nothing_is_known() -> None:
    assert summarise(*saturated((float(i), batch(i, False)) for i in range(9))) is None
