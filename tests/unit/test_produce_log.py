"""Tries from librdkafka's log. The lines are those of librdkafka 2.16, taken from real runs.

That the reading is right was checked against the counter of retries that librdkafka keeps in each
message, on a broker that was frozen: 10,000 messages each with and without idempotence, with
retries 0, 1 and without limit, and with messages that timed out in the queue.
"""

from __future__ import annotations

import numpy as np
import pytest

from penstock.load.produce_log import RequestLog
from penstock.load.rdkafka import LogLine

FOREVER = 2**31 - 1


def _line(facility: str, text: str, broker: str = "10.77.1.2:9092/1", at_ns: int = 0) -> LogLine:
    whole = f"[thrd:{broker}]: {broker}: orders.v1 [0]: {text}"
    return LogLine(at_ns, 7, facility.encode(), whole.encode())


def produced(count: int, msg_id: int = 0, broker: str = "10.77.1.2:9092/1") -> LogLine:
    return _line(
        "PRODUCE",
        f"Produce MessageSet with {count} message(s) ({count * 100} bytes, ApiVersion 10, "
        f"MsgVersion 2, MsgId {msg_id}, BaseSeq -1, PID{{Invalid}}, uncompressed)",
        broker,
        at_ns=17,
    )


def delivered(count: int, broker: str = "10.77.1.2:9092/1") -> LogLine:
    return _line(
        "MSGSET", f"MessageSet with {count} message(s) (MsgId 0, BaseSeq -1) delivered", broker
    )


def failed(
    count: int,
    error: str = "Local: Timed out",
    actions: str = "Retry,MsgPossiblyPersisted",
    broker: str = "10.77.1.2:9092/1",
) -> LogLine:
    return _line(
        "MSGSET",
        f"MessageSet with {count} message(s) (MsgId 0, BaseSeq -1) encountered error: {error} "
        f"(actions {actions})",
        broker,
    )


def timed_out(first: int, last: int) -> LogLine:
    return _line(
        "TIMEOUT",
        f"timed out {last - first + 1}+0 message(s) (MsgId {first}..{last}): "
        "message.timeout.ms exceeded",
    )


def _tries(lines: list[LogLine], count: int, retries: int = FOREVER, unknown: int = 0) -> list[int]:
    log = RequestLog(retries)
    log.read(lines)
    is_unknown = np.arange(count) >= count - unknown
    tries: list[int] = log.tries(np.zeros(count, dtype=np.int32), is_unknown).tolist()
    return tries


def test_without_failures_every_message_is_tried_once() -> None:
    log = RequestLog(FOREVER)
    other = _line("PRODUCE", "No more space in current MessageSet (1 message(s), 212 bytes)")
    requests = log.read([produced(3), other, produced(2), delivered(3), delivered(2)])
    assert [(r.partition, r.first, r.messages, r.size_bytes, r.at_ns) for r in requests] == [
        (0, 1, 3, 300, 17),
        (0, 4, 2, 200, 17),
    ]
    assert log.tries(np.zeros(5, np.int32), np.zeros(5, np.bool_)).tolist() == [1] * 5
    assert log.sent_again == 0


def test_a_failed_request_goes_again_and_takes_others_along() -> None:
    log = RequestLog(FOREVER)
    lines = [produced(3), produced(2), failed(3), failed(2), produced(4), produced(3)]
    requests = log.read([*lines, delivered(4), delivered(3)])
    assert [(r.first, r.messages) for r in requests] == [(1, 3), (4, 2), (1, 4), (5, 3)]
    tries = log.tries(np.zeros(7, np.int32), np.zeros(7, np.bool_))
    assert tries.tolist() == [2, 2, 2, 2, 2, 1, 1]
    assert log.sent_again == 2


def test_answers_come_in_the_order_of_requests() -> None:
    lines = [produced(2), produced(3), delivered(2), failed(3), produced(3), delivered(3)]
    assert _tries(lines, 5) == [1, 1, 2, 2, 2]


def test_a_new_leader_answers_for_itself() -> None:
    """The old leader's requests fail after the new one has got some already."""
    new = "10.77.2.2:9092/2"
    lines = [
        produced(2),
        produced(3, broker=new),
        failed(2, "Local: Broker transport failure", "Refresh,MsgPossiblyPersisted"),
        delivered(3, broker=new),
        produced(2, broker=new),
        delivered(2, broker=new),
    ]
    assert _tries(lines, 5) == [2, 2, 1, 1, 1]


def test_messages_that_time_out_in_the_queue_were_not_tried() -> None:
    lines = [produced(2), failed(2), timed_out(1, 3), produced(2), delivered(2)]
    assert _tries(lines, 5) == [1, 1, 0, 1, 1]


def test_retries_are_limited() -> None:
    lines = [produced(2), failed(2), produced(3), delivered(3)]
    assert _tries(lines, 5, retries=0) == [1, 1, 1, 1, 1]
    again = [produced(2), failed(2), produced(2), failed(2), produced(3), delivered(3)]
    assert _tries(again, 5, retries=1) == [2, 2, 1, 1, 1]


def test_a_stale_leader_costs_no_retry() -> None:
    stale = failed(2, "Broker: Not leader for partition", "Refresh,MsgNotPersisted")
    lines = [produced(2), stale, produced(2), delivered(2)]
    assert _tries(lines, 2, retries=0) == [2, 2]


def test_a_permanent_error_is_the_end() -> None:
    lines = [produced(2), failed(2, "Broker: Message size too large", "Permanent"), produced(1)]
    assert _tries([*lines, delivered(1)], 3) == [1, 1, 1]


def test_idempotent_producers_name_their_messages() -> None:
    lines = [produced(2, msg_id=1), produced(2, msg_id=3), failed(2), produced(2, msg_id=1)]
    assert _tries(lines, 4) == [2, 2, 1, 1]


def test_tries_are_unknown_rather_than_wrong() -> None:
    # More messages in requests than there were.
    assert _tries([produced(5), delivered(5)], 4) == [-1] * 4
    # Some that nobody tried, though all were heard of.
    assert _tries([produced(2), delivered(2)], 4) == [-1] * 4
    # An answer to a request that nobody saw.
    assert _tries([produced(4), delivered(3)], 4) == [-1] * 4
    # With messages that were given up it comes out even.
    assert _tries([produced(2), delivered(2)], 4, unknown=2) == [1, 1, 0, 0]


def test_partitions_are_counted_each_by_itself() -> None:
    log = RequestLog(FOREVER)
    other = LogLine(0, 7, b"PRODUCE", produced(2).text.replace(b"[0]", b"[12]"))
    log.read([produced(2), other, failed(2), produced(2)])
    partitions = np.array([12, 0, -1, 0, 12], dtype=np.int32)
    assert log.tries(partitions, np.zeros(5, np.bool_)).tolist() == [1, 2, -1, 2, 1]


@pytest.mark.parametrize("text", ["", "garbage", "[thrd:x]: x: t [0]: Produce MessageSet"])
def test_other_lines_are_passed_over(text: str) -> None:
    log = RequestLog(FOREVER)
    assert log.read([LogLine(0, 7, b"PRODUCE", text.encode())]) == []
