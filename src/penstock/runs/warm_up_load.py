"""The load that warms a cluster up, a second at a time: what it cost the brokers, how long it took.

First as many requests of the run's kind as the brokers take, since what Java compiles is decided
by the number of requests; then the load of the run itself, by its own processes.
"""

from __future__ import annotations

import math
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import TestbedError
from penstock.domain.warm_up import RequestKind
from penstock.kafka import client_log
from penstock.kafka.connection import KafkaCluster
from penstock.load.load import Load
from penstock.stats.flatness import Interval
from penstock.testbed.cluster import Cluster
from penstock.testbed.compilers import BrokerCpu
from penstock.testbed.network.hosts import as_links
from penstock.testbed.observe import observe

_PRODUCERS = 3
# The intervals in which a new round begins: often at first, later so seldom that the test has time
# between two of them.
_ROUNDS = frozenset((5, 10, 15, 20, *range(35, 3600, 20)))
# Requests that each producer has under way: enough that brokers on the same machine never idle.
_WINDOW = 10
_IN_FLIGHT = 5
# Beyond these a request costs more only for its bytes, and to copy bytes is compiled soon; more
# would fill the disk (90 s × 30 MB/s × 3 replicas is 8 GB) and take minutes to create.
_MOST_REQUEST_BYTES = 32_000
_MOST_PARTITIONS = 48
_MOST_BYTES_PER_S = 30_000_000
_TIMEOUT_MS = 30_000
_CLOSE_S = 5.0


class SaturatingLoad:
    """Full load with a kind of requests, in rounds, each on a new topic.

    In rounds, since Java compiles only those branches that it has seen: when the first topic was
    deleted, the next one made and idle clients came back, a hundred of a broker's hottest methods
    were thrown away, and the run that followed began with ten cold seconds. So all this happens
    early and again and again.
    """

    def __init__(self, cluster: KafkaCluster, kind: RequestKind, rate_per_s: float | None) -> None:
        self._cluster = cluster
        self._plan = _RoundPlan.of(kind)
        self._pace = _Pace(
            min(
                _MOST_BYTES_PER_S / self._plan.request_bytes,
                (rate_per_s or float("inf")) / self._plan.messages,
            )
        )
        self._cpu = BrokerCpu(cluster) if isinstance(cluster, Cluster) else None
        self._intervals = 0
        self._stack = ExitStack()
        self._round: _Round | None = None

    def __enter__(self) -> SaturatingLoad:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def work(self, seconds: float) -> Interval:
        """Keep the brokers busy for this time; new rounds start at intervals."""
        if self._round is None or self._intervals in _ROUNDS:
            self._stack.close()
            self._round = self._stack.enter_context(_Round(self._cluster, self._plan, self._pace))
        self._intervals += 1
        before = self._cpu.read() if self._cpu else None
        requests, waited_s = self._round.work(seconds)
        latency_ms = 1e3 * waited_s / max(1, requests)
        if isinstance(self._cluster, Cluster):
            # The looks of the run to come are compiled too.
            with suppress(TestbedError):
                observe(self._cluster)
        if self._cpu is None or before is None:
            return Interval(requests, latency_ms)
        cpu_s, compiler_s = (b - a for a, b in zip(before, self._cpu.read(), strict=True))
        return Interval(requests, latency_ms, cpu_s, compiler_s)


@dataclass(frozen=True)
class _RoundPlan:
    """What is sent in every round, within what a disk and a broker bear."""

    kind: RequestKind
    message_bytes: int
    messages: int  # of one request
    partitions: int

    @classmethod
    def of(cls, kind: RequestKind) -> _RoundPlan:
        message_bytes = min(kind.message_bytes, _MOST_REQUEST_BYTES)
        messages = max(1, min(kind.messages_per_request, _MOST_REQUEST_BYTES // message_bytes))
        partitions = min(kind.partitions, _MOST_PARTITIONS)
        return cls(kind, message_bytes, messages, partitions)

    @property
    def request_bytes(self) -> int:
        return self.message_bytes * self.messages

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "acks": self.kind.acks,
            "enable.idempotence": self.kind.is_idempotent,
            "compression.type": self.kind.compression,
            "batch.num.messages": self.messages,
            # A request is handed over at once; the linger only ends one that a thread was cut in.
            "linger.ms": 0 if self.messages == 1 else 5,
            "max.in.flight.requests.per.connection": _IN_FLIGHT,
            "message.timeout.ms": _TIMEOUT_MS,
        }


class _Pace:
    """How many requests may be sent so far. It catches up by a second's worth at most."""

    def __init__(self, per_s: float) -> None:
        self._per_s, self._began, self._sent = per_s, time.monotonic(), 0.0

    def allows(self, now: float) -> bool:
        due = (now - self._began) * self._per_s
        self._sent = max(self._sent, due - self._per_s)
        return self._sent <= due

    def note_sent(self) -> None:
        self._sent += 1


class _Round:
    """One topic with producers that keep so many requests under way, and readers."""

    def __init__(self, cluster: KafkaCluster, plan: _RoundPlan, pace: _Pace) -> None:
        self._cluster, self._plan, self._pace = cluster, plan, pace
        self._value = os.urandom(plan.message_bytes)
        self._topic = f"penstock-warm-up-{secrets.token_hex(4)}"
        self._under_way = [0] * _PRODUCERS
        self._sent = self._answered = 0
        self._waited_s = 0.0
        self._error = ""
        self._stack = ExitStack()

    def __enter__(self) -> _Round:
        with ExitStack() as stack:
            plan = self._plan
            topic = TopicSpec(
                name=self._topic,
                partitions=plan.partitions,
                replication=plan.kind.replication,
                # As the topic of a run has it: the broker writes into every batch.
                config={"message.timestamp.type": "LogAppendTime"},
            )
            stack.enter_context(throw_away_topic(self._cluster, topic))
            with self._cluster.inside():
                config = {**self._cluster.client_config, **plan.settings}
                self._producers = [
                    Producer(config, logger=client_log.log) for _ in range(_PRODUCERS)
                ]
                member, watcher = self._consumer(), self._consumer()
            stack.callback(self._close_producers)
            if not self._cluster.is_temporary:
                stack.callback(self._cluster.admin.delete_group, self._topic)
            # One of a group, which commits as those of a run do, and one that watches.
            member.subscribe([self._topic])
            watcher.assign([TopicPartition(self._topic, p, 0) for p in range(plan.partitions)])
            for reader in (member, watcher):
                stack.enter_context(_reading(reader))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def work(self, seconds: float) -> tuple[int, float]:
        """Requests that were answered meanwhile, and how long these took in all, in s."""
        answered, waited_s = self._answered, self._waited_s
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            for number, producer in enumerate(self._producers):
                while self._under_way[number] < _WINDOW and self._pace.allows(now):
                    self._send(number, producer)
            # With nothing to send, wait for an answer.
            for number, producer in enumerate(self._producers):
                producer.poll(0.002 if number == 0 else 0)
        requests = self._answered - answered
        if self._error and not requests:
            raise TestbedError(
                f"the cluster could not be warmed up: {self._error}",
                "the brokers do not accept messages; see their logs",
            )
        return requests, self._waited_s - waited_s

    def _close_producers(self) -> None:
        """Purged messages are reported too: a message without a report keeps its client alive."""
        for producer in self._producers:
            producer.purge()
        until = time.monotonic() + _CLOSE_S
        while any(self._under_way) and time.monotonic() < until:
            for producer in self._producers:
                producer.poll(0.01)
        self._producers.clear()

    def _send(self, number: int, producer: Producer) -> None:
        sent_s, partition = time.monotonic(), self._sent % self._plan.partitions

        def answered(error: Any, _message: object) -> None:
            self._under_way[number] -= 1
            if error is not None:
                self._error = error.str()
                return
            self._answered += 1
            self._waited_s += time.monotonic() - sent_s

        for _ in range(self._plan.messages - 1):
            producer.produce(self._topic, self._value, partition=partition)
        producer.produce(self._topic, self._value, partition=partition, on_delivery=answered)
        self._under_way[number] += 1
        self._sent += 1
        self._pace.note_sent()

    def _consumer(self) -> Consumer:
        config = {
            **self._cluster.client_config,
            "group.id": self._topic,
            "auto.commit.interval.ms": 500,
            "auto.offset.reset": "earliest",
        }
        return Consumer(config, logger=client_log.log)


@contextmanager
def _reading(reader: Consumer) -> Iterator[None]:
    """Somebody reads, since requests that fetch have to be compiled too."""
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            reader.consume(1000, timeout=0.1)
        reader.close()

    thread = threading.Thread(target=read, name="warm-up reader", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class RunLoad:
    """The load of a run that has started and is not measured yet."""

    def __init__(self, cluster: KafkaCluster, load: Load, messages_per_request: int) -> None:
        self._load, self._messages_per_request = load, messages_per_request
        self._cpu = BrokerCpu(cluster) if isinstance(cluster, Cluster) else None

    def work(self, seconds: float) -> Interval:
        """Run it for this long."""
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
        requests = math.ceil(per_s * seconds / self._messages_per_request)
        if self._cpu is None or before is None:
            return Interval(requests, latency_ms)
        cpu_s, compiler_s = (b - a for a, b in zip(before, self._cpu.read(), strict=True))
        return Interval(requests, latency_ms, cpu_s, compiler_s)


@contextmanager
def throw_away_topic(cluster: KafkaCluster, topic: TopicSpec) -> Iterator[None]:
    """A topic that is deleted in the end. On a testbed its files are gone at once, or they would
    be written and deleted while the run is measured."""
    if cluster.is_temporary:
        topic = replace(topic, config={**topic.config, "file.delete.delay.ms": 0})
    try:
        cluster.create_topic(topic)
        yield
    finally:
        # A testbed goes away as a whole; on a cluster of the user's own nothing may stay unnoticed.
        with suppress(TestbedError) if cluster.is_temporary else nullcontext():
            cluster.admin.delete_topic(topic.name)


@contextmanager
def without_conditions(cluster: Cluster) -> Iterator[None]:
    """Lift all network conditions and restore them afterwards: without delays a connection carries
    a hundred times the requests."""
    if cluster.network is None:
        yield
        return
    before = as_links(cluster.network.conditions)
    cluster.network.replace(())
    try:
        yield
    finally:
        cluster.network.replace(before)
