"""The table of messages under way: every one leaves once, whatever the order of the reports."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.load.in_flight import NOT_YET, UNPLACED, Ledger, Rows, joined
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


def _drain(ledger: Ledger, most: int = 5) -> list[Rows]:
    batches = []
    while (rows := ledger.take_complete(most)) is not None:
        batches.append(rows)
    return batches


def test_rows_leave_in_order_when_they_are_complete() -> None:
    ledger = Ledger(16)
    ledger.note_sent(3, at_ns=100)
    ledger.note_sent(2, at_ns=200, since_ns=150)
    assert ledger.take_complete(10) is None
    ledger.note_reported(_reports([1, 0, 4]))
    rows = ledger.take_complete(10)
    assert rows is not None
    assert rows.sequence.tolist() == [0, 1]
    ledger.note_reported(_reports([2]))
    rest = _drain(ledger)
    assert joined(rest).sequence.tolist() == [2]
    assert (ledger.sent, ledger.acknowledged, ledger.under_way) == (5, 4, 1)
    last = ledger.take_rest()
    assert last.sequence.tolist() == [3, 4]
    assert last.reported_ns.tolist() == [NOT_YET, 11]
    assert last.sent_ns.tolist() == [200, 200]
    assert last.since_ns.tolist() == [150, 150]
    assert last.partitions.tolist() == [UNPLACED, 1]


def test_a_silent_message_holds_nobody_up() -> None:
    ledger = Ledger(16)
    batches: list[Rows] = []
    for message in range(100):
        ledger.note_sent(1, at_ns=message + 1)
        if message != 5:
            ledger.note_reported(_reports([message]))
        batches += _drain(ledger)
    ledger.note_reported(_reports([5], error=-192))
    batches += _drain(ledger)
    rows = joined(batches)
    assert sorted(rows.sequence.tolist()) == list(range(100))
    late = rows.sequence.tolist().index(5)
    assert rows.sent_ns[late] == 6
    assert rows.errors[late] == -192
    assert ledger.failed == 1


def test_rows_behind_a_silent_one_are_passed_over() -> None:
    ledger = Ledger(1024)
    ledger.note_sent(100, at_ns=1)
    ledger.note_reported(_reports([tag for tag in range(100) if tag != 3]))
    assert joined(_drain(ledger, most=1000)).sequence.tolist() == [0, 1, 2]
    ledger.pass_over()
    assert len(joined(_drain(ledger, most=1000))) == 96
    assert ledger.under_way == 1
    assert ledger.take_rest().sequence.tolist() == [3]


def test_many_silent_ones_are_waited_for() -> None:
    ledger = Ledger(1024)
    ledger.note_sent(100, at_ns=1)
    ledger.note_reported(_reports(list(range(50, 100))))
    ledger.pass_over()
    assert ledger.take_complete(1000) is None


def test_what_is_given_up_has_a_partition_and_no_answer() -> None:
    ledger = Ledger(16)
    for message in range(30):
        ledger.note_sent(1, at_ns=1)
        if message != 2:
            ledger.note_reported(_reports([message]))
    ledger.note_sent(1, at_ns=1)
    ledger.note_given_up(_reports([2, 30]))
    rest = ledger.take_rest()
    unknown = rest.reported_ns == NOT_YET
    assert sorted(rest.sequence[unknown].tolist()) == [2, 30]
    assert sorted(rest.partitions[unknown].tolist()) == [0, 2]
    assert ledger.under_way == 2


def test_the_room_must_be_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="power of two"):
        Ledger(100)


@given(seed=st.integers(0, 2**32), room=st.sampled_from([8, 32]), hold=st.integers(1, 60))
def test_every_message_leaves_once_with_its_report(seed: int, room: int, hold: int) -> None:
    """Groups of any size, reported in any order, some silent for long."""
    rng = Random(seed)
    ledger = Ledger(room)
    under_way: list[int] = []
    batches: list[Rows] = []
    sent_at: dict[int, int] = {}
    number = 0
    for now in range(1, 80):
        count = rng.randrange(0, room // 4 + 1)
        if count:
            ledger.note_sent(count, at_ns=now)
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
            ledger.note_reported(_reports(reported, error=rng.choice((0, 0, -192))))
        if rng.random() < 0.5:
            batches += _drain(ledger)
        if rng.random() < 0.1:
            ledger.pass_over()
    assert ledger.under_way == len(under_way)
    rows = joined([*batches, *_drain(ledger), ledger.take_rest()])
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
