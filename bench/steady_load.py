"""A stream of messages at a steady pace, from a process of its own, while a benchmark measures."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.domain.errors import PenstockError
from penstock.domain.warm_up import RequestKind
from penstock.load.paced_producer import TURN_S, PacedProducer

_END_S = 70


@contextmanager
def steady_load(
    config: Mapping[str, Any], topic: str, partitions: int, messages_per_s: int, size_bytes: int
) -> Iterator[None]:
    """To all partitions alike, until the block ends; then all that was sent has arrived."""
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
        process.join(_END_S)
        if process.exitcode != 0:
            raise PenstockError(f"the load ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def requests_of(partitions: int, messages_per_s: int, size_bytes: int) -> RequestKind:
    """What such a load looks like to brokers that do not replicate it."""
    return RequestKind(
        message_bytes=size_bytes,
        messages_per_request=max(1, round(messages_per_s * TURN_S) // partitions),
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
    rates = dict.fromkeys(range(partitions), messages_per_s / partitions)
    producer = PacedProducer(
        {**config, "acks": "all", "enable.idempotence": True}, topic, size_bytes
    )
    producer.send(lambda _: None if ended.is_set() else rates)
