"""A process that sends as fast as the client takes it. Not a schedule, so no latency of a stream.

What a producer gets at most (T_p) cannot be found with open-loop load, which is invalid as soon as
it exceeds what the cluster takes; nor with one message at a time. Here the client's own queue holds
the sender back: it is always full, and what counts is what was acknowledged.

    → {"cluster": …, "topic": …, "size_bytes": …, "settings": …}
    ← {"event": "ready"}
    → {"order": "start", "start_ns": …, "measured_ns": …, "stop_ns": …}
    ← {"event": "report", "at_ns": […], "records": […], "size_bytes": […], …}
"""

from __future__ import annotations

import os
import time
from array import array
from typing import Any

from confluent_kafka import Producer

from penstock.load.client_main import Parent
from penstock.stats.histogram import Histogram

# Larger than what a cluster on one machine has under way, small enough to be emptied in a second.
QUEUE_KBYTES = 65_536
_TALLY_EVERY_NS = 50_000_000
_BURST = 64
_MOST_PAYLOAD_BYTES = 32_000_000
# How long the sender waits for room: the queue is full, so nothing is lost by it.
_WAIT_S = 0.005


class Saturating:
    """Sends for a given time, and reports what was acknowledged when."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._topic, self._size = str(job["topic"]), int(job["size_bytes"])
        self._acknowledged = 0
        self._failed: dict[str, int] = {}
        self._latencies_s = array("d")
        self._producer = Producer(
            {
                "queue.buffering.max.kbytes": QUEUE_KBYTES,
                **job["cluster"],
                **job["settings"],
                "on_delivery": self._answered,
            }
        )
        # Random, and different within a batch: what can be compressed would make a faster cluster
        # than there is.
        count = max(2, min(_BURST, _MOST_PAYLOAD_BYTES // self._size))
        self._payloads = [os.urandom(self._size) for _ in range(count)]
        self._producer.list_topics(self._topic, timeout=30)  # connected before the start

    def run(self, start_ns: int, measured_ns: int, stop_ns: int, parent: Parent) -> dict[str, Any]:
        """From `start_ns` to `stop_ns`; latencies are kept from `measured_ns` on."""
        producer, topic, payloads = self._producer, self._topic, self._payloads
        parent.is_gone.wait(max(0, start_ns - time.monotonic_ns()) / 1e9)
        tallies = [(time.monotonic_ns(), 0)]
        is_measured = False
        while (now := time.monotonic_ns()) < stop_ns and not parent.is_gone.is_set():
            if now - tallies[-1][0] >= _TALLY_EVERY_NS:
                tallies.append((now, self._acknowledged))
            if not is_measured and now >= measured_ns:
                is_measured, self._latencies_s = True, array("d")
            try:
                for payload in payloads:
                    producer.produce(topic, payload)
                producer.poll(0)
            except BufferError:
                producer.poll(_WAIT_S)
        tallies.append((time.monotonic_ns(), self._acknowledged))
        failed = dict(self._failed)
        producer.purge()
        producer.flush(5)
        waits = Histogram.of([round(s * 1e9) for s in self._latencies_s])
        return {
            "at_ns": [at for at, _ in tallies],
            "records": [records for _, records in tallies],
            "size_bytes": [records * self._size for _, records in tallies],
            "failed": failed,
            "latency": waits.to_buckets(),
        }

    def _answered(self, error: Any, message: Any) -> None:
        if error is None:
            self._acknowledged += 1
            self._latencies_s.append(message.latency())
        else:
            self._failed[error.name()] = self._failed.get(error.name(), 0) + 1


def main() -> None:
    parent = Parent()
    saturating = Saturating(parent.job)
    parent.tell("ready")
    start = parent.wait_for("start")
    if start is not None:
        times = start["start_ns"], start["measured_ns"], start["stop_ns"]
        parent.tell("report", **saturating.run(*times, parent))


if __name__ == "__main__":
    main()
