"""Orders and plans: where each micro-batch starts, and which lane reads what."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.lake.order import Marks, Obstacle, Order, Range, next_order
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.plan import Plan, even_plan, fitted, in_turn
from penstock.domain.lake.report import LaneReport
from penstock.domain.value import FieldError

A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b-c", 0)
IDS = {"a": "ida", "b-c": "idb"}


def ordered(*args, **more) -> Order:
    found = next_order(*args, **more)
    assert isinstance(found, Order), found
    return found


def test_a_new_pipeline_begins_at_the_first_record_that_is_there():
    found = ordered(Order(), {}, {A0: Marks(5, 9), A1: Marks(0, 0)}, IDS)
    assert found.number == 0
    assert found.ranges == {A0: Range(5, 9, 5), A1: Range(0, 0, 0)}
    assert found.has_work and not found.ranges[A1].has_work


def test_or_at_the_end_if_so_wanted():
    found = ordered(Order(), {}, {A0: Marks(5, 9)}, IDS, begin="latest")
    assert found.ranges == {A0: Range(9, 9, 9)}
    assert not found.has_work


def test_it_goes_on_where_the_lanes_got_to_not_where_they_were_to_get():
    first = Order(0, {A0: Range(0, 100, 0), A1: Range(0, 50, 0)}, IDS)
    # A0 was cut by bytes, A1 got more than was known when it was ordered.
    found = ordered(first, {A0: 40, A1: 60}, {A0: Marks(0, 120), A1: Marks(0, 60)}, IDS)
    assert found.ranges == {A0: Range(40, 120, 40), A1: Range(60, 60, 60)}


def test_a_new_partition_is_read_from_its_beginning_even_if_the_pipeline_began_at_the_end():
    first = Order(3, {A0: Range(7, 9, 7)}, IDS)
    marks = {A0: Marks(0, 9), A1: Marks(0, 4), B0: Marks(0, 2)}
    found = ordered(first, {A0: 9}, marks, IDS, begin="latest")
    assert found.ranges[A1] == Range(0, 4, 0) and found.ranges[B0] == Range(0, 2, 0)


def test_a_partition_that_nobody_leads_keeps_its_place():
    first = Order(3, {A0: Range(7, 9, 7)}, IDS)
    found = ordered(first, {A0: 8}, {}, IDS)
    assert found.ranges == {A0: Range(8, 8, 8)} and not found.has_work


def test_what_was_deleted_unread_stops_the_pipeline_or_is_noted():
    first = Order(0, {A0: Range(0, 10, 0)}, IDS)
    stopped = next_order(first, {A0: 10}, {A0: Marks(25, 40)}, IDS)
    assert isinstance(stopped, Obstacle)
    assert "offsets 10 to 24" in stopped.message and "go-on" in stopped.fix
    found = ordered(first, {A0: 10}, {A0: Marks(25, 40)}, IDS, may_lose=True)
    assert found.ranges == {A0: Range(25, 40, 10)}
    emptied = ordered(first, {A0: 10}, {A0: Marks(25, 25)}, IDS, may_lose=True)
    assert emptied.has_work, "the loss itself must be written down"


def test_a_topic_that_lost_its_end_or_was_made_anew_stops_the_pipeline():
    first = Order(0, {A0: Range(0, 10, 0)}, IDS)
    shorter = next_order(first, {A0: 10}, {A0: Marks(0, 6)}, IDS)
    assert isinstance(shorter, Obstacle) and "read up to 10" in shorter.message
    anew = next_order(first, {A0: 10}, {A0: Marks(0, 60)}, {**IDS, "a": "other"})
    assert isinstance(anew, Obstacle) and "made anew" in anew.message


ranges = st.builds(
    lambda lost, start, end: Range(start + lost, start + lost + end, start),
    *(st.integers(0, 1000),) * 3,
)
partitions = st.builds(Partition, st.sampled_from(["a", "b-c", "x.y_z"]), st.integers(0, 9))


@given(st.integers(-1, 10**9), st.dictionaries(partitions, ranges))
def test_spark_keeps_an_order_as_json(number, found):
    order = Order(number, found, {p.topic: "id" for p in found})
    assert Order.from_offset(json.loads(json.dumps(order.to_offset()))) == order


# --- plans ---------------------------------------------------------------------------------------


@given(st.sets(partitions), st.integers(1, 7))
def test_the_default_plan_spreads_all_partitions_evenly(found, lanes):
    plan = even_plan(lanes, list(found))
    sizes = [len(lane) for lane in plan.lanes]
    assert len(sizes) == lanes and max(sizes) - min(sizes) <= 1
    assert sorted(p for lane in fitted(plan, found) for p in lane) == sorted(found)


@given(st.sets(partitions), st.sets(partitions), st.integers(1, 4))
def test_a_plan_is_fitted_to_what_is_there(planned, there, lanes):
    found = fitted(even_plan(lanes, list(planned)), there)
    assert sorted(p for lane in found for p in lane) == sorted(there)


def test_what_a_plan_does_not_know_goes_to_the_lane_with_the_fewest():
    plan = Plan(lanes=(("a-0", "a-1"), ("a-2",)))
    new = Partition("a", 3)
    assert new in fitted(plan, {A0, A1, Partition("a", 2), new})[1]


def test_a_partition_on_two_lanes_is_refused():
    with pytest.raises(FieldError, match="one lane only"):
        Plan(lanes=(("a-0",), ("a-0",)))
    with pytest.raises(FieldError, match="TOPIC-NUMBER"):
        Plan(lanes=(("a",),))


# --- only what is there ----------------------------------------------------------------------------


def test_nothing_is_ordered_beyond_the_limits_though_lanes_may_have_read_on():
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
