"""`penstock demo`: one against two round trips, seen on a real cluster with a real network."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import click
from confluent_kafka import Producer

from penstock.cli import output
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import TestbedError
from penstock.domain.network import Link, LinkCondition, NetworkSpec
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.testbed.cluster import Cluster
from penstock.testbed.parts import find_parts
from penstock.testbed.warm_up import warm_up

ROUND_TRIP_MS = 20.0
PRODUCERS, BURSTS_PER_S, BURST, SECONDS = 5, 2.0, 15, 20.0


@dataclass(frozen=True)
class Latencies:
    """What one setting of acks showed: milliseconds from the intended send time to the answer."""

    acks: str
    sent: int
    failed: int
    milliseconds: tuple[float, ...]

    def percentile(self, percent: int) -> float:
        if len(self.milliseconds) < 2:
            raise TestbedError(f"no message was acknowledged with acks={self.acks}")
        return quantiles(self.milliseconds, n=100)[percent - 1]

    @property
    def round_trips(self) -> float:
        return self.percentile(50) / ROUND_TRIP_MS


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def demo(as_json: bool) -> None:
    """Three brokers 20 ms apart: what acks=1 and acks=all cost. Takes a minute; leaves nothing."""
    has_network = os.geteuid() == 0
    with output.progress() as say:
        parts = find_parts(os.environ, on_progress=say)
        with Cluster(_spec(has_network), parts=parts, on_progress=say) as cluster:
            say("warming up for 10 s")
            warm_up(cluster, 10)
            say(f"sending {_count()} messages each with acks=1 and acks=all, for {SECONDS:g} s")
            one, every = measure(cluster, ("1", "all"))
    sentence = _sentence(one, every, has_network)
    if as_json:
        rows = [
            {
                "acks": side.acks,
                "sent": side.sent,
                "failed": side.failed,
                "p50_ms": side.percentile(50),
                "p99_ms": side.percentile(99),
            }
            for side in (one, every)
        ]
        output.emit_json({"outcome": sentence, "round_trip_ms": ROUND_TRIP_MS, "sides": rows})
        return
    output.outcome(sentence)
    output.table(
        ["acks", "messages", "failed", "p50 ms", "p90 ms", "p99 ms", "round trips of 20 ms"],
        [_row(side, has_network) for side in (one, every)],
    )
    output.note("Everything is gone again: no process, namespace or file is left.")


def measure(cluster: Cluster, sides: tuple[str, ...]) -> list[Latencies]:
    """Send at a fixed schedule with each setting of acks, all at the same time.

    Messages come in bursts of fifteen, each one request, and seldom: a broker serves one request of
    a connection at a time and a follower has one fetch under way, so a denser stream would show
    those queues (2.5 round trips and more) instead of the two round trips.
    """
    topic = "demo"
    cluster.create_topic(TopicSpec(name=topic, partitions=3, replication=3))
    sinks: dict[str, list[float | None]] = {acks: [] for acks in sides}
    begin = time.monotonic() + 1
    threads = []
    for i, acks in enumerate(side for side in sides for _ in range(PRODUCERS)):
        with cluster.inside("producer-1"):
            config: dict[str, Any] = {**cluster.client_config, "acks": acks, "linger.ms": 1}
            producer = Producer(config)
        # Spread over one period, so that they do not all send in the same instant.
        start = begin + i / (len(sides) * PRODUCERS * BURSTS_PER_S)
        threads.append(threading.Thread(target=_send, args=(producer, topic, start, sinks[acks])))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [
        Latencies(
            acks=acks,
            sent=_count(),
            failed=_count() - sum(ms is not None for ms in sink),  # unanswered ones too
            milliseconds=tuple(ms for ms in sink if ms is not None),
        )
        for acks, sink in sinks.items()
    ]


def _send(producer: Any, topic: str, start: float, sink: list[float | None]) -> None:
    for i in range(int(BURSTS_PER_S * SECONDS)):
        intended = start + i / BURSTS_PER_S
        # poll() serves the answers while it waits for the next moment to send.
        while (left := intended - time.monotonic()) > 0:
            producer.poll(left)

        def answered(error: object, _message: object, intended: float = intended) -> None:
            sink.append(None if error else (time.monotonic() - intended) * 1e3)

        for _ in range(BURST):
            producer.produce(topic, bytes(100), partition=i % 3, on_delivery=answered)
    producer.flush(30)


def _count() -> int:
    return PRODUCERS * BURST * int(BURSTS_PER_S * SECONDS)


def _spec(has_network: bool) -> ClusterSpec:
    if not has_network:
        return ClusterSpec(brokers=3)
    apart = LinkCondition(delay=ConstantDelay(ms=ROUND_TRIP_MS / 2))
    links = (Link(src="any", dst="any", condition=apart),)
    return ClusterSpec(brokers=3, place="namespaces", network=NetworkSpec(links=links))


def _row(side: Latencies, has_network: bool) -> list[object]:
    return [
        side.acks,
        side.sent,
        side.failed,
        f"{side.percentile(50):.1f}",
        f"{side.percentile(90):.1f}",
        f"{side.percentile(99):.1f}",
        f"{side.round_trips:.2f}" if has_network else "",
    ]


def _sentence(one: Latencies, every: Latencies, has_network: bool) -> str:
    if not has_network:
        return (
            "Without root there is no network to put between the brokers: on loopback acks=all "
            f"takes {every.percentile(50):.1f} ms and acks=1 {one.percentile(50):.1f} ms (median)."
        )
    return (
        f"With brokers 20 ms apart, acks=all takes {every.round_trips:.1f} round trips and acks=1 "
        f"{one.round_trips:.1f}: {every.percentile(50):.0f} against {one.percentile(50):.0f} ms "
        "(median)."
    )
