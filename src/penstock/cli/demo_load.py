"""The load of the demo's lanes, as a process of its own, on the network of the cluster's clients:

python -m penstock.cli.demo_load BOOTSTRAP_SERVERS TOPIC PARTITIONS SECONDS:RECORDS_PER_S …
"""

from __future__ import annotations

import os
import sys
import time

from confluent_kafka import Producer

_TURN_S = 0.02
SIZE_BYTES = 1000


def send(
    bootstrap_servers: str, topic: str, partitions: int, phases: list[tuple[float, float]]
) -> None:
    """To all partitions in turn, at the pace of each phase."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})
    number, due = 0, 0.0
    for seconds, per_s in phases:
        last_s = time.monotonic()
        until_s = last_s + seconds
        while (now_s := time.monotonic()) < until_s:
            due += per_s * (now_s - last_s)
            last_s = now_s
            while due >= 1:
                producer.produce(topic, os.urandom(SIZE_BYTES), partition=number % partitions)
                number, due = number + 1, due - 1
            producer.poll(0)
            time.sleep(_TURN_S)
    producer.flush(30)


if __name__ == "__main__":
    _, servers, name, count, *given = sys.argv
    parts = [phase.split(":") for phase in given]
    send(servers, name, int(count), [(float(s), float(per_s)) for s, per_s in parts])
