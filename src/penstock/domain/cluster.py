"""Specifications of a Kafka cluster and of a topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain.client import check_properties, property_text
from penstock.domain.network import NetworkSpec
from penstock.domain.value import Bound, Doc, FieldError, Value

# What one broker needs beside its heap (metaspace, code cache, threads, direct buffers), measured
# on JDK 17 with the serial collector under load.
JVM_OVERHEAD_MB = 150

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SECRET_FIX = "is a secret, and this file is stored with runs; `security: sasl_ssl` generates keys"
# The host in the middle of a testbed's network, where no condition applies.
ROUTER = "router"

# Settings that make the testbed what it is; to change them is to ask for something else.
RESERVED_PROPERTIES = {
    "advertised.listeners": "hosts and ports are set by the testbed; see `port`",
    "broker.id": "ids are 1, 2, …; see `brokers`",
    "controller.listener.names": "set by the testbed",
    "controller.quorum.bootstrap.servers": "set by the testbed",
    "controller.quorum.voters": "set by the testbed; see `controllers`",
    "inter.broker.listener.name": "set by the testbed; see `security`",
    "listener.security.protocol.map": "set by the testbed; see `security`",
    "listeners": "hosts and ports are set by the testbed; see `port`",
    "log.dir": "set by the testbed; see `data_dir`",
    "log.dirs": "set by the testbed; see `data_dir`",
    "metadata.log.dir": "set by the testbed; see `data_dir`",
    "node.id": "ids are 1, 2, …; see `brokers`",
    "process.roles": "see `controllers`",
}


@dataclass(frozen=True, kw_only=True)
class ClientQuotas(Value):
    """What a client may send and fetch, in 10⁶ bytes/s *of each broker*, as Kafka counts it.

    Clients with the same client.id share it: all of a run's producers do, and all its consumers.
    Kafka averages over the last 11 s (`quota.window.num`), so a burst after a rest is let through.
    """

    producer_mb_per_s: Annotated[float | None, Bound(gt=0), Doc("producer_byte_rate")] = None
    consumer_mb_per_s: Annotated[float | None, Bound(gt=0), Doc("consumer_byte_rate")] = None

    def bytes_per_s(self) -> dict[str, float]:
        """By Kafka's names; those that are given."""
        limits = {
            "producer_byte_rate": self.producer_mb_per_s,
            "consumer_byte_rate": self.consumer_mb_per_s,
        }
        return {name: rate * 1e6 for name, rate in limits.items() if rate is not None}


@dataclass(frozen=True, kw_only=True)
class ClusterSpec(Value):
    """A cluster of real KRaft brokers on this machine."""

    brokers: Annotated[int, Bound(ge=1, le=16), Doc("number of brokers")] = 3
    controllers: Annotated[
        int,
        Bound(ge=0, le=7),
        Doc("dedicated controllers; 0: the first three brokers act as controllers"),
    ] = 0
    heap_mb: Annotated[int, Bound(ge=128, le=65_536), Doc("Java heap per broker")] = 384
    place: Annotated[
        Literal["loopback", "namespaces"],
        Doc("loopback: no privileges; namespaces: each broker a host with a network (needs root)"),
    ] = "loopback"
    port: Annotated[
        int | None,
        Bound(ge=1024, le=65_000),
        Doc("first of consecutive ports on loopback; default: free ports"),
    ] = None
    security: Annotated[
        Literal["plaintext", "sasl_ssl"], Doc("sasl_ssl: TLS and SCRAM with generated keys")
    ] = "plaintext"
    properties: Annotated[
        Mapping[str, str | int | float | bool], Doc("any broker property, by Kafka's name")
    ] = field(default_factory=dict)
    quotas: Annotated[ClientQuotas, Doc("client quotas of Kafka")] = field(
        default_factory=ClientQuotas
    )
    network: Annotated[NetworkSpec | None, Doc("hosts and links, with place: namespaces")] = None
    observe: Annotated[bool, Doc("load the agent that gives the broker's own timings")] = True
    data_dir: Annotated[
        str | None, Doc("where brokers keep data; default: a temporary directory")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        fix = "must be odd: an even number tolerates no more failures"
        self.require(self.controllers % 2 == 1 or self.controllers == 0, "controllers", fix)
        check_properties("properties", self.properties, _SECRET_FIX, RESERVED_PROPERTIES)
        for name in (
            "default.replication.factor",
            "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor",
        ):
            replicas = str(self.properties.get(name, ""))
            if replicas.isdigit() and int(replicas) > self.brokers:
                fix = f"must be at most the number of brokers ({self.brokers})"
                raise FieldError(f"properties.{name}", replicas, fix)
        fix = "needs `place: namespaces`: there is no network to shape on loopback"
        self.require(self.network is None or self.place == "namespaces", "network", fix)

    @property
    def controller_heap_mb(self) -> int:
        """A controller holds the metadata only."""
        return min(self.heap_mb, 256)

    @property
    def memory_mb(self) -> int:
        """What the whole cluster will need."""
        return self.brokers * (self.heap_mb + JVM_OVERHEAD_MB) + self.controllers * (
            self.controller_heap_mb + JVM_OVERHEAD_MB
        )


@dataclass(frozen=True, kw_only=True)
class TopicSpec(Value):
    """A topic to be created."""

    name: Annotated[str, Doc("letters, digits, '.', '_' and '-'")]
    partitions: Annotated[int, Bound(ge=1, le=100_000)] = 1
    replication: Annotated[int, Bound(ge=1, le=16), Doc("replicas of each partition")] = 1
    config: Annotated[
        Mapping[str, str | int | float | bool], Doc("topic configuration by Kafka's names")
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        is_good = bool(_TOPIC.fullmatch(self.name)) and self.name not in (".", "..")
        self.require(is_good, "name", "must be 1 to 249 letters, digits, '.', '_' or '-'")
        check_properties("config", self.config, _SECRET_FIX)

    def config_text(self) -> dict[str, str]:
        """The configuration as Kafka takes it."""
        return {name: property_text(value) for name, value in self.config.items()}

    def check_fits(self, brokers: int) -> None:
        """A topic cannot have more replicas than there are brokers."""
        fix = f"must be at most the number of brokers ({brokers})"
        self.require(self.replication <= brokers, "replication", fix)
