"""Batches that Kafka's client cannot read: where they end, on the broker that librdkafka mocks."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.lake.order import Range
from penstock.domain.lake.partition import Partition
from penstock.lake.batch_prober import first_outside
from penstock.lake.consumer import LaneConsumer

T = Partition("t", 0)


@given(st.integers(0, 10**6), st.integers(1, 10**5))
def test_first_outside_is_the_end_whatever_the_size(base: int, size: int) -> None:
    offsets: list[int] = []

    def is_inside(offset: int) -> bool:
        offsets.append(offset)
        return offset < base + size

    assert first_outside(base, is_inside) == base + size
    assert len(offsets) <= 2 * size.bit_length() + 1


@pytest.fixture
def producer() -> Iterator[tuple[Producer, str]]:
    """A producer with zstd on a broker of its own, and the address of that broker."""
    client = Producer(
        {
            "test.mock.num.brokers": 1,
            "bootstrap.servers": "none",
            "compression.type": "zstd",
            "message.max.bytes": 10_000_000,
            "batch.size": 10_000_000,
            "linger.ms": 100,
            "log_level": 2,
        }
    )
    brokers = client.list_topics(T.topic, timeout=10).brokers.values()
    yield client, ",".join(f"{b.host}:{b.port}" for b in brokers)


def test_batch_that_decompresses_to_more_than_the_client_takes_is_rejected_and_passed(
    producer: tuple[Producer, str],
) -> None:
    client, address = producer
    for batch in ([b"before"], [b"0" * 400_000] * 10, [b"after", b"last"]):
        for value in batch:
            client.produce(T.topic, value, partition=T.number)
        assert client.flush(30) == 0
    # The default is 100 MB; a batch of a few kB may well decompress to more.
    small = dict.fromkeys(("message.max.bytes", "fetch.max.bytes"), 100_000)
    small["receive.message.max.bytes"] = 1_000_000
    lane = LaneConsumer({"bootstrap.servers": address, "log_level": 2, **small}, 10**6, 1)
    try:
        values: list[bytes | None] = []
        reasons: list[str] = []
        position = 0
        for _ in range(3):
            gathered = lane.gather({T: Range(position, 13, position)}, 10**6, time.monotonic() + 30)
            values += gathered.records.values
            reasons += map(str, gathered.records.early_rejects().values())
            position = gathered.ends[T].offset
        assert position == 13
        assert values == [b"before", None, b"after", b"last"]
        (why,) = reasons
        assert why.startswith("unreadable: offsets 1 to 10: Decompression")
    finally:
        lane.close()
