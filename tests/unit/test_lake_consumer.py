"""A lane's consumer, on a client that says what it is told to say."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.lake.order import Range
from penstock.domain.lake.partition import Partition
from penstock.pipeline.lake import consumer as module
from penstock.pipeline.lake.consumer import Gathered, LaneConsumer

A, B = Partition("t", 0), Partition("t", 1)


class Error:
    def __init__(self, code: int) -> None:
        self._code = code

    def code(self) -> int:
        return self._code

    def fatal(self) -> bool:
        return False

    def str(self) -> str:
        return "told so"

    def name(self) -> str:
        return "NAME"


class Message:
    def __init__(self, place: Partition, offset: int, error: int | None = None) -> None:
        self._place, self._offset = place, offset
        self._error = None if error is None else Error(error)

    def error(self) -> Error | None:
        return self._error

    def topic(self) -> str:
        return self._place.topic

    def partition(self) -> int:
        return self._place.number

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000

    def key(self) -> None: ...

    def headers(self) -> None: ...

    def value(self) -> bytes:
        return b"0123456789"


class Client:
    """Gives what it was given, one list per poll."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.lists: list[list[Message]] = []
        self.rest: list[Message] = []
        self.assigned: dict[tuple[str, int], int] = {}

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        for place in places:
            assert (place.topic, place.partition) not in self.assigned
            self.assigned[place.topic, place.partition] = place.offset

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for place in places:
            del self.assigned[place.topic, place.partition]

    def poll(self, _: float) -> Message | None:
        if not self.lists:
            return None
        first, *self.rest = self.lists.pop(0)
        return first

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        found, self.rest = self.rest, []
        return found


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(module, "Consumer", lambda *_, **__: made)
    return made


def gather(lane: LaneConsumer, wanted: dict[Partition, Range], most: int = 10**6) -> Gathered:
    return lane.gather(wanted, most, until_s=time.monotonic() + 0.3)


def records(place: Partition, first: int, end: int) -> list[Message]:
    return [Message(place, offset) for offset in range(first, end)]


def test_an_end_that_comes_with_the_records_before_it_is_the_end(client: Client) -> None:
    """Of a transaction: records up to 5, its marker at 6; the next order must begin at 7."""
    lane = LaneConsumer({}, 1000, 1)
    client.lists = [[*records(A, 0, 6), Message(A, 7, KafkaError._PARTITION_EOF)]]
    found = gather(lane, {A: Range(0, 7, 0)})
    assert found.ends == {A: 7}
    assert len(found.records) == 6
    client.lists = [records(A, 7, 9)]
    again = gather(lane, {A: Range(7, 9, 7)})
    assert (again.ends, again.kept_partitions) == ({A: 9}, 1)


def test_a_partition_is_taken_up_anew_where_another_lane_left_it(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 1)
    client.lists = [records(A, 0, 3)]
    gather(lane, {A: Range(0, 3, 0)})
    assert gather(lane, {A: Range(9, 9, 9), B: Range(0, 0, 0)}).kept_partitions == 0
    assert client.assigned == {A: 9, B: 0}


def test_it_ends_by_bytes_and_says_so(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 1)
    client.lists = [records(A, 0, 5), records(A, 5, 10), records(A, 10, 15)]
    found = gather(lane, {A: Range(0, 15, 0)}, most=100)
    assert found.is_saturated
    assert found.ends == {A: 10}


def test_records_that_are_gone_end_the_partition_once(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 2)
    gone = Message(A, 5, KafkaError._AUTO_OFFSET_RESET)
    client.lists = [[*records(A, 0, 5), gone], [gone], records(B, 0, 2)]
    found = gather(lane, {A: Range(0, 9, 0), B: Range(0, 2, 0)})
    assert found.ends == {A: 5, B: 2}
    assert client.assigned == {B: 0}
    gather(lane, {A: Range(20, 20, 5), B: Range(2, 2, 2)})
    assert client.assigned == {A: 20, B: 0}


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (KafkaError._BAD_MSG, PenstockError, "t-0 at offset 5"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, BadInput, "t may not be read"),
    ],
)
def test_what_cannot_be_read_is_no_gap(
    client: Client, code: int, kind: type[PenstockError], words: str
) -> None:
    client.lists = [[*records(A, 0, 5), Message(A, 5, code)], records(A, 7, 9)]
    with pytest.raises(kind, match=words):
        gather(LaneConsumer({}, 1000, 1), {A: Range(0, 9, 0)})


def test_a_broker_that_is_away_is_a_trouble_and_no_end(client: Client) -> None:
    client.lists = [[Message(A, 0, KafkaError._TRANSPORT)], records(A, 0, 2)]
    found = gather(LaneConsumer({}, 1000, 1), {A: Range(0, 2, 0)})
    assert list(found.troubles) == ["NAME: told so"]
    assert found.ends == {A: 2}
