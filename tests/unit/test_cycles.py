"""Which cycles show what a lane can do: the same ones live, in the simulator and for `capacity`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.domain.lake.cycle import Cycles, LaneCycle
from penstock.domain.lake.report import BatchReport, LandedRange, LaneReport
from penstock.lake.capacity import _WARM_UP, saturated
from penstock.lake.landing import Landed


def lane(
    number: int, *, behind: bool, partition: int = 0, troubles: tuple[str, ...] = ()
) -> LaneReport:
    read = LandedRange(
        topic="t",
        partition=partition,
        start=0,
        end=100,
        known_end=900 if behind else 100,
        lost_from=0,
        size_bytes=1000,
    )
    return LaneReport(batch=0, lane=number, ranges=(read,), troubles=troubles)


def cycles(*batches: Sequence[LaneReport]) -> list[dict[int, bool]]:
    """Of each micro-batch: lane → whether its cycle was saturated. They are 2 s apart."""
    made = Cycles()
    landed = (
        made.landed(BatchReport(batch=n, lanes=tuple(lanes)), 2.0 * n, 2000 * n)
        for n, lanes in enumerate(batches)
    )
    return [{cycle.lane: cycle.is_saturated for cycle in batch} for batch in landed]


BEHIND, IDLE = lane(0, behind=True), lane(0, behind=False)


@pytest.mark.parametrize(
    ("before", "now", "is_saturated"),
    [(BEHIND, BEHIND, True), (IDLE, BEHIND, False), (BEHIND, IDLE, False), (IDLE, IDLE, False)],
)
def test_a_lane_must_be_behind_before_and_at_the_end(
    before: LaneReport, now: LaneReport, is_saturated: bool
) -> None:
    assert cycles([before], [now])[-1] == {0: is_saturated}


def test_another_lane_that_was_behind_does_not_count() -> None:
    first = [lane(0, behind=True), lane(1, behind=False)]
    second = [lane(0, behind=True), lane(1, behind=True)]
    assert cycles(first, second)[-1] == {0: True, 1: False}


def test_troubles_may_have_cost_time() -> None:
    troubled = lane(0, behind=True, troubles=("_TRANSPORT: broker 1 is down",))
    # The one after does not suffer from them: the lane was behind, and did not idle.
    assert cycles([BEHIND], [troubled], [BEHIND]) == [{0: False}, {0: False}, {0: True}]


def test_of_the_first_cycle_nothing_is_known() -> None:
    (cycle,) = Cycles().landed(BatchReport(batch=0, lanes=(BEHIND,)), 7.0, 0)
    assert not cycle.is_saturated and cycle.took_s == 0.0


def test_a_lane_without_work_in_between_was_not_behind() -> None:
    away, other = lane(0, behind=True), lane(1, behind=True)
    assert cycles([away, other], [other], [away, other])[-1] == {0: False, 1: True}


def test_a_lane_that_was_given_a_backlog_counts_from_its_next_cycle_on() -> None:
    giving = [lane(0, behind=True, partition=3), lane(1, behind=False)]
    given = [lane(0, behind=False), lane(1, behind=True, partition=3)]
    assert cycles(giving, given, given)[1:] == [{0: False, 1: False}, {0: False, 1: True}]


def test_a_lane_that_was_behind_counts_with_other_partitions_too() -> None:
    before, after = lane(0, behind=True, partition=1), lane(0, behind=True, partition=2)
    assert cycles([before], [after])[-1] == {0: True}


def test_a_host_that_rested_starts_from_scratch() -> None:
    made, report = Cycles(), BatchReport(batch=0, lanes=(BEHIND,))
    made.landed(report, 0.0, 0)
    made.rested()
    (cycle,) = made.landed(report, 60.0, 0)
    assert not cycle.is_saturated
    assert (cycle.took_s, cycle.bytes_per_s) == (0.0, 0.0), "the rest is not part of it"
    (cycle,) = made.landed(report, 61.0, 0)
    assert cycle.is_saturated


def test_a_cycle_lasts_from_landing_to_landing() -> None:
    made, report = Cycles(), BatchReport(batch=0, lanes=(BEHIND,))
    made.landed(report, 10.0, 0)
    (cycle,) = made.landed(report, 12.5, 0)
    assert cycle == LaneCycle(
        lane=0, took_s=2.5, is_saturated=True, size_bytes=1000, offsets={"t-0": 100}
    )
    assert cycle.bytes_per_s == 400


def test_capacity_counts_the_cycles_that_the_autoscaler_counts() -> None:
    warm = [[BEHIND, lane(1, behind=False)]] * _WARM_UP
    last = [
        lane(0, behind=True, troubles=("_TRANSPORT: broker 1 is down",)),
        lane(1, behind=True),
    ]
    batches = [*warm, last, last]
    landed = [
        (2.0 * n, Landed(BatchReport(batch=n, lanes=tuple(lanes)), 0.1, 0, False))
        for n, lanes in enumerate(batches)
    ]
    counted, idle = saturated(landed)
    assert [one.cycle.lane for one in counted] == [1] and idle == 2 * len(batches) - 1
    assert cycles(*batches)[_WARM_UP:] == [{0: False, 1: False}, {0: False, 1: True}]
