"""When a log that ends before its position is truncated, and when a silent partition is a stall."""

from __future__ import annotations

from penstock.domain.lake.order import Marks, Position
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.report import BatchReport, LandedRange, LaneReport
from penstock.domain.lake.stall import Stalls
from penstock.domain.lake.truncation import Truncations

A, B = Partition("t", 0), Partition("t", 1)
AT = {A: Position(10, 1), B: Position(10, 1)}


def report(
    batch: int, diverged_at: int | None = None, truncated_from: int | None = None
) -> BatchReport:
    landed_range = LandedRange(
        topic="t",
        partition=0,
        start=10,
        end=10,
        known_end=20,
        lost_from=10,
        diverged_at=diverged_at,
        truncated_from=truncated_from,
    )
    return BatchReport(
        batch=batch, lanes=(LaneReport(batch=batch, lane=0, ranges=(landed_range,)),)
    )


def test_a_log_must_be_short_for_a_while() -> None:
    known = Truncations(limit_s=5)
    short, whole = {A: Marks(0, 6), B: Marks(0, 10)}, {A: Marks(0, 10), B: Marks(0, 10)}
    assert known.look(AT, short, 0.0) == {}
    assert set(known.unsure) == {A}
    assert known.look(AT, whole, 4.0) == {}
    assert set(known.unsure) == set()
    # It begins to count anew.
    assert known.look(AT, short, 5.0) == {}
    assert known.look(AT, short, 9.9) == {}
    assert known.look(AT, short, 10.0) == {A: 6}
    assert set(known.unsure) == set()


def test_the_least_end_is_where_it_was_cut_also_if_nobody_leads_it_meanwhile() -> None:
    known = Truncations(limit_s=5)
    known.look(AT, {A: Marks(0, 4)}, 0.0)
    known.look(AT, {}, 2.0)
    assert known.look(AT, {A: Marks(0, 8)}, 5.0) == {A: 4}


def test_it_is_known_until_it_is_recorded_though_the_log_has_grown() -> None:
    known = Truncations(limit_s=5)
    known.look(AT, {A: Marks(0, 4)}, 0.0)
    known.look(AT, {A: Marks(0, 4)}, 5.0)
    grown = {A: Marks(0, 30)}
    assert known.look(AT, grown, 6.0) == {A: 4}
    known.learn(report(3))
    assert known.look(AT, grown, 7.0) == {A: 4}
    known.learn(report(4, truncated_from=4))
    assert known.look(AT, grown, 8.0) == {}


def test_what_a_lane_found_needs_no_waiting() -> None:
    known = Truncations(limit_s=5)
    known.learn(report(3, diverged_at=7))
    assert known.look(AT, {A: Marks(0, 30)}, 0.0) == {A: 7}
    # Found again while the first one was recorded.
    known.learn(report(4, diverged_at=8, truncated_from=7))
    assert known.look(AT, {A: Marks(0, 30)}, 1.0) == {A: 8}


def test_the_same_report_is_learnt_once() -> None:
    known = Truncations(limit_s=5)
    recorded = report(4, truncated_from=4)
    known.learn(recorded)
    known.look(AT, {A: Marks(0, 6)}, 0.0)
    known.look(AT, {A: Marks(0, 6)}, 5.0)
    known.learn(recorded)
    assert known.look(AT, {A: Marks(0, 6)}, 6.0) == {A: 6}


def test_a_partition_that_went_elsewhere_is_forgotten() -> None:
    known = Truncations(limit_s=5)
    known.learn(report(3, diverged_at=7))
    assert known.look({B: AT[B]}, {}, 0.0) == {}
    assert known.look(AT, {}, 1.0) == {}


def test_a_moment_without_a_leader_is_not_a_stall() -> None:
    stalls = Stalls(limit_s=5)
    assert stalls.look({A}, 0.0) == {}
    assert stalls.look({A, B}, 4.0) == {}
    assert stalls.look({A, B}, 6.0) == {A: 0.0}
    assert stalls.look({B}, 8.0) == {}
    assert stalls.look({A, B}, 9.0) == {B: 4.0}
