"""The load that warms a cluster up, a second at a time: what it cost the brokers, how long it took.

First as many requests of the run's kind as the brokers take, since what Java compiles is decided
by the number of requests; then the load of the run itself, by its own processes.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import TestbedError
from penstock.domain.network.condition import PERFECT, Link
from penstock.domain.warm_up import RequestKind
from penstock.measure.flatness import Interval
from penstock.measure.load import Load
from penstock.testbed.admin import quiet_log
from penstock.testbed.cluster import Cluster
from penstock.testbed.compilers import BrokerCpu
from penstock.testbed.connection import KafkaCluster
from penstock.testbed.observe import observe

_PRODUCERS = 3
# Requests that each producer has under way: enough that brokers on the same machine never idle.
_WINDOW = 10
_IN_FLIGHT = 5
# Beyond these a request costs more only for its bytes, and to copy bytes is compiled soon; more
# would fill the disk (90 s × 30 MB/s × 3 copies is 8 GB) and take minutes to create.
_MOST_REQUEST_BYTES = 32_000
_MOST_PARTITIONS = 48
_MOST_BYTES_PER_S = 30_000_000
_TIMEOUT_MS = 30_000


class SaturatingLoad:
    """Producers that keep so many requests under way, and a reader, on a topic of their own."""

    def __init__(self, cluster: KafkaCluster, kind: RequestKind, rate_per_s: float | None) -> None:
        self._cluster, self._kind = cluster, kind
        message_bytes = min(kind.message_bytes, _MOST_REQUEST_BYTES)
        self._group = max(1, min(kind.messages_per_request, _MOST_REQUEST_BYTES // message_bytes))
        self._value = os.urandom(message_bytes)
        most_per_s = _MOST_BYTES_PER_S / (self._group * message_bytes)
        self._requests_per_s = min(most_per_s, (rate_per_s or float("inf")) / self._group)
        self._partitions = min(kind.partitions, _MOST_PARTITIONS)
        self._topic = f"penstock-warm-up-{secrets.token_hex(4)}"
        self._stack = ExitStack()
        self._cpu = BrokerCpu(cluster) if isinstance(cluster, Cluster) else None
        self._under_way = [0] * _PRODUCERS
        self._sent = self._answered = 0
        self._waited_s = 0.0
        self._error = ""

    def __enter__(self) -> SaturatingLoad:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        kind = self._kind
        topic = TopicSpec(
            name=self._topic,
            partitions=self._partitions,
            replication=kind.replication,
        )
        self._stack.enter_context(throw_away_topic(self._cluster, topic))
        settings = {
            **self._cluster.client_config,
            "acks": kind.acks,
            "enable.idempotence": kind.is_idempotent,
            "compression.type": kind.compression,
            "batch.num.messages": self._group,
            # A group is handed over at once; the linger only ends one that a thread was cut in.
            "linger.ms": 0 if self._group == 1 else 5,
            "max.in.flight.requests.per.connection": _IN_FLIGHT,
            "message.timeout.ms": _TIMEOUT_MS,
        }
        with self._cluster.inside():
            self._producers = [Producer(settings, logger=quiet_log) for _ in range(_PRODUCERS)]
            reader = Consumer(
                {
                    **self._cluster.client_config,
                    "group.id": self._topic,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                },
                logger=quiet_log,
            )
        for producer in self._producers:
            self._stack.callback(producer.purge)
        self._read(reader)
        self._began = time.monotonic()

    def _read(self, reader: Consumer) -> None:
        """Somebody reads, since requests that fetch have to be compiled too."""
        reader.assign([TopicPartition(self._topic, p, 0) for p in range(self._partitions)])
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set():
                reader.consume(1000, timeout=0.1)
            reader.close()

        thread = threading.Thread(target=read, name="warm-up reader", daemon=True)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(ended.set)

    def work(self, seconds: float) -> Interval:
        """Keep the brokers busy for so long."""
        answered, waited_s = self._answered, self._waited_s
        before = self._cpu.read() if self._cpu else None
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            for number, producer in enumerate(self._producers):
                while self._under_way[number] < _WINDOW and self._may_send(now):
                    self._send(number, producer)
            # Whoever has nothing to send waits for an answer.
            for number, producer in enumerate(self._producers):
                producer.poll(0.002 if number == 0 else 0)
        if isinstance(self._cluster, Cluster):
            # The looks of the run to come are compiled too.
            with suppress(TestbedError):
                observe(self._cluster)
        requests = self._answered - answered
        if self._error and not requests:
            raise TestbedError(
                f"the cluster could not be warmed up: {self._error}",
                "its brokers do not take messages; their logs say why",
            )
        latency_ms = 1e3 * (self._waited_s - waited_s) / max(1, requests)
        if self._cpu is None or before is None:
            return Interval(requests, latency_ms)
        cpu_s, compiler_s = (b - a for a, b in zip(before, self._cpu.read(), strict=True))
        return Interval(requests, latency_ms, cpu_s, compiler_s)

    def _may_send(self, now: float) -> bool:
        # Never more than a second's worth at once, after a stop.
        due = (now - self._began) * self._requests_per_s
        self._sent = max(self._sent, int(due - self._requests_per_s))
        return self._sent <= due

    def _send(self, number: int, producer: Producer) -> None:
        sent_s, partition = time.monotonic(), self._sent % self._partitions

        def answered(error: Any, _message: object) -> None:
            self._under_way[number] -= 1
            if error is not None:
                self._error = error.str()
                return
            self._answered += 1
            self._waited_s += time.monotonic() - sent_s

        for _ in range(self._group - 1):
            producer.produce(self._topic, self._value, partition=partition)
        producer.produce(self._topic, self._value, partition=partition, on_delivery=answered)
        self._under_way[number] += 1
        self._sent += 1


class RunLoad:
    """The load of a run that has started and is not measured yet."""

    def __init__(self, cluster: KafkaCluster, load: Load) -> None:
        self._load = load
        self._cpu = BrokerCpu(cluster) if isinstance(cluster, Cluster) else None

    def work(self, seconds: float) -> Interval:
        """Let it go on for so long."""
        heard = self._load.answered
        before = self._cpu.read() if self._cpu else None
        self._load.wait(until_ns=time.monotonic_ns() + round(seconds * 1e9))
        # A producer's word is up to a quarter of a second old, so rates count by its own clock.
        pairs = [
            (a, b) for a, b in zip(heard, self._load.answered, strict=True) if b.at_ns > a.at_ns
        ]
        messages = sum(b.messages - a.messages for a, b in pairs)
        waited_s = sum(b.waited_s - a.waited_s for a, b in pairs)
        per_s = sum((b.messages - a.messages) / (b.at_ns - a.at_ns) * 1e9 for a, b in pairs)
        latency_ms = 1e3 * waited_s / max(1, messages)
        if self._cpu is None or before is None:
            return Interval(round(per_s * seconds), latency_ms)
        cpu_s, compiler_s = (b - a for a, b in zip(before, self._cpu.read(), strict=True))
        return Interval(round(per_s * seconds), latency_ms, cpu_s, compiler_s)


@contextmanager
def throw_away_topic(cluster: KafkaCluster, topic: TopicSpec) -> Iterator[None]:
    """A topic that is deleted in the end. On a testbed its files are gone at once, or they would
    be written and deleted while the run is measured."""
    if isinstance(cluster, Cluster):
        topic = replace(topic, config={**topic.config, "file.delete.delay.ms": 0})
    try:
        cluster.create_topic(topic)
        yield
    finally:
        with suppress(TestbedError):
            cluster.admin.delete_topic(topic.name)


@contextmanager
def unspoiled(cluster: Cluster) -> Iterator[None]:
    """Without delays a connection carries a hundred times the requests; conditions come back."""
    if cluster.network is None:
        yield
        return
    spoiled = {
        pair: condition
        for pair, condition in cluster.network.conditions.items()
        if condition != PERFECT
    }

    def links(make: Callable[[Any], Any]) -> tuple[Link, ...]:
        return tuple(
            Link(src=src, dst=dst, both_ways=False, condition=make(condition))
            for (src, dst), condition in spoiled.items()
        )

    if not spoiled:
        yield
        return
    cluster.network.set(links(lambda _: PERFECT))
    try:
        yield
    finally:
        cluster.network.set(links(lambda condition: condition))
