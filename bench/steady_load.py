"""A stream of messages at a steady pace, from a process of its own, while a benchmark measures."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer

from penstock.domain.errors import PenstockError
from penstock.domain.warm_up import RequestKind

_TURNS_PER_S = 100
_FLUSH_S = 60


@contextmanager
def steady_load(
    config: Mapping[str, Any], topic: str, partitions: int, messages_per_s: int, size_bytes: int
) -> Iterator[None]:
    """Over the partitions in turn, until the block ends; then all that was sent has arrived."""
    context = multiprocessing.get_context("spawn")
    ended = context.Event()
    process = context.Process(
        target=_send,
        args=(dict(config), topic, partitions, messages_per_s, size_bytes, ended),
        daemon=True,
    )
    process.start()
    try:
        yield
        ended.set()
        process.join(_FLUSH_S + 10)
        if process.exitcode != 0:
            raise PenstockError(f"the load ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def requests_of(partitions: int, messages_per_s: int, size_bytes: int) -> RequestKind:
    """What such a load looks like to brokers that do not replicate it."""
    return RequestKind(
        message_bytes=size_bytes,
        messages_per_request=max(1, messages_per_s // _TURNS_PER_S // partitions),
        partitions=partitions,
        replication=1,
        is_idempotent=True,
    )


def _send(
    config: dict[str, Any],
    topic: str,
    partitions: int,
    messages_per_s: int,
    size_bytes: int,
    ended: Any,
) -> None:
    producer = Producer({**config, "acks": "all", "enable.idempotence": True, "linger.ms": 5})
    values = [os.urandom(size_bytes) for _ in range(1000)]
    per_turn = messages_per_s // _TURNS_PER_S
    began = time.monotonic()
    turn = 0
    while not ended.wait(max(0.0, began + turn / _TURNS_PER_S - time.monotonic())):
        for number in range(turn * per_turn, (turn + 1) * per_turn):
            producer.produce(topic, values[number % 1000], partition=number % partitions)
        producer.poll(0)
        turn += 1
    if left := producer.flush(_FLUSH_S):
        raise PenstockError(f"{left} messages could not be sent")
