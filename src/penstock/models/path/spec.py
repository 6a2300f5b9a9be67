"""What is simulated: clients, topic, links and machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from penstock.domain.errors import BadInput
from penstock.domain.value import Bound, Doc, Value

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ClientName = Literal["librdkafka", "java"]

# librdkafka's default: no limit in practice.
UNLIMITED = 1_000_000


@dataclass(frozen=True)
class Line:
    """One direction of a kind of link: draws of the one-way delay, bytes/s (0: no limit), and the
    share of packets that are lost."""

    delays_s: Floats = field(default_factory=lambda: np.zeros(1))
    rate_bytes_per_s: float = 0.0
    loss: float = 0.0

    @classmethod
    def constant(cls, delay_s: float) -> Line:
        return cls(np.array([delay_s]))


@dataclass(frozen=True)
class Lines:
    """The six directions."""

    to_broker: Line = field(default_factory=Line)
    to_producer: Line = field(default_factory=Line)
    to_follower: Line = field(default_factory=Line)
    to_leader: Line = field(default_factory=Line)
    to_reader: Line = field(default_factory=Line)
    from_reader: Line = field(default_factory=Line)


@dataclass(frozen=True)
class SimulatedMachines:
    """Cores: of one machine that all share, or of each host; 0: as many as needed."""

    cores: int = 0
    is_shared: bool = True


@dataclass(frozen=True, kw_only=True)
class PathSpec(Value):
    """The path of messages, by Kafka's settings. Defaults are librdkafka's."""

    producers: Annotated[int, Bound(ge=1)] = 1
    consumers: Annotated[int, Bound(ge=0)] = 1
    brokers: Annotated[int, Bound(ge=1)] = 3
    partitions: Annotated[int, Bound(ge=1)] = 1
    replication: Annotated[int, Bound(ge=1)] = 3
    client: ClientName = "librdkafka"
    acks: Literal["0", "1", "all"] = "all"
    linger_s: Annotated[float, Bound(ge=0)] = 0.005
    batch_messages: Annotated[int, Bound(ge=1), Doc("batch.num.messages")] = 10_000
    batch_bytes: Annotated[float, Bound(gt=0), Doc("batch.size")] = 1_000_000
    in_flight: Annotated[int, Bound(ge=1), Doc("max.in.flight.requests.per.connection")] = UNLIMITED
    fetch_min_bytes: Annotated[float, Bound(ge=1), Doc("fetch.min.bytes")] = 1
    fetch_wait_s: Annotated[float, Bound(ge=0), Doc("fetch.wait.max.ms, in seconds")] = 0.5
    is_watched: Annotated[
        bool, Doc("a reader beside the brokers watches when messages become readable")
    ] = False
    request_bytes: Annotated[
        float, Bound(ge=0), Doc("of a request beside its batches, and of an answer")
    ] = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            self.replication <= self.brokers, "replication", f"must be at most {self.brokers}"
        )

    @property
    def leaders(self) -> Ints:
        """The leader of each partition: in turn, as Kafka assigns them."""
        return np.arange(self.partitions) % self.brokers

    @property
    def replicas(self) -> npt.NDArray[np.bool_]:
        """Broker × partition: the leader and the brokers after it. (Kafka shifts the others by a
        random number; with as many brokers as replicas it is the same.)"""
        has = np.zeros((self.brokers, self.partitions), np.bool_)
        for step in range(self.replication):
            has[(self.leaders + step) % self.brokers, np.arange(self.partitions)] = True
        return has

    @property
    def readers(self) -> Ints:
        """The consumer of each partition, in ranges, as Kafka's default assigns them; empty: none."""
        if not self.consumers:
            return np.zeros(0, np.int64)
        counts = np.full(self.consumers, self.partitions // self.consumers)
        counts[: self.partitions % self.consumers] += 1
        return np.repeat(np.arange(self.consumers), counts)


@dataclass(frozen=True)
class Arrivals:
    """Messages in the order in which they are due."""

    due_s: Floats
    producer: Ints
    partition: Ints
    size_bytes: Floats

    def __post_init__(self) -> None:
        sizes = {a.size for a in (self.due_s, self.producer, self.partition, self.size_bytes)}
        if len(sizes) != 1:
            raise BadInput("arrivals: the arrays differ in length")
        if np.any(np.diff(self.due_s) < 0):
            raise BadInput("arrivals: they must be in the order in which they are due")
