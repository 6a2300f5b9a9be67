"""A stream of messages whose speed per partition changes suddenly, from a process of its own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.autoscaler.core.simulator import Shift
from penstock.domain.errors import PenstockError
from penstock.load.paced_producer import PacedProducer, Rates


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
    def rates_at(at_s: float) -> Rates | None:
        if at_s >= seconds:
            return None
        latest = [shift for shift in shifts if shift.at_s <= at_s][-1]
        return dict(enumerate(latest.per_s))

    producer = PacedProducer(config, topic, size_bytes)
    time.sleep(max(0.0, begins_s - time.monotonic()))
    producer.send(rates_at)
