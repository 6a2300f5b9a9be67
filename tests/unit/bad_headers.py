"""Records whose header names are not UTF-8, in messages of the real client.

No Python client writes them, so the bytes of a Produce request are made here, and sent to the broker
that librdkafka has inside of it for tests.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from kafka.record.default_records import DefaultRecordBatchBuilder

TOPIC = "t"


class _Name(str):
    """A header's name as these bytes, whatever it says."""

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


def messages(headers: Sequence[bool]) -> list[Message]:
    """As many as there are items: whether the name of its header is good."""
    broker = Producer({"test.mock.num.brokers": 1, "log_level": 3})
    metadata = next(iter(broker.list_topics(timeout=30).brokers.values()))
    address = metadata.host, metadata.port
    consumer = Consumer(
        {
            "bootstrap.servers": f"{metadata.host}:{metadata.port}",
            "group.id": "g",
            "allow.auto.create.topics": True,
        }
    )
    broker.produce(TOPIC, b"the first makes the topic", partition=0)
    assert broker.flush(30) == 0
    _send(address, _batch(headers))
    consumer.assign([TopicPartition(TOPIC, 0, 1)])
    read: list[Message] = []
    for _ in range(60):
        read += consumer.consume(len(headers) - len(read), 1.0)
        if len(read) >= len(headers):
            break
    consumer.close()
    assert len(read) == len(headers) and not any(m.error() for m in read)
    return read


def _batch(headers: Sequence[bool]) -> bytes:
    builder: Any = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for i, is_good in enumerate(headers):
        name = "good" if is_good else _Name("bad")
        assert builder.append(i, 1000 + i, b"k", b"v%d" % i, [(name, b"1")])
    return bytes(builder.build())


def _send(address: tuple[str, int], batch: bytes) -> None:
    """Produce, version 7."""
    text = TOPIC.encode()
    body = struct.pack(">hhih4s", 0, 7, 1, 4, b"test")
    body += struct.pack(">hhii", -1, 1, 10_000, 1)
    body += struct.pack(f">h{len(text)}si", len(text), text, 1)
    body += struct.pack(">ii", 0, len(batch)) + batch
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert connection.recv(4), "the broker closed the connection"
