"""The broker's own view of its work: its timings per class of request, and what it uses.

Counters grow from the broker's start; two views make rates and the means of the time between
(`rates`). Times are what the broker itself measured, so they exclude the network and the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum


class RequestClass(StrEnum):
    """The requests that move messages, by Kafka's names."""

    PRODUCE = "Produce"
    REPLICA_FETCH = "FetchFollower"
    CONSUMER_FETCH = "FetchConsumer"


@dataclass(frozen=True)
class KafkaHistogram:
    """Milliseconds as Kafka's histograms give them.

    Count, mean, deviation and maximum are since the broker's start; the percentiles are of
    a sample in which the last five minutes weigh most.
    """

    count: int
    mean_ms: float
    stddev_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class RequestTimes:
    """Where the time of one class of requests goes, inside the broker."""

    queue: KafkaHistogram  # waiting for a handler
    local: KafkaHistogram  # handled by this broker: append or read
    remote: KafkaHistogram  # waiting for others: followers (acks=all), or data (fetch)
    response_queue: KafkaHistogram
    send: KafkaHistogram
    total: KafkaHistogram


@dataclass(frozen=True)
class ProcessUse:
    """The operating system's figures for a process."""

    cpu_s: float
    resident_bytes: int
    open_handles: int
    threads: int
    disk_read_bytes: int
    disk_written_bytes: int


@dataclass(frozen=True)
class BrokerCounters:
    """A broker's own counters."""

    requests: Mapping[RequestClass, RequestTimes]
    messages_in: int
    bytes_in: int
    bytes_out: int
    replication_bytes_in: int
    under_replicated_partitions: int
    leaders: int
    partitions: int
    # Of the young generation: how often it was collected, how long that took, and its size.
    collections: int = 0
    collection_ms: int = 0
    young_bytes: int = 0


@dataclass(frozen=True)
class BrokerView:
    """One broker at one moment. Values that could not be read are None, never 0."""

    broker: int
    at_ns: int  # monotonic
    state: str  # running, starting, paused or down
    process: ProcessUse | None
    own: BrokerCounters | None


@dataclass(frozen=True)
class RequestRates:
    """One class of requests between two views; the means are None if there was no request."""

    per_s: float
    queue_ms: float | None
    local_ms: float | None
    remote_ms: float | None
    response_queue_ms: float | None
    send_ms: float | None
    total_ms: float | None


@dataclass(frozen=True)
class BrokerRates:
    """What happened on one broker between two views."""

    broker: int
    seconds: float
    requests: Mapping[RequestClass, RequestRates]
    messages_in_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    replication_bytes_in_per_s: float
    cpu_cores: float
    disk_written_bytes_per_s: float
    collections_per_s: float
    collection_ms: float | None  # mean of one; None if there was none


def rates(before: BrokerView, after: BrokerView) -> BrokerRates | None:
    """Rates from two views of one broker; None unless the same process answered both times."""
    if before.broker != after.broker or after.at_ns <= before.at_ns:
        raise ValueError("rates need two views of one broker, in order of time")
    then, now, used, uses = before.own, after.own, before.process, after.process
    if then is None or now is None or used is None or uses is None or uses.cpu_s < used.cpu_s:
        return None
    seconds = (after.at_ns - before.at_ns) / 1e9
    return BrokerRates(
        broker=after.broker,
        seconds=seconds,
        requests={
            request: _request_rates(then.requests[request], now.requests[request], seconds)
            for request in RequestClass
        },
        messages_in_per_s=(now.messages_in - then.messages_in) / seconds,
        bytes_in_per_s=(now.bytes_in - then.bytes_in) / seconds,
        bytes_out_per_s=(now.bytes_out - then.bytes_out) / seconds,
        replication_bytes_in_per_s=(now.replication_bytes_in - then.replication_bytes_in) / seconds,
        cpu_cores=(uses.cpu_s - used.cpu_s) / seconds,
        disk_written_bytes_per_s=(uses.disk_written_bytes - used.disk_written_bytes) / seconds,
        collections_per_s=(now.collections - then.collections) / seconds,
        collection_ms=(
            (now.collection_ms - then.collection_ms) / (now.collections - then.collections)
            if now.collections > then.collections
            else None
        ),
    )


def _request_rates(then: RequestTimes, now: RequestTimes, seconds: float) -> RequestRates:
    means = {
        f"{phase.name}_ms": _mean_between(getattr(then, phase.name), getattr(now, phase.name))
        for phase in fields(RequestTimes)
    }
    return RequestRates(per_s=(now.total.count - then.total.count) / seconds, **means)


def _mean_between(then: KafkaHistogram, now: KafkaHistogram) -> float | None:
    """The mean over an interval, from two means since the start."""
    count = now.count - then.count
    if count <= 0:
        return None
    return max(0.0, (now.mean_ms * now.count - then.mean_ms * then.count) / count)
