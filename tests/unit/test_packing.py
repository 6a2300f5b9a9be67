"""Every packing algorithm: worked by hand, and what must hold for any partitions and speeds."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.autoscaler.core.packing import Algorithm, Assignment, Problem
from penstock.autoscaler.core.packing.keep import pack, relabelled
from penstock.autoscaler.core.packing.problem import (
    fewest_lanes,
    lanes_of,
    lower_bound,
    moved_load,
)
from penstock.domain import plugins
from penstock.domain.errors import BadInput
from penstock.domain.lake.partition import Partition

ONLINE = ("NF", "FF", "BF", "WF")
DECREASING = ("NFD", "FFD", "BFD", "WFD")
MODIFIED = ("MWF", "MBF", "MWFP", "MBFP")
CAPACITY = 10.0


def algorithm(name: str) -> Algorithm:
    packer: Algorithm = plugins.get("penstock.packing", name)()
    return packer


def keep(question: Problem, lane_worth: float) -> Assignment:
    return pack(question, lane_worth)


def problem(speeds: str, current: str = "", **fields: object) -> Problem:
    """From "7 6 3", and the lanes where they are now, "-" for none."""
    named = {Partition("t", i): float(s) for i, s in enumerate(speeds.split())}
    where = dict(zip(named, current.split(), strict=False))
    return Problem(
        speeds=named,
        capacity=CAPACITY,
        current={p: int(lane) for p, lane in where.items() if lane != "-"},
        **fields,  # type: ignore[arg-type]
    )


def lanes(assignment: Assignment) -> str:
    return " ".join(str(assignment[p]) for p in sorted(assignment))


# --- worked by hand ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NF", "0 1 1 2"),  # 4 finds only the last lane, which has 1 left
        ("FF", "0 1 0 1"),
        ("BF", "0 1 0 1"),
        ("WF", "0 1 1 2"),  # 3 goes to the lane with 4 left, and 4 finds 3 and 1
        ("NFD", "0 1 2 1"),  # in the order 7 6 4 3
        ("FFD", "0 1 0 1"),
        ("BFD", "0 1 0 1"),
        ("WFD", "0 1 0 1"),
    ],
)
def test_any_fit_by_hand(name: str, expected: str) -> None:
    assert lanes(algorithm(name)(problem("7 6 3 4"))) == expected


def test_first_and_best_fit_differ_where_the_first_is_not_the_fullest() -> None:
    assert lanes(algorithm("FF")(problem("6 7 3 4"))) == "0 1 0 2"
    assert lanes(algorithm("BF")(problem("6 7 3 4"))) == "0 1 1 0"


def test_a_new_lane_is_the_one_that_the_partition_is_on_else_the_lowest_free() -> None:
    # 8 opens its own lane 3; 7 would open 3 too, which is open: the lowest free is 0.
    assert lanes(algorithm("FFD")(problem("8 7 6", "3 3 1"))) == "3 0 1"


@pytest.mark.parametrize(("name", "expected"), [("MBF", "0 1 0"), ("MWF", "0 1 1")])
def test_the_documents_fit_the_small_ones_into_lanes_that_exist(name: str, expected: str) -> None:
    assert lanes(algorithm(name)(problem("8 6 2", "0 1 2"))) == expected


@pytest.mark.parametrize(("name", "expected"), [("MBF", "0 0 1"), ("MBFP", "0 1 1")])
def test_the_documents_take_lanes_by_their_sum_or_by_their_largest(
    name: str, expected: str
) -> None:
    assert lanes(algorithm(name)(problem("4 4 6", "0 0 1"))) == expected


def test_what_does_not_fit_any_more_is_placed_last_and_largest_first() -> None:
    # Lane 0 has 12: 7 stays, 5 does not fit beside it, and finds lane 1.
    assert lanes(algorithm("MBF")(problem("7 5 4", "0 0 1"))) == "0 1 1"


@pytest.mark.parametrize(
    ("speeds", "current", "expected"),
    [
        ("4 4 6", "0 0 1", "0 0 1"),  # nothing is too full, and two are the fewest
        ("6 5 2", "0 0 1", "0 1 1"),  # the least that makes it fit goes: 5
        ("9 9 2 2", "0 1 0 1", "0 1 2 2"),  # two that must go share a lane
        ("3 3 3", "0 1 2", "0 0 0"),  # one lane is enough, and worth it
        ("8 2 -0", "- - -", "0 0 0"),
        ("12 3", "0 0", "0 1"),  # faster than a lane: alone
    ],
)
def test_ours_by_hand(speeds: str, current: str, expected: str) -> None:
    assert lanes(keep(problem(speeds, current), lane_worth=math.inf)) == expected


def test_a_smaller_one_makes_room_if_that_saves_a_lane() -> None:
    # 5 (of the lane that has 12) fits nowhere; in the place of 2 it does, which goes to 7's lane.
    assert lanes(keep(problem("7 5 5 2 8", "0 0 1 1 2"), lane_worth=math.inf)) == "0 1 1 0 2"


def test_a_lane_is_not_emptied_if_that_moves_more_than_it_is_worth() -> None:
    question = problem("4 4", "0 1")  # a lane too many: 100 % above the fewest
    assert lanes(keep(question, lane_worth=0.003)) == "0 1"
    assert lanes_of(keep(question, lane_worth=0.005)) == 1


def test_sums_that_are_too_large_by_rounding_alone_fit_as_a_fresh_packing_has_them() -> None:
    speeds = {Partition("t", i): s for i, s in enumerate([0.5, 0.2, 0.2, 0.1 + 1e-10] * 2)}
    current = {p: i for i, p in enumerate(speeds)}
    question = Problem(speeds=speeds, capacity=1.0, current=current)
    packed_lanes = relabelled(question)
    assert packed_lanes is not None and len(packed_lanes.members) == 2


def test_lanes_of_different_size_take_what_they_can() -> None:
    question = problem("6 6", "0 0", capacities={0: 12.0})
    assert lanes(keep(question, lane_worth=1.0)) == "0 0"
    assert lanes(keep(problem("6 6", "0 0"), lane_worth=1.0)) in ("0 1", "1 0")


def test_one_that_is_too_fast_for_a_slow_lane_goes_to_a_better_one() -> None:
    slow = {0: 6.0}
    assert lanes(keep(problem("9", "0", capacities=slow), lane_worth=0.0)) == "1"
    # What is with it may stay; and where none can do clearly more, it is alone.
    assert lanes(keep(problem("9 1", "0 0", capacities=slow), lane_worth=0.0)) == "1 0"
    assert lanes(keep(problem("9", "0", capacities={0: 8.9}), lane_worth=0.0)) == "0"
    assert lanes(keep(problem("12 1", "0 0", capacities=slow), lane_worth=0.0)) == "1 0"
    assert lanes(keep(problem("12", "0"), lane_worth=math.inf)) == "0"


def test_what_is_there_may_stay_a_little_above_what_lanes_are_filled_with() -> None:
    question = replace(problem("6 5 3 8", "0 0 1 1"), headroom=0.1)
    assert lanes(keep(question, lane_worth=0.0)) == "0 0 1 1"  # 11 on each
    # More than that goes, until it is not above it at all: to where room is left below it.
    more = replace(problem("6 5.5 3 4", "0 0 1 1"), headroom=0.1)
    assert lanes(keep(more, lane_worth=0.0)) == "0 2 1 1"


def test_an_unknown_algorithm_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"penstock\.packing: 'XF' is unknown") as error:
        algorithm("XF")
    assert "BFD" in str(error.value)


@pytest.mark.parametrize("bad", [{"capacity": 0.0}, {"capacities": {1: -1.0}}])
def test_a_capacity_of_zero_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="capacity must be more than zero"):
        Problem(**{"speeds": {}, "capacity": 1.0, **bad})  # type: ignore[arg-type]


# --- for any ----------------------------------------------------------------------------------------

ALL = {name: algorithm(name) for name in plugins.names("penstock.packing")} | {
    f"KEEP {price}": partial(keep, lane_worth=price) for price in (0.0, 0.05, 2.0, math.inf)
}
speeds = st.lists(st.floats(0, 12) | st.sampled_from([0.0, 2.5, 5.0, 10.0]), max_size=25)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    drawn_speeds = draw(speeds)
    where = draw(
        st.lists(
            st.none() | st.integers(0, 9), min_size=len(drawn_speeds), max_size=len(drawn_speeds)
        )
    )
    differ = draw(st.dictionaries(st.integers(0, 9), st.floats(8, 14), max_size=3))
    named = {Partition("t", i): s for i, s in enumerate(drawn_speeds)}
    current = {p: lane for p, lane in zip(named, where, strict=True) if lane is not None}
    return Problem(speeds=named, capacity=CAPACITY, current=current, capacities=differ)


@pytest.mark.parametrize("name", ALL)
@given(question=problems())
def test_everything_is_assigned_and_no_lane_is_too_full(name: str, question: Problem) -> None:
    assignment = ALL[name](question)
    assert assignment.keys() == question.speeds.keys()
    loads: dict[int, list[float]] = defaultdict(list)
    for partition, lane in assignment.items():
        assert lane >= 0
        loads[lane].append(question.speeds[partition])
    for lane, held in loads.items():
        alone = len([s for s in held if s > 0]) <= 1
        assert alone or sum(held) <= question.capacity_of(lane) * (1 + 1e-6)
    assert ALL[name](question) == assignment, "the same question has another answer"


@pytest.mark.parametrize("name", ALL)
@given(small=st.lists(st.floats(0, 0.39), min_size=1, max_size=25))
def test_one_lane_is_used_where_one_is_enough(name: str, small: list[float]) -> None:
    question = Problem(
        speeds={Partition("t", i): s for i, s in enumerate(small)}, capacity=CAPACITY
    )
    assert set(ALL[name](question).values()) == {0}


@given(question=problems())
def test_ours_needs_no_more_lanes_than_a_fresh_packing_if_lanes_are_all_that_counts(
    question: Problem,
) -> None:
    question = Problem(speeds=question.speeds, capacity=CAPACITY, current=question.current)
    assignment = keep(question, lane_worth=math.inf)
    assert fewest_lanes(question) <= lanes_of(assignment) <= lanes_of(algorithm("BFD")(question))


@pytest.mark.parametrize("price", [0.0, 0.05, 2.0, math.inf])
@given(question=problems())
def test_ours_moves_nothing_the_second_time(price: float, question: Problem) -> None:
    assignment = keep(question, lane_worth=price)
    again = Problem(
        speeds=question.speeds,
        capacity=question.capacity,
        current=assignment,
        capacities=question.capacities,
    )
    second = keep(again, lane_worth=price)
    if price == 0.0:
        # But what is silent, which may move for nothing, and what is too fast for where it is.
        moved = [p for p, lane in second.items() if assignment[p] != lane]
        assert all(not 0 < question.speeds[p] <= question.capacity_of(assignment[p]) for p in moved)
    # It may find something better, and never anything worse.
    assert lanes_of(second) <= lanes_of(assignment)


@given(sizes=st.lists(st.floats(0.1, 10), min_size=1, max_size=6))
def test_the_lower_bound_is_one(sizes: list[float]) -> None:
    assert lower_bound(sizes, CAPACITY) <= _fewest(sorted(sizes, reverse=True), [])


def test_the_lower_bound_sees_that_large_ones_cannot_share() -> None:
    assert lower_bound([6, 6, 6], CAPACITY) == 3
    assert lower_bound([7, 7, 4, 4], CAPACITY) == 3
    assert lower_bound([5, 5, 5, 5], CAPACITY) == 2


def _fewest(sizes: list[float], rooms: list[float]) -> int:
    """By trying everything."""
    if not sizes:
        return len(rooms)
    size, rest = sizes[0], sizes[1:]
    best = _fewest(rest, [*rooms, CAPACITY - size])
    for i, room in enumerate(rooms):
        if size <= room + 1e-9:
            best = min(best, _fewest(rest, [*rooms[:i], room - size, *rooms[i + 1 :]]))
    return best


def test_moved_load_counts_what_changes_its_lane() -> None:
    question = problem("3 4 5", "0 1 -")
    assert moved_load(question, algorithm("FF")(question)) == 4.0
