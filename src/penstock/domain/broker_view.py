"""The broker's own view of its work: its timings per class of request, and what it uses.

Counters grow from the broker's start; two views make rates (`rates`). Times are what the broker
itself measured, so they exclude the network and the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class RequestClass(StrEnum):
    """The requests that move messages, by Kafka's names."""

    PRODUCE = "Produce"
    REPLICA_FETCH = "FetchFollower"
    CONSUMER_FETCH = "FetchConsumer"


@dataclass(frozen=True)
class Times:
    """A distribution of milliseconds as the broker keeps it: recent values weigh more."""

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

    queue: Times  # waiting for a handler
    local: Times  # handled by this broker: append or read
    remote: Times  # waiting for others: followers (acks=all), or data (fetch)
    response_queue: Times
    send: Times
    total: Times


@dataclass(frozen=True)
class ProcessUse:
    """What the operating system says of a process."""

    cpu_s: float
    resident_bytes: int
    open_handles: int
    threads: int
    disk_read_bytes: int
    disk_written_bytes: int


@dataclass(frozen=True)
class BrokerView:
    """One broker at one moment. `requests` is empty if the agent is not loaded."""

    broker: int
    at_ns: int  # monotonic
    state: str  # running, paused or down
    process: ProcessUse | None
    requests: Mapping[RequestClass, RequestTimes]
    messages_in: int
    bytes_in: int
    bytes_out: int
    replication_bytes_in: int
    under_replicated_partitions: int
    leaders: int
    partitions: int


@dataclass(frozen=True)
class BrokerRates:
    """What happened on one broker between two views."""

    broker: int
    seconds: float
    requests_per_s: Mapping[RequestClass, float]
    messages_in_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    replication_bytes_in_per_s: float
    cpu_cores: float
    disk_written_bytes_per_s: float


def rates(before: BrokerView, after: BrokerView) -> BrokerRates:
    """Rates from two views of one broker. A restart in between sets its counters back to 0."""
    if before.broker != after.broker or after.at_ns <= before.at_ns:
        raise ValueError("rates need two views of one broker, in order of time")
    seconds = (after.at_ns - before.at_ns) / 1e9

    def per_s(later: float, earlier: float) -> float:
        return (later - earlier if later >= earlier else later) / seconds

    def count(view: BrokerView, request: RequestClass) -> int:
        return view.requests[request].total.count if request in view.requests else 0

    then, now = before.process, after.process
    return BrokerRates(
        broker=after.broker,
        seconds=seconds,
        requests_per_s={r: per_s(count(after, r), count(before, r)) for r in RequestClass},
        messages_in_per_s=per_s(after.messages_in, before.messages_in),
        bytes_in_per_s=per_s(after.bytes_in, before.bytes_in),
        bytes_out_per_s=per_s(after.bytes_out, before.bytes_out),
        replication_bytes_in_per_s=per_s(after.replication_bytes_in, before.replication_bytes_in),
        cpu_cores=per_s(now.cpu_s, then.cpu_s) if now and then else 0.0,
        disk_written_bytes_per_s=(
            per_s(now.disk_written_bytes, then.disk_written_bytes) if now and then else 0.0
        ),
    )
