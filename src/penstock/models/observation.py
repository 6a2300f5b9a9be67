"""What a fit uses of a run: its spec, its latencies, and what machines did meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.broker_view import BrokerRates, RequestClass
from penstock.domain.run import RunSpec
from penstock.domain.value import Bound, Doc, Value


@dataclass(frozen=True, kw_only=True)
class MeasuredLatency(Value):
    """A measured distribution."""

    count: int
    mean_ms: float
    percentiles_ms: Annotated[Mapping[str, float], Doc("'10', '50', '99', …")]


@dataclass(frozen=True, kw_only=True)
class BrokerWork(Value):
    """What all brokers together did per second."""

    cores: Annotated[float, Doc("CPU seconds per second")]
    requests_per_s: Annotated[Mapping[str, float], Doc("Produce, FetchFollower, FetchConsumer")]
    local_ms: Annotated[
        Mapping[str, float], Doc("mean time to handle a request of the class: append or read")
    ]
    bytes_in_per_s: Annotated[float, Doc("of record batches, from producers")]
    collections_per_s: Annotated[float, Doc("of young generations")] = 0.0
    collection_ms: Annotated[float | None, Doc("mean of one; none if there was none")] = None
    young_bytes: Annotated[int, Doc("of one broker's young generation; 0: not known")] = 0

    @classmethod
    def of(cls, rates: Mapping[int, BrokerRates], young_bytes: int = 0) -> BrokerWork:
        """The sum over brokers."""
        every = list(rates.values())
        per_s = {str(kind): sum(one.requests[kind].per_s for one in every) for kind in RequestClass}
        collections_per_s = sum(one.collections_per_s for one in every)
        pauses_ms = sum(one.collections_per_s * (one.collection_ms or 0.0) for one in every)
        return cls(
            cores=sum(one.cpu_cores for one in every),
            requests_per_s=per_s,
            local_ms={
                str(kind): sum(
                    one.requests[kind].per_s * (one.requests[kind].local_ms or 0.0) for one in every
                )
                / per_s[str(kind)]
                for kind in RequestClass
                if per_s[str(kind)]
            },
            bytes_in_per_s=sum(one.bytes_in_per_s for one in every),
            collections_per_s=collections_per_s,
            collection_ms=pauses_ms / collections_per_s if collections_per_s else None,
            young_bytes=young_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class MeasuredSending(Value):
    """What producers achieved that always had more to send."""

    run: Annotated[str, Doc("id of the run")]
    spec: RunSpec
    messages_per_s: Annotated[float, Bound(gt=0), Doc("acknowledged, of all producers")]
    request_messages: Annotated[float, Bound(gt=0), Doc("mean, by the producers' counters")]
    request_bytes: Annotated[float, Bound(gt=0), Doc("mean, by the producers' counters")]

    @property
    def interval_s(self) -> float:
        """Between two requests of a connection: one per producer and broker that leads a partition."""
        leading = min(self.spec.topic.partitions, self.spec.cluster.brokers)
        connections = self.spec.workload.producers * leading
        return connections * self.request_messages / self.messages_per_s


@dataclass(frozen=True, kw_only=True)
class MeasuredReading(Value):
    """What one consumer achieved that always had more to read."""

    run: Annotated[str, Doc("name of the measurement")]
    message_bytes: Annotated[int, Bound(ge=0), Doc("of a value; there were no keys")]
    partitions: Annotated[int, Bound(ge=1)]
    messages_per_s: Annotated[float, Bound(gt=0)]
    fetch_messages: Annotated[float, Bound(gt=0), Doc("mean per fetch, by the client's counters")]
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str | int | float] = field(default_factory=dict)

    @property
    def interval_s(self) -> float:
        """Between two answers, of whichever broker."""
        return self.fetch_messages / self.messages_per_s


@dataclass(frozen=True, kw_only=True)
class Observation(Value):
    """One run, as a model sees it."""

    run: Annotated[str, Doc("id of the run")]
    spec: RunSpec
    messages_per_s: float
    latencies: Annotated[
        Mapping[str, MeasuredLatency], Doc("produce, end_to_end, and commit if it was watched")
    ]
    parts_ms: Annotated[
        Mapping[str, float],
        Doc("mean of each part of the end-to-end latency: until appended, until visible, fetch"),
    ] = field(default_factory=dict)
    produce_requests_per_s: Annotated[float | None, Doc("of all producers, by their counters")] = (
        None
    )
    sent_bytes_per_message: Annotated[float | None, Doc("by the producers' counters")] = None
    compression_ratio: Annotated[
        float, Bound(gt=0), Doc("bytes of records over what they are compressed to")
    ] = 1.0
    producer_cores: Annotated[float | None, Doc("of all producers")] = None
    consumer_cores: Annotated[float | None, Doc("of all consumers")] = None
    brokers: Annotated[BrokerWork | None, Doc("none without a view of the brokers")] = None
    is_local: Annotated[bool, Doc("the brokers shared one machine with the clients")] = True
    cluster: Annotated[str, Doc("of one that is not: its bootstrap servers")] = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str | int | float] = field(default_factory=dict)
