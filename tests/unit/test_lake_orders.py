"""Orders and plans: where each micro-batch starts, and which lane reads what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.lake.order import (
    Marks,
    Obstacle,
    Order,
    Position,
    Range,
    next_order,
    repeated,
)
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.plan import Plan, even_plan, fitted, in_turn
from penstock.domain.lake.report import LaneReport
from penstock.domain.value import FieldError

A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b-c", 0)
IDS = {"a": "ida", "b-c": "idb"}
Reached = Mapping[Partition, int | Position]


def ordered(last: Order, reached: Reached, *args: Any, **more: Any) -> Order:
    order = next_order(last, at(reached), *args, **more)
    assert isinstance(order, Order), order
    return order


def stopped(last: Order, reached: Reached, *args: Any, **more: Any) -> Obstacle:
    obstacle = next_order(last, at(reached), *args, **more)
    assert isinstance(obstacle, Obstacle), obstacle
    return obstacle


def at(reached: Reached) -> dict[Partition, Position]:
    """Offsets stand for positions without an epoch."""
    return {p: Position(x) if isinstance(x, int) else x for p, x in reached.items()}


def test_a_new_pipeline_begins_at_the_first_record_that_is_there() -> None:
    order = ordered(Order(), {}, {A0: Marks(5, 9), A1: Marks(0, 0)}, IDS)
    assert order.number == 0
    assert order.ranges == {A0: Range(5, 9, 5), A1: Range(0, 0, 0)}
    assert order.has_work and not order.ranges[A1].has_work


def test_or_at_the_end_if_so_wanted() -> None:
    order = ordered(Order(), {}, {A0: Marks(5, 9)}, IDS, begin="latest")
    assert order.ranges == {A0: Range(9, 9, 9)}
    assert not order.has_work


def test_the_next_order_starts_where_lanes_ended() -> None:
    first = Order(0, {A0: Range(0, 100, 0), A1: Range(0, 50, 0)}, IDS)
    # A0 was cut by bytes, A1 got more than was known when it was ordered.
    order = ordered(first, {A0: 40, A1: 60}, {A0: Marks(0, 120), A1: Marks(0, 60)}, IDS)
    assert order.ranges == {A0: Range(40, 120, 40), A1: Range(60, 60, 60)}


def test_a_new_partition_is_read_from_its_beginning_even_if_the_pipeline_began_at_the_end() -> None:
    first = Order(3, {A0: Range(7, 9, 7)}, IDS)
    marks = {A0: Marks(0, 9), A1: Marks(0, 4), B0: Marks(0, 2)}
    order = ordered(first, {A0: 9}, marks, IDS, begin="latest")
    assert order.ranges[A1] == Range(0, 4, 0) and order.ranges[B0] == Range(0, 2, 0)


def test_a_partition_that_nobody_leads_keeps_its_place() -> None:
    first = Order(3, {A0: Range(7, 9, 7)}, IDS)
    order = ordered(first, {A0: 8}, {}, IDS)
    assert order.ranges == {A0: Range(8, 8, 8)} and not order.has_work


def test_what_was_deleted_unread_stops_the_pipeline_or_is_noted() -> None:
    first = Order(0, {A0: Range(0, 10, 0)}, IDS)
    obstacle = stopped(first, {A0: 10}, {A0: Marks(25, 40)}, IDS)
    assert "offsets 10 to 24" in obstacle.message and "lost_offsets: continue" in obstacle.fix
    order = ordered(first, {A0: 10}, {A0: Marks(25, 40)}, IDS, may_lose=True)
    assert order.ranges == {A0: Range(25, 40, 10)}
    emptied = ordered(first, {A0: 10}, {A0: Marks(25, 25)}, IDS, may_lose=True)
    assert emptied.has_work, "the loss itself must be written down"


def test_a_topic_that_was_created_again_stops_the_pipeline() -> None:
    first = Order(0, {A0: Range(0, 10, 0)}, IDS)
    anew = stopped(first, {A0: 10}, {A0: Marks(0, 60)}, {**IDS, "a": "other"})
    assert "deleted and created again" in anew.message


optional = st.none() | st.integers(0, 1000)
ranges = st.builds(
    lambda lost, start, end, *rest: Range(start + lost, start + lost + end, start, *rest),
    *(st.integers(0, 1000),) * 3,
    *(optional,) * 3,
)
partitions = st.builds(Partition, st.sampled_from(["a", "b-c", "x.y_z"]), st.integers(0, 9))


@given(st.integers(-1, 10**9), st.dictionaries(partitions, ranges))
def test_spark_keeps_an_order_as_json(number: int, by_partition: dict[Partition, Range]) -> None:
    order = Order(number, by_partition, {p.topic: "id" for p in by_partition})
    assert Order.from_offset(json.loads(json.dumps(order.to_offset()))) == order


def test_what_is_usual_takes_little_room_in_the_checkpoint() -> None:
    order = Order(1, {A0: Range(5, 9, 5), A1: Range(5, 9, 5, leader_epoch=3)}, IDS)
    assert order.to_offset()["topics"] == {"a": {"0": [5, 9], "1": [5, 9, None, 3]}}


# --- logs that were rewritten ------------------------------------------------------------------------


def test_the_leader_epoch_goes_with_the_position() -> None:
    first = Order(0, {A0: Range(0, 10, 0), A1: Range(4, 4, 4, 2, 3)}, IDS)
    marks = {A0: Marks(0, 20), A1: Marks(0, 9)}
    # A1 was not read: it keeps the epoch that it had.
    order = ordered(first, {A0: Position(10, 7)}, marks, IDS)
    assert order.ranges == {A0: Range(10, 20, 10, 7), A1: Range(4, 9, 4, 2, 3)}
    # Nor is it forgotten while nobody leads it.
    away = ordered(order, {A0: Position(20, 7, 18)}, {A1: Marks(0, 9)}, IDS)
    assert away.ranges[A0] == Range(20, 20, 20, 7, 18)


def test_a_position_over_offsets_without_a_record_keeps_where_its_epoch_is_known() -> None:
    assert Position(6, 1).after_gap(7) == Position(7, 1, 6)
    assert Position(7, 1, 6).after_gap(9) == Position(9, 1, 6)
    assert Position(6).after_gap(7) == Position(7)
    assert (Position(7, 1, 6).checked_offset, Position(7, 1).checked_offset) == (6, 7)


def test_an_epoch_of_records_that_retention_deleted_is_not_checked() -> None:
    first = Order(0, {A0: Range(0, 10, 0)}, IDS)
    order = ordered(first, {A0: Position(10, 7, 6)}, {A0: Marks(8, 20)}, IDS)
    assert order.ranges[A0] == Range(10, 20, 10)
    lost = ordered(first, {A0: Position(10, 7)}, {A0: Marks(12, 20)}, IDS, may_lose=True)
    assert lost.ranges[A0] == Range(12, 20, 10)


def test_a_truncated_log_stops_the_pipeline_with_the_range_that_was_landed() -> None:
    first = Order(0, {A0: Range(0, 10, 0)}, IDS)
    # Whether it has grown past the position again or not.
    for high in (8, 60):
        obstacle = stopped(
            first, {A0: Position(10, 7)}, {A0: Marks(0, high)}, IDS, truncated={A0: 6}
        )
        assert "a-0: [6, 10) was landed and is no longer in the topic" in obstacle.message
        assert "lost_offsets: continue" in obstacle.fix


def test_or_it_is_recorded_once_and_read_on_from_the_position() -> None:
    first = Order(0, {A0: Range(0, 10, 0), A1: Range(0, 0, 0)}, IDS)
    more = {"may_lose": True}
    # It waits until the log has grown past the position. Meanwhile others are read.
    marks = {A0: Marks(0, 10), A1: Marks(0, 5)}
    waiting = ordered(first, {A0: Position(10, 7)}, marks, IDS, truncated={A0: 6}, **more)
    assert waiting.ranges[A0] == Range(10, 10, 10, truncated_from=6)
    assert not waiting.ranges[A0].has_work and waiting.has_work
    grown = ordered(waiting, {A1: 5}, {A0: Marks(0, 15), A1: Marks(0, 5)}, IDS, **more)
    # The old epoch would be refused for ever.
    assert grown.ranges[A0] == Range(10, 15, 10, truncated_from=6)
    after = ordered(grown, {A0: Position(15, 9)}, {A0: Marks(0, 20)}, IDS, **more)
    assert after.ranges[A0] == Range(15, 20, 15, 9)


def test_a_short_log_is_not_a_truncation_at_once() -> None:
    """A new leader may tell an older end for a moment."""
    first = Order(0, {A0: Range(0, 10, 0)}, IDS)
    order = ordered(first, {A0: Position(10, 7)}, {A0: Marks(0, 6)}, IDS)
    assert order.ranges[A0] == Range(10, 10, 10, 7) and not order.has_work


# --- orders of an earlier life -----------------------------------------------------------------------


def again(
    order: Order, marks: Mapping[Partition, Marks], ids: Mapping[str, str] = IDS, **more: Any
) -> Order:
    result = repeated(order, marks, ids, **more)
    assert isinstance(result, Order), result
    return result


REPEATED = Order(4, {A0: Range(5, 9, 5, 2), A1: Range(3, 3, 3)}, {"a": "ida"})


def test_an_order_that_still_holds_is_repeated_as_it_was() -> None:
    marks = {A0: Marks(0, 50), A1: Marks(0, 50), B0: Marks(0, 50)}
    assert again(REPEATED, marks) == REPEATED


def test_a_repeated_order_does_not_read_another_topic_of_the_same_name() -> None:
    obstacle = repeated(REPEATED, {A0: Marks(0, 50)}, {"a": "other"})
    assert isinstance(obstacle, Obstacle) and "created again" in obstacle.message


def test_what_was_deleted_since_stops_a_repeated_order_or_is_recorded() -> None:
    marks = {A0: Marks(7, 50)}
    obstacle = repeated(REPEATED, marks, IDS)
    assert isinstance(obstacle, Obstacle) and "offsets 5 to 6 were deleted" in obstacle.message
    assert again(REPEATED, marks, may_lose=True).ranges[A0] == Range(7, 9, 5)
    # With what it had lost already.
    more = Order(4, {A0: Range(5, 9, 2)}, {"a": "ida"})
    assert again(more, marks, may_lose=True).ranges[A0] == Range(7, 9, 2)


LOST = Order(4, {A0: Range(5, 9, 2, truncated_from=1)}, {"a": "ida"})


def test_a_repeated_range_whose_log_is_too_short_stays_as_it_is() -> None:
    """The lane reads nothing of it, or finds that it was truncated; what it lost is recorded."""
    assert again(LOST, {A0: Marks(0, 3)}, may_lose=True) == LOST


def test_a_repeated_range_of_which_nobody_knows_is_left_to_a_later_order() -> None:
    """With what it lost, for that is not in the ledger before a lane has reported it."""
    order = again(LOST, {}, may_lose=True)
    assert order.ranges == {A0: Range(2, 2, 2, truncated_from=1)}
    assert not order.has_work
    # Spark's checkpoint has the order as it was.
    later = ordered(LOST, {}, {A0: Marks(6, 12)}, IDS, may_lose=True)
    assert later.ranges[A0] == Range(6, 12, 2, truncated_from=1)


# --- plans ---------------------------------------------------------------------------------------


@given(st.sets(partitions), st.integers(1, 7))
def test_the_default_plan_spreads_all_partitions_evenly(
    topic_partitions: set[Partition], lanes: int
) -> None:
    plan = even_plan(lanes, list(topic_partitions))
    sizes = [len(lane) for lane in plan.lanes]
    assert len(sizes) == lanes and max(sizes) - min(sizes) <= 1
    assert sorted(p for lane in fitted(plan, topic_partitions) for p in lane) == sorted(
        topic_partitions
    )


@given(st.sets(partitions), st.sets(partitions), st.integers(1, 4))
def test_a_plan_is_fitted_to_what_is_there(
    planned: set[Partition], there: set[Partition], lanes: int
) -> None:
    fitted_lanes = fitted(even_plan(lanes, list(planned)), there)
    assert sorted(p for lane in fitted_lanes for p in lane) == sorted(there)


def test_what_a_plan_does_not_know_goes_to_the_lane_with_the_fewest() -> None:
    plan = Plan(lanes=(("a-0", "a-1"), ("a-2",)))
    new = Partition("a", 3)
    assert new in fitted(plan, {A0, A1, Partition("a", 2), new})[1]


def test_a_partition_on_two_lanes_is_refused() -> None:
    with pytest.raises(FieldError, match="one lane only"):
        Plan(lanes=(("a-0",), ("a-0",)))
    with pytest.raises(FieldError, match="TOPIC-NUMBER"):
        Plan(lanes=(("a",),))


# --- only what is there ----------------------------------------------------------------------------


def test_nothing_is_ordered_beyond_the_limits_though_lanes_may_have_read_on() -> None:
    limits = {A0: 100, A1: 50}
    first = ordered(Order(), {}, {A0: Marks(0, 110), A1: Marks(0, 50)}, IDS, limits=limits)
    assert first.ranges == {A0: Range(0, 100, 0), A1: Range(0, 50, 0)}
    marks = {A0: Marks(0, 120), A1: Marks(0, 60), B0: Marks(0, 9)}
    second = ordered(first, {A0: 105, A1: 20}, marks, IDS, limits=limits)
    assert second.ranges == {A0: Range(105, 105, 105), A1: Range(20, 50, 20)}
    third = ordered(second, {A1: 50}, marks, IDS, limits=limits)
    assert not third.has_work
    # Without limits it goes on from there.
    assert ordered(third, {}, marks, IDS).ranges[A0] == Range(105, 120, 105)


# --- workers that have a lane's consumer ------------------------------------------------------------


def report(lane: int, worker: str, ended_ms: int) -> LaneReport:
    return LaneReport(batch=0, lane=lane, worker=worker, ended_ms=ended_ms)


def test_the_worker_that_is_idle_longest_gets_a_lane_that_it_had() -> None:
    # a ran lanes 0 and 2, b lanes 1 and 3; b ended first, so it is given the next task.
    done = [report(0, "a", 10), report(1, "b", 11), report(3, "b", 20), report(2, "a", 30)]
    turns = in_turn(done)
    assert sorted(turns, key=turns.__getitem__) == [1, 0, 3, 2]
    assert in_turn([]) == {}
