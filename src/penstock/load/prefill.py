"""Fills topics with a backlog as fast as the brokers accept it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from random import Random
from typing import Any

from confluent_kafka import Producer

from penstock.domain.content import Content
from penstock.domain.errors import PenstockError
from penstock.load.bodies import bodies, records
from penstock.load.contents.telemetry import TelemetryContent

# Enough different values that a batch hardly holds one twice.
_VALUES = 4096
_TURN = 500
_FLUSH_S = 120
_TELEMETRY = TelemetryContent()


def fill(
    config: Mapping[str, Any],
    topic: str,
    partitions: int,
    bytes_each: int,
    *,
    content: Content = _TELEMETRY,
    size_bytes: int | None = None,
    seed: int = 1,
) -> int:
    """Write at least this many bytes to every partition; returns the number of messages.

    Each is one record of the content, or with `size_bytes` exactly so large.
    """
    values = _values(content, size_bytes, seed)
    mean = sum(map(len, values)) / len(values)
    left = dict.fromkeys(range(partitions), -int(-bytes_each // mean))
    sent = sum(left.values())
    failed: list[str] = []

    def answered(error: Any, _: object) -> None:
        if error is not None:
            failed.append(error.str())

    producer = Producer(
        {
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            **config,
            "on_delivery": answered,
        }
    )
    endless = cycle(values)
    while left:
        for partition in list(left):
            some = min(_TURN, left[partition])
            for value in islice(endless, some):
                _send(producer, topic, value, partition)
            left[partition] -= some
            if not left[partition]:
                del left[partition]
        producer.poll(0)
    unsent = producer.flush(_FLUSH_S)
    if unsent or failed:
        raise PenstockError(
            f"{topic}: {unsent + len(failed)} messages were not accepted"
            + (f" ({failed[0]})" if failed else "")
        )
    return sent


def _values(content: Content, size_bytes: int | None, seed: int) -> list[bytes]:
    rng = Random(seed)
    if size_bytes is None:
        return [record.rstrip(b"\n") for record in islice(records(content, rng), _VALUES)]
    body = bodies(content, rng)
    return [body(size_bytes) for _ in range(_VALUES)]


def _send(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
            return
        except BufferError:
            producer.poll(0.05)
