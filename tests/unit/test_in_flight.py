"""The table of messages under way: every one leaves once, whatever the order of the reports."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.load.in_flight import NOT_YET, UNPLACED, InFlight, Rows, joined
from penstock.load.rdkafka import Reports


def _reports(tags: list[int], at_ns: int = 7, error: int = 0) -> Reports:
    count = len(tags)
    return Reports(
        tags=np.array(tags, dtype=np.int64),
        at_ns=np.array([at_ns + tag for tag in tags], dtype=np.int64),
        errors=np.full(count, error, dtype=np.int32),
        partitions=np.array([tag % 3 for tag in tags], dtype=np.int32),
        offsets=np.array([10 * tag for tag in tags], dtype=np.int64),
    )


def _drain(in_flight: InFlight, most: int = 5) -> list[Rows]:
    batches = []
    while (rows := in_flight.take_complete(most)) is not None:
        batches.append(rows)
    return batches


def test_rows_leave_in_order_when_they_are_complete() -> None:
    in_flight = InFlight(16)
    in_flight.note_sent(3, at_ns=100)
    in_flight.note_sent(2, at_ns=200, since_ns=150)
    assert in_flight.take_complete(10) is None
    in_flight.note_reported(_reports([1, 0, 4]))
    rows = in_flight.take_complete(10)
    assert rows is not None
    assert rows.sequence.tolist() == [0, 1]
    in_flight.note_reported(_reports([2]))
    rest = _drain(in_flight)
    assert joined(rest).sequence.tolist() == [2]
    assert (in_flight.sent, in_flight.acknowledged, in_flight.under_way) == (5, 4, 1)
    last = in_flight.take_rest()
    assert last.sequence.tolist() == [3, 4]
    assert last.reported_ns.tolist() == [NOT_YET, 11]
    assert last.sent_ns.tolist() == [200, 200]
    assert last.since_ns.tolist() == [150, 150]
    assert last.partitions.tolist() == [UNPLACED, 1]


def test_a_silent_message_holds_nobody_up() -> None:
    in_flight = InFlight(16)
    batches: list[Rows] = []
    for message in range(100):
        in_flight.note_sent(1, at_ns=message + 1)
        if message != 5:
            in_flight.note_reported(_reports([message]))
        batches += _drain(in_flight)
    in_flight.note_reported(_reports([5], error=-192))
    batches += _drain(in_flight)
    rows = joined(batches)
    assert sorted(rows.sequence.tolist()) == list(range(100))
    late = rows.sequence.tolist().index(5)
    assert rows.sent_ns[late] == 6
    assert rows.errors[late] == -192
    assert in_flight.failed == 1


def test_rows_behind_a_silent_one_are_passed_over() -> None:
    in_flight = InFlight(1024)
    in_flight.note_sent(100, at_ns=1)
    in_flight.note_reported(_reports([tag for tag in range(100) if tag != 3]))
    assert joined(_drain(in_flight, most=1000)).sequence.tolist() == [0, 1, 2]
    in_flight.pass_over()
    assert len(joined(_drain(in_flight, most=1000))) == 96
    assert in_flight.under_way == 1
    assert in_flight.take_rest().sequence.tolist() == [3]


def test_many_silent_ones_are_waited_for() -> None:
    in_flight = InFlight(1024)
    in_flight.note_sent(100, at_ns=1)
    in_flight.note_reported(_reports(list(range(50, 100))))
    in_flight.pass_over()
    assert in_flight.take_complete(1000) is None


def test_what_is_given_up_has_a_partition_and_no_answer() -> None:
    in_flight = InFlight(16)
    for message in range(30):
        in_flight.note_sent(1, at_ns=1)
        if message != 2:
            in_flight.note_reported(_reports([message]))
    in_flight.note_sent(1, at_ns=1)
    in_flight.note_given_up(_reports([2, 30]))
    rest = in_flight.take_rest()
    unknown = rest.reported_ns == NOT_YET
    assert sorted(rest.sequence[unknown].tolist()) == [2, 30]
    assert sorted(rest.partitions[unknown].tolist()) == [0, 2]
    assert in_flight.under_way == 2


def test_the_room_must_be_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="power of two"):
        InFlight(100)


@given(seed=st.integers(0, 2**32), room=st.sampled_from([8, 32]), hold=st.integers(1, 60))
def test_every_message_leaves_once_with_its_report(seed: int, room: int, hold: int) -> None:
    """Groups of any size, reported in any order, some silent for long."""
    rng = Random(seed)
    in_flight = InFlight(room)
    under_way: list[int] = []
    batches: list[Rows] = []
    sent_at: dict[int, int] = {}
    number = 0
    for now in range(1, 80):
        count = rng.randrange(0, room // 4 + 1)
        if count:
            in_flight.note_sent(count, at_ns=now)
        for _ in range(count):
            sent_at[number] = now
            under_way.append(number)
            number += 1
        while len(under_way) > hold:
            reported = [
                under_way.pop(rng.randrange(len(under_way)))
                for _ in range(rng.randint(1, 3))
                if under_way
            ]
            in_flight.note_reported(_reports(reported, error=rng.choice((0, 0, -192))))
        if rng.random() < 0.5:
            batches += _drain(in_flight)
        if rng.random() < 0.1:
            in_flight.pass_over()
    assert in_flight.under_way == len(under_way)
    rows = joined([*batches, *_drain(in_flight), in_flight.take_rest()])
    assert sorted(rows.sequence.tolist()) == list(range(number))
    for sequence, sent, reported, offset in zip(
        rows.sequence.tolist(),
        rows.sent_ns.tolist(),
        rows.reported_ns.tolist(),
        rows.offsets.tolist(),
        strict=True,
    ):
        assert sent == sent_at[sequence]
        assert reported == (NOT_YET if sequence in under_way else 7 + sequence)
        assert offset == (0 if sequence in under_way else 10 * sequence)
