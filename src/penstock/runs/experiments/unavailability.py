"""How long partitions accept no messages after their leader died.

Per partition: from the kill of the broker until a message that was sent after the kill is
acknowledged by all replicas in sync. That has two parts. Detection: the broker's session runs out (9 s
by default), which the controller looks for four times in a session, so it varies by seconds and has
nothing to do with partitions. Election: from there on, new leaders are chosen and take over, and
clients hear of them. The controller's log tells one from the other; without that, the noise of
detection would hide what a partition adds.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer

from penstock.domain.errors import TestbedError
from penstock.testbed.cluster import Cluster
from penstock.testbed.faults.kill import Kill
from penstock.testbed.observe import active_controller

TIMEOUT_S = 90.0
# The client must ask for new leaders often, or one would measure its patience.
_SETTINGS: Mapping[str, str | int] = {
    "acks": "all",
    "linger.ms": 0,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
}
_log = logging.getLogger("penstock.kafka")  # a dead broker is expected here


@dataclass(frozen=True)
class Unavailable:
    """What a kill did to the partitions that the broker led."""

    broker: int
    per_partition_ms: Mapping[int, float]
    detection_ms: float | None  # None if the controller's log does not show it

    @property
    def led_partitions(self) -> int:
        return len(self.per_partition_ms)

    @property
    def first_ms(self) -> float:
        """Until the first of them was back."""
        return min(self.per_partition_ms.values())

    @property
    def longest_ms(self) -> float:
        return max(self.per_partition_ms.values())

    @property
    def mean_ms(self) -> float:
        return sum(self.per_partition_ms.values()) / len(self.per_partition_ms)


def kill_leader(cluster: Cluster, topic: str, timeout_s: float = TIMEOUT_S) -> Unavailable | None:
    """Kill the broker that leads most partitions of the topic; wait until all accept messages.

    It stays dead. The active controller is spared: its death is another fault, which takes an
    election of controllers first. None if nobody else leads a partition.
    """
    leaders, controller = cluster.admin.leaders(topic), active_controller(cluster)
    victim = choose_victim(leaders, spared=controller)
    if victim is None:
        return None
    led = [partition for partition, leader in leaders.items() if leader == victim]
    with cluster.inside("producer-1"):
        producer = Producer({**cluster.client_config, **_SETTINGS}, logger=_log)
    # The client has its connections before, as one that is in use has.
    _answers_ns(producer, topic, led, 30)
    log = cluster.process(controller).log
    known = log.stat().st_size
    killed_at, killed_ns = time.time(), time.monotonic_ns()
    Kill(broker=victim, at_s=0).strike(cluster)
    # One each, which the client keeps trying: many would delay what they are to measure.
    back_ns = _answers_ns(producer, topic, led, timeout_s)
    with log.open(errors="replace") as file:
        file.seek(known)
        detection_s = fenced_after_s(file.read(), victim, killed_at)
    return Unavailable(
        victim,
        {p: (at_ns - killed_ns) / 1e6 for p, at_ns in back_ns.items()},
        None if detection_s is None else detection_s * 1e3,
    )


def choose_victim(leaders: Mapping[int, int], spared: int) -> int | None:
    """The broker that leads most partitions; of several, the one with the lowest number."""
    led = Counter(leader for leader in leaders.values() if leader != spared)
    return min(led, key=lambda broker: (-led[broker], broker), default=None)


_FENCED = re.compile(r"^(\d{4}-\d\d-\d\dT[\d:]+),(\d{3}) .* Fencing broker (\d+) ", re.MULTILINE)
# The log is in the time zone of the JVM. Time zones differ by whole quarters of an hour.
_QUARTER_S = 900.0


def fenced_after_s(log: str, broker: int, killed_at: float) -> float | None:
    """Seconds from the kill (wall clock) until the controller took the broker for dead."""
    for match in _FENCED.finditer(log):
        if int(match[3]) == broker:
            logged = datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp()
            return (logged + int(match[2]) / 1e3 - killed_at) % _QUARTER_S
    return None


def _answers_ns(
    producer: Producer, topic: str, partitions: Sequence[int], timeout_s: float
) -> dict[int, int]:
    """Send one message to each partition; when each was acknowledged."""
    answered: dict[int, int] = {}
    failed: list[str] = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:
            answered[message.partition()] = time.monotonic_ns()
        else:
            failed.append(error.name())

    for partition in partitions:
        producer.produce(topic, b"probe", partition=partition, on_delivery=on_delivery)
    ends = time.monotonic() + timeout_s
    while len(answered) < len(partitions) and not failed and time.monotonic() < ends:
        producer.poll(0.1)
    if len(answered) < len(partitions):
        left = len(partitions) - len(answered)
        raise TestbedError(
            f"{left} of {len(partitions)} partitions accepted no message within {timeout_s:g} s"
            + (f" ({failed[0]})" if failed else "")
        )
    return answered
