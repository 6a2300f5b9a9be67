"""A stream of messages whose speed per partition changes suddenly, from a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer

from penstock.autoscaler.simulator import Shift
from penstock.domain.errors import PenstockError

_TURN_S = 0.01


@contextmanager
def shifting_load(
    config: Mapping[str, Any],
    topic: str,
    shifts: Sequence[Shift],
    seconds: float,
    size_bytes: int,
    begins_s: float,
) -> Iterator[None]:
    """`begins_s` is on the monotonic clock, which is the same for all processes."""
    process = multiprocessing.get_context("spawn").Process(
        target=_send,
        args=(dict(config), topic, tuple(shifts), seconds, size_bytes, begins_s),
        daemon=True,
    )
    process.start()
    try:
        yield
        if process.exitcode:
            raise PenstockError(f"the load ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()


def _send(
    config: dict[str, Any],
    topic: str,
    shifts: tuple[Shift, ...],
    seconds: float,
    size_bytes: int,
    begins_s: float,
) -> None:
    producer = Producer({**config, "linger.ms": 5})
    values = [os.urandom(size_bytes) for _ in range(1000)]
    due = [0.0] * len(shifts[0].per_s)
    number, last_s = 0, 0.0
    time.sleep(max(0.0, begins_s - time.monotonic()))
    while (now_s := time.monotonic() - begins_s) < seconds:
        rates = [shift for shift in shifts if shift.at_s <= now_s][-1].per_s
        for partition, rate in enumerate(rates):
            due[partition] += rate * (now_s - last_s)
            while due[partition] >= 1:
                producer.produce(topic, values[number % 1000], partition=partition)
                due[partition] -= 1
                number += 1
        last_s = now_s
        producer.poll(0)
        time.sleep(_TURN_S)
    producer.flush(30)
