"""Small clients for tests: send and count, from a host of the testbed."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Producer

from penstock.kafka.connection import KafkaCluster


def produce(
    cluster: KafkaCluster,
    topic: str,
    count: int,
    host: str = "producer-1",
    size_bytes: int = 100,
    **settings: Any,
) -> list[str]:
    """Send `count` messages; the errors of those that failed."""
    failed: list[str] = []
    with cluster.inside(host):
        producer = Producer({**cluster.client_config, "linger.ms": 5, **settings})

    def answered(error: Any, _message: object) -> None:
        if error is not None:
            failed.append(error.name())

    for i in range(count):
        producer.produce(topic, bytes(size_bytes), key=str(i).encode(), on_delivery=answered)
        producer.poll(0)
    left = producer.flush(60)
    return failed + ["still in the queue"] * left


def consume_all(cluster: KafkaCluster, topic: str, count: int, timeout_s: float = 30) -> list[int]:
    """The keys of the first `count` messages of a topic."""
    with cluster.inside("consumer-1"):
        consumer = Consumer(
            {
                **cluster.client_config,
                "group.id": f"{topic}-reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
    consumer.subscribe([topic])
    keys: list[int] = []
    ends = time.monotonic() + timeout_s
    try:
        while len(keys) < count and time.monotonic() < ends:
            for message in consumer.consume(1000, timeout=0.1):
                assert message.error() is None, message.error()
                key = message.key()
                assert key is not None
                keys.append(int(key))
    finally:
        consumer.close()
    return keys
