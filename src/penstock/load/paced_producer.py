"""Sends random messages at given rates, for the demo, benches and tests.

Not the load of a run: that has a schedule and traces every message (`load.scheduled_producer`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

from confluent_kafka import Producer

from penstock.domain.errors import PenstockError

TURN_S = 0.01
# Random ones are slow to make, and so many are far more than a batch holds.
_VALUES = 1000
_FLUSH_S = 60

# Partition → messages/s.
Rates = Mapping[int, float]


class Pace:
    """How many messages are due in each partition. What is not a whole message yet is kept."""

    def __init__(self) -> None:
        self._last_s = 0.0
        self._due: dict[int, float] = {}

    def due(self, at_s: float, rates: Rates) -> dict[int, int]:
        """Since the last call; a call that comes late has all that became due meanwhile."""
        elapsed_s, self._last_s = at_s - self._last_s, at_s
        whole = {}
        for partition, per_s in rates.items():
            due = self._due.get(partition, 0.0) + per_s * elapsed_s
            whole[partition] = int(due)
            self._due[partition] = due - whole[partition]
        return whole


class PacedProducer:
    """One producer of one topic. With `keys`, messages have so many different keys in turn."""

    def __init__(
        self, config: Mapping[str, Any], topic: str, size_bytes: int, keys: int | None = None
    ) -> None:
        self._producer = Producer({"linger.ms": 5, **config})
        self._topic = topic
        self._values = [os.urandom(size_bytes) for _ in range(_VALUES)]
        self._keys = keys

    def send(self, rates_at: Callable[[float], Rates | None]) -> None:
        """Send at the rates of the moment, in s since the call; end when there are none."""
        pace, numbers = Pace(), count()
        began_s = time.monotonic()
        while (rates := rates_at(at_s := time.monotonic() - began_s)) is not None:
            for partition, messages in pace.due(at_s, rates).items():
                for number in (next(numbers) for _ in range(messages)):
                    value = self._values[number % _VALUES]
                    key = None if self._keys is None else str(number % self._keys)
                    self._producer.produce(self._topic, value, key, partition=partition)
            self._producer.poll(0)
            time.sleep(TURN_S)
        if left := self._producer.flush(_FLUSH_S):
            raise PenstockError(f"{self._topic}: {left} messages could not be sent")

    @contextmanager
    def sending(self, rates: Rates) -> Iterator[None]:
        """Send from a thread until the block ends; `rates` may be changed meanwhile."""
        ended = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            sent = thread.submit(self.send, lambda _: None if ended.is_set() else dict(rates))
            try:
                yield
            finally:
                ended.set()
            sent.result()
