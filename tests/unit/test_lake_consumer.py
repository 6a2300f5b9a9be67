"""A lane's consumer, on a client that says what it is told to say."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.domain.errors import BadInput
from penstock.domain.lake.order import Position, Range
from penstock.domain.lake.partition import Partition
from penstock.lake import consumer as module
from penstock.lake.batch_prober import BatchProber
from penstock.lake.consumer import LaneConsumer
from penstock.lake.gathered import Gathered

A, B = Partition("t", 0), Partition("t", 1)


TRUNCATED = (
    "Partition log truncation detected at offset 5 (leader epoch 1): broker end offset is 3 "
    "(offset leader epoch 1). Reset to INVALID.: Local: Partition log truncation detected"
)


class Error:
    def __init__(self, code: int, text: str) -> None:
        self._code, self._text = code, text

    def code(self) -> int:
        return self._code

    def fatal(self) -> bool:
        return False

    def name(self) -> str:
        return "NAME"

    def str(self) -> str:
        return self._text


class Message:
    def __init__(
        self,
        place: Partition,
        offset: int,
        error: int | None = None,
        text: str = "told so",
        epoch: int | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        self._place, self._offset, self._epoch, self._headers = place, offset, epoch, headers
        self._error = None if error is None else Error(error, text)

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

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers

    def leader_epoch(self) -> int | None:
        return self._epoch

    def value(self) -> bytes:
        return b"0123456789"


class Client:
    """Gives what it was given, one list per poll."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.lists: list[list[Message]] = []
        self.rest: list[Message] = []
        self.assigned: dict[tuple[str, int], int] = {}
        self.checked: list[tuple[int, int, int]] = []
        self.is_busy = 0
        self.config: dict[str, Any] = {}

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        for place in places:
            assert (place.topic, place.partition) not in self.assigned
            self.assigned[place.topic, place.partition] = place.offset

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for place in places:
            del self.assigned[place.topic, place.partition]

    def seek(self, place: TopicPartition) -> None:
        assert self.assigned[place.topic, place.partition] == place.offset
        if self.is_busy:
            self.is_busy -= 1
            raise KafkaException(Error(KafkaError._STATE, "Erroneous state"))
        self.checked.append((place.partition, place.offset, place.leader_epoch))

    def poll(self, _: float) -> Message | None:
        if not self.lists:
            return None
        first, *self.rest = self.lists.pop(0)
        return first

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        messages, self.rest = self.rest, []
        return messages


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    new_client = Client()

    def make(config: dict[str, Any], **_: Any) -> Client:
        new_client.config = config
        return new_client

    monkeypatch.setattr(module, "Consumer", make)
    return new_client


def gather(lane: LaneConsumer, ranges: dict[Partition, Range], most: int = 10**6) -> Gathered:
    return lane.gather(ranges, most, until_s=time.monotonic() + 0.3)


def records(place: Partition, first: int, end: int, epoch: int | None = None) -> list[Message]:
    return [Message(place, offset, epoch=epoch) for offset in range(first, end)]


def offsets(gathered: Gathered) -> dict[Partition, int]:
    return {partition: position.offset for partition, position in gathered.ends.items()}


def test_an_end_that_comes_with_the_records_before_it_is_the_end(client: Client) -> None:
    """Of a transaction: records up to 5, its marker at 6; the next order must begin at 7."""
    lane = LaneConsumer({}, 1000, 1)
    client.lists = [[*records(A, 0, 6), Message(A, 7, KafkaError._PARTITION_EOF)]]
    gathered = gather(lane, {A: Range(0, 7, 0)})
    assert offsets(gathered) == {A: 7}
    assert len(gathered.records) == 6
    client.lists = [records(A, 7, 9)]
    again = gather(lane, {A: Range(7, 9, 7)})
    assert (offsets(again), again.kept_partitions) == ({A: 9}, 1)


def test_a_moved_partition_continues_where_the_other_lane_ended(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 1)
    client.lists = [records(A, 0, 3)]
    gather(lane, {A: Range(0, 3, 0)})
    assert gather(lane, {A: Range(9, 9, 9), B: Range(0, 0, 0)}).kept_partitions == 0
    assert client.assigned == {A: 9, B: 0}


def test_it_ends_by_bytes(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 1)
    client.lists = [records(A, 0, 5), records(A, 5, 10), records(A, 10, 15)]
    gathered = gather(lane, {A: Range(0, 15, 0)}, most=100)
    assert offsets(gathered) == {A: 10}


def test_records_that_are_gone_end_the_partition_once(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 2)
    gone = Message(A, 5, KafkaError._AUTO_OFFSET_RESET)
    client.lists = [[*records(A, 0, 5), gone], [gone], records(B, 0, 2)]
    gathered = gather(lane, {A: Range(0, 9, 0), B: Range(0, 2, 0)})
    assert offsets(gathered) == {A: 5, B: 2}
    assert gathered.diverged == {}
    assert client.assigned == {B: 0}
    gather(lane, {A: Range(20, 20, 5), B: Range(2, 2, 2)})
    assert client.assigned == {A: 20, B: 0}


def test_forbidden_topic_is_an_error(client: Client) -> None:
    forbidden = KafkaError.TOPIC_AUTHORIZATION_FAILED
    client.lists = [[*records(A, 0, 5), Message(A, 5, forbidden)], records(A, 7, 9)]
    with pytest.raises(BadInput, match="t may not be read"):
        gather(LaneConsumer({}, 1000, 1), {A: Range(0, 9, 0)})


# --- batches that the client cannot read -----------------------------------------------------------


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> dict[int, int | Exception]:
    """First offset of an unreadable batch → the offset after it."""
    by_base: dict[int, int | Exception] = {}

    def end_of_batch(_: object, _partition: Partition, base_offset: int, first: int) -> int:
        end = by_base[base_offset]
        if isinstance(end, Exception):
            raise end
        assert base_offset <= first < end
        return end

    monkeypatch.setattr(BatchProber, "end_of_batch", end_of_batch)
    return by_base


def test_unreadable_batch_is_one_reject_and_reading_continues_after_it(
    client: Client, ends: dict[int, int | Exception]
) -> None:
    lane = LaneConsumer({}, 1000, 2)
    ends[5] = 7
    bad = Message(A, 5, KafkaError._BAD_MSG, "checksum")
    # The client skips what it cannot read: the records after it are not taken yet.
    client.lists = [[*records(A, 0, 5), bad, *records(A, 7, 9)], records(B, 0, 2)]
    first = gather(lane, {A: Range(0, 9, 0), B: Range(0, 2, 0)})
    assert offsets(first) == {A: 7, B: 2}
    assert first.ends[A] == Position(7), "an epoch would have the client read the batch again"
    assert first.records.offsets == [0, 1, 2, 3, 4, 0, 1, 5]
    (why,) = first.records.early_rejects().values()
    assert str(why) == "unreadable: offsets 5 to 6: checksum"
    assert client.assigned == {B: 0}
    client.lists = [records(A, 7, 9)]
    assert offsets(gather(lane, {A: Range(7, 9, 7), B: Range(2, 2, 2)})) == {A: 9, B: 2}


def test_unreadable_batch_that_begins_before_the_position(
    client: Client, ends: dict[int, int | Exception]
) -> None:
    ends[3] = 8
    client.lists = [[Message(A, 3, KafkaError._BAD_COMPRESSION)]]
    gathered = gather(LaneConsumer({}, 1000, 1), {A: Range(5, 9, 5)})
    assert offsets(gathered) == {A: 8}
    assert gathered.records.offsets == [5]


def test_unreadable_batch_whose_end_no_broker_tells_is_tried_again(
    client: Client, ends: dict[int, int | Exception]
) -> None:
    ends[2] = TimeoutError("no answer")
    client.lists = [[*records(A, 0, 2), Message(A, 2, KafkaError._BAD_MSG)]]
    gathered = gather(LaneConsumer({}, 1000, 1), {A: Range(0, 9, 0)})
    assert offsets(gathered) == {A: 2}
    assert gathered.records.early_rejects() == {}
    assert "t-0 at offset 2" in next(iter(gathered.troubles))


def test_unreadable_answer_without_a_partition_is_a_trouble(client: Client) -> None:
    client.lists = [[Message(Partition("", -1), -1, KafkaError._BAD_MSG)], records(A, 0, 2)]
    gathered = gather(LaneConsumer({}, 1000, 1), {A: Range(0, 2, 0)})
    assert offsets(gathered) == {A: 2}
    assert len(gathered.troubles) == 1


def test_a_broker_that_is_away_is_a_trouble_and_no_end(client: Client) -> None:
    client.lists = [[Message(A, 0, KafkaError._TRANSPORT)], records(A, 0, 2)]
    gathered = gather(LaneConsumer({}, 1000, 1), {A: Range(0, 2, 0)})
    assert list(gathered.troubles) == ["NAME: told so"]
    assert offsets(gathered) == {A: 2}


# --- logs that were rewritten ----------------------------------------------------------------------


def lost(place: Partition, text: str = TRUNCATED) -> Message:
    return Message(place, -1, KafkaError._AUTO_OFFSET_RESET, text)


def test_it_says_the_epoch_of_the_last_record_and_where_that_was(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 2)
    end = Message(A, 7, KafkaError._PARTITION_EOF)
    client.lists = [[*records(A, 0, 4, epoch=1), *records(A, 4, 6, epoch=2), end]]
    gathered = gather(lane, {A: Range(0, 7, 0), B: Range(3, 9, 3, 5)})
    # Nothing came of B.
    assert gathered.ends == {A: Position(7, 2, 6), B: Position(3, 5)}


def test_kafka_checks_the_epoch_of_a_position_that_is_taken_up(client: Client) -> None:
    client.is_busy = 3
    lane = LaneConsumer({}, 1000, 2)
    gather(lane, {A: Range(5, 5, 5, 1), B: Range(5, 5, 5)})
    assert client.checked == [(0, 5, 1)]
    # One that is held already is checked by the client itself.
    gather(lane, {A: Range(5, 5, 5, 1)})
    assert client.checked == [(0, 5, 1)]


def test_a_position_behind_offsets_without_a_record_is_checked_where_its_epoch_is_known(
    client: Client,
) -> None:
    """The marker at 6 may be of a later epoch than the record at 5."""
    lane = LaneConsumer({}, 1000, 1)
    client.lists = [records(A, 7, 9, epoch=2)]
    gathered = gather(lane, {A: Range(7, 9, 7, 1, 6)})
    assert client.checked == [(0, 6, 1)]
    assert gathered.records.offsets == [7, 8]
    assert (gathered.ends, gathered.diverged) == ({A: Position(9, 2)}, {})


def test_a_record_where_there_was_none_shows_another_log(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 2)
    end = Message(A, 9, KafkaError._PARTITION_EOF)
    client.lists = [[*records(A, 6, 9, epoch=2), *records(B, 0, 2), end]]
    gathered = gather(lane, {A: Range(7, 9, 7, 1, 6), B: Range(0, 2, 0)})
    assert gathered.diverged == {A: 6}
    assert gathered.ends == {A: Position(7, 1, 6), B: Position(2)}
    assert len(gathered.records) == 2
    assert client.assigned == {B: 0}


def test_a_truncation_is_asked_for_again_before_it_is_one(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 2)
    client.lists = [[lost(A)], [lost(A)], records(B, 0, 2)]
    gathered = gather(lane, {A: Range(5, 9, 5, 1), B: Range(0, 2, 0)})
    assert client.checked == [(0, 5, 1)] * 2
    assert gathered.diverged == {A: 3}
    assert offsets(gathered) == {A: 5, B: 2}
    assert client.assigned == {B: 0}
    # After it was recorded, there is no epoch to check.
    client.lists = [records(A, 5, 9, epoch=4)]
    again = gather(lane, {A: Range(5, 9, 5, truncated_from=3)})
    assert (again.diverged, again.ends) == ({}, {A: Position(9, 4)})


def test_a_late_answer_does_not_truncate_a_log_again_after_it_was_recorded(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 1)
    client.lists = [[lost(A)], [lost(A)]]
    assert gather(lane, {A: Range(5, 9, 5, 1)}).diverged == {A: 3}
    client.lists = [[lost(A)], records(A, 5, 9, epoch=4)]
    again = gather(lane, {A: Range(5, 9, 5, truncated_from=3)})
    assert (again.diverged, again.ends) == ({}, {A: Position(9, 4)})


def test_an_unconfirmed_truncation_is_ignored(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 1)
    client.lists = [records(A, 5, 7, epoch=1), [lost(A)], records(A, 7, 9, epoch=1), [lost(A)]]
    gathered = gather(lane, {A: Range(5, 12, 5, 1)})
    # Each time for what was read so far.
    assert client.checked == [(0, 5, 1), (0, 7, 1), (0, 9, 1)]
    assert (gathered.diverged, offsets(gathered)) == ({}, {A: 9})


def test_a_broker_that_does_not_know_the_epoch_may_have_lost_everything(client: Client) -> None:
    lane = LaneConsumer({}, 1000, 1)
    text = "No epoch found less or equal to offset 5 (leader epoch 7): broker end offset is -1"
    client.lists = [[lost(A, text)], [lost(A, text)]]
    assert gather(lane, {A: Range(5, 9, 5, 7)}).diverged == {A: 0}


def test_a_partition_that_cannot_be_assigned_in_time_is_left_for_later(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SEEK_S", 0.01)
    lane = LaneConsumer({}, 1000, 2)
    client.is_busy = 10**6
    client.lists = [records(B, 0, 2)]
    gathered = gather(lane, {A: Range(5, 9, 5, 1), B: Range(0, 2, 0)})
    assert offsets(gathered) == {A: 5, B: 2}
    assert list(gathered.troubles) == ["not assigned within 0.01 s: t-0"]
    assert client.assigned == {B: 0}


# --- memory ------------------------------------------------------------------------------------------


def test_headers_and_pythons_own_overhead_end_a_lanes_part_too(client: Client) -> None:
    large: list[tuple[str, bytes | None]] = [("trace", bytes(1_000_000))]
    client.lists = [[Message(A, offset, headers=large)] for offset in range(100)]
    gathered = gather(LaneConsumer({}, 1000, 1), {A: Range(0, 100, 0)}, most=6_000_000)
    assert (len(gathered.records), gathered.size_bytes) == (24, 240)


def test_many_small_records_are_counted_with_what_they_take() -> None:
    small = Gathered(size_bytes=0, held_bytes=0)
    small.records.offsets = list(range(512_000))
    small.size_bytes, small.held_bytes = 512_000, 512_000 * 251
    assert small.room(32_000_000) == 0
    usual = Gathered(size_bytes=1000, held_bytes=3500)
    usual.records.offsets = list(range(10))
    assert usual.room(1500) == 5
    assert usual.room(1000) == 0


def test_checksums_are_checked_unless_the_user_says_otherwise(client: Client) -> None:
    LaneConsumer({}, 1000, 1)
    assert client.config["check.crcs"] is True
    LaneConsumer({"check.crcs": False}, 1000, 1)
    assert client.config["check.crcs"] is False
