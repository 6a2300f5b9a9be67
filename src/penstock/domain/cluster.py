"""A Kafka cluster and a topic, as somebody asks for them to be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain.client import is_secret
from penstock.domain.network import NetworkSpec
from penstock.domain.value import Bound, Doc, FieldError, Value

# What one broker needs beside its heap (metaspace, code cache, threads, direct buffers), measured
# on JDK 17 with the serial collector under load.
JVM_OVERHEAD_MB = 150

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
class ClusterSpec(Value):
    """A cluster of real KRaft brokers on this machine."""

    brokers: Annotated[int, Bound(ge=1, le=16), Doc("number of brokers")] = 3
    controllers: Annotated[
        int,
        Bound(ge=0, le=7),
        Doc("number of separate controllers; 0: the first three brokers are controllers too"),
    ] = 0
    heap_mb: Annotated[int, Bound(ge=128, le=65_536), Doc("Java heap per broker")] = 384
    place: Annotated[
        Literal["loopback", "namespaces"],
        Doc("loopback: no privileges; namespaces: each broker a host with a network (needs root)"),
    ] = "loopback"
    port: Annotated[
        int | None,
        Bound(ge=1024, le=65_000),
        Doc("first port on loopback, the following ones are used too; free ones if absent"),
    ] = None
    security: Annotated[
        Literal["plaintext", "sasl_ssl"], Doc("sasl_ssl: TLS and SCRAM with keys of this run")
    ] = "plaintext"
    properties: Annotated[
        Mapping[str, str | int | float | bool], Doc("any broker property, by Kafka's name")
    ] = field(default_factory=dict)
    network: Annotated[NetworkSpec | None, Doc("hosts and links, with place: namespaces")] = None
    observe: Annotated[bool, Doc("load the agent that gives the broker's own timings")] = True
    data_dir: Annotated[str | None, Doc("where brokers keep data; temporary if absent")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            self.controllers % 2 == 1 or self.controllers == 0,
            "controllers",
            "must be odd, since an even one adds a voter but survives no further failure",
        )
        _refuse_secrets("properties", self.properties)
        for name in self.properties:
            if name in RESERVED_PROPERTIES:
                raise FieldError(
                    f"properties.{name}",
                    self.properties[name],
                    f"cannot be set here: {RESERVED_PROPERTIES[name]}",
                )
        for name in (
            "default.replication.factor",
            "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor",
        ):
            wanted = str(self.properties.get(name, ""))
            if wanted.isdigit() and int(wanted) > self.brokers:
                raise FieldError(
                    f"properties.{name}",
                    wanted,
                    f"must be at most the number of brokers ({self.brokers})",
                )
        self.require(
            self.network is None or self.place == "namespaces",
            "network",
            "needs `place: namespaces`: there is no network to shape on loopback",
        )

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


def _refuse_secrets(field: str, properties: Mapping[str, object]) -> None:
    for name in properties:
        if is_secret(name):
            raise FieldError(
                f"{field}.{name}",
                "[hidden]",
                "is a secret, and this is stored with runs; `security: sasl_ssl` makes its own keys",
            )


@dataclass(frozen=True, kw_only=True)
class TopicSpec(Value):
    """A topic as it is to be made."""

    name: Annotated[str, Doc("letters, digits, '.', '_' and '-'")]
    partitions: Annotated[int, Bound(ge=1, le=100_000)] = 1
    replication: Annotated[int, Bound(ge=1, le=16), Doc("copies of each partition")] = 1
    config: Annotated[
        Mapping[str, str | int | float | bool], Doc("topic configuration by Kafka's names")
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        good = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        self.require(
            0 < len(self.name) <= 249 and set(self.name) <= good and self.name not in (".", ".."),
            "name",
            "must be 1 to 249 letters, digits, '.', '_' or '-'",
        )
        _refuse_secrets("config", self.config)

    def config_text(self) -> dict[str, str]:
        """The configuration as Kafka takes it: true, not Python's True."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.config.items()
        }

    def check_fits(self, brokers: int) -> None:
        """A topic cannot have more copies than there are brokers."""
        self.require(
            self.replication <= brokers,
            "replication",
            f"must be at most the number of brokers ({brokers})",
        )
