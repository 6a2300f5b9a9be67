"""What Kafka's client really says of a log that ends before a position, on brokers of its own.

Librdkafka has mock brokers, which run inside this process. They hold records and leader epochs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from penstock.domain.lake.order import Position, Range
from penstock.domain.lake.partition import Partition
from penstock.kafka import client_log
from penstock.lake.consumer import LaneConsumer
from penstock.lake.gathered import Gathered

A, B = Partition("t", 0), Partition("t", 1)
RECORDS = 10


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    mock = {"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "group.id": "host"}
    host = Consumer(mock, logger=client_log.log)
    brokers = host.list_topics("t", timeout=10).brokers.values()
    addresses = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    producer = Producer({"bootstrap.servers": addresses}, logger=client_log.log)
    for number in range(RECORDS):
        for partition in (A, B):
            producer.produce(partition.topic, str(number).encode(), partition=partition.number)
    assert producer.flush(10) == 0
    yield addresses
    host.close()


@pytest.fixture
def lane(servers: str) -> Iterator[LaneConsumer]:
    consumer = LaneConsumer({"bootstrap.servers": servers}, 10**6, 2)
    yield consumer
    consumer.close()


def gather(lane: LaneConsumer, ranges: dict[Partition, Range]) -> Gathered:
    return lane.gather(ranges, 10**6, until_s=time.monotonic() + 20)


def test_an_epoch_that_fits_is_read_on_from(lane: LaneConsumer) -> None:
    gathered = gather(lane, {A: Range(4, RECORDS, 4, leader_epoch=0)})
    assert gathered.records.offsets == [4, 5, 6, 7, 8, 9]
    assert (gathered.ends, gathered.diverged) == ({A: Position(RECORDS, 0)}, {})


@pytest.mark.parametrize("knows_topic", [False, True])
def test_a_log_that_ends_before_a_position_of_that_epoch_is_truncated(
    lane: LaneConsumer, knows_topic: bool
) -> None:
    """Also if the client has the topic's metadata, which is when an assignment is not checked."""
    if knows_topic:
        gather(lane, {A: Range(0, RECORDS, 0), B: Range(0, RECORDS, 0)})
    gathered = gather(lane, {A: Range(50, 60, 50, leader_epoch=0), B: Range(3, RECORDS, 3)})
    assert gathered.ends == {A: Position(50, 0), B: Position(RECORDS, 0)}
    # On a busy machine the client's first fetch overtakes the check, and all that the broker says
    # is that the offset does not exist. Then the log's end shows the truncation (`Truncations`).
    overtaken = any("Offset out of range" in trouble for trouble in gathered.troubles)
    assert gathered.diverged == ({} if overtaken else {A: RECORDS})


def test_without_an_epoch_it_is_only_out_of_range(lane: LaneConsumer) -> None:
    gathered = gather(lane, {A: Range(50, 60, 50)})
    assert (gathered.diverged, gathered.ends) == ({}, {A: Position(50)})


def test_partitions_change_hands_again_and_again(lane: LaneConsumer) -> None:
    """Each time one is given back and another is taken up, and checked."""
    for start in range(RECORDS):
        for partition in (A, B):
            gathered = gather(lane, {partition: Range(start, RECORDS, start, leader_epoch=0)})
            assert (gathered.diverged, list(gathered.troubles)) == ({}, [])
            assert len(gathered.records) == RECORDS - start
