"""The nodes of a cluster and the properties each is started with. Pure: it starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.domain.client import property_text
from penstock.domain.cluster import ClusterSpec
from penstock.domain.hosts import host_name

CLIENT_PORT, CONTROLLER_PORT, AGENT_PORT = 9092, 9093, 8778  # where each node has a host of its own


@dataclass(frozen=True)
class Node:
    """One Kafka process: a broker, a controller, or both. A mere controller does not use `port`."""

    id: int
    is_broker: bool
    is_controller: bool
    address: str
    port: int
    controller_port: int
    agent_port: int

    @property
    def host(self) -> str:
        return host_name(self.id, self.is_broker)

    @property
    def name(self) -> str:
        return ("broker" if self.is_broker else "controller") + f" {self.id}"


@dataclass(frozen=True)
class SecurityFiles:
    """Where the keys of this run lie, and the one user they are for."""

    ca_pem: Path
    node_pem: Path
    user: str
    password: str

    def __repr__(self) -> str:
        return f"SecurityFiles({self.ca_pem}, {self.node_pem}, user={self.user!r})"


def node_properties(
    spec: ClusterSpec,
    node: Node,
    nodes: tuple[Node, ...],
    data_dir: Path,
    security: SecurityFiles | None,
) -> dict[str, str]:
    """Everything in one node's `server.properties`."""
    roles = ["broker"] * node.is_broker + ["controller"] * node.is_controller
    listeners = [f"CLIENT://{node.address}:{node.port}"] * node.is_broker
    listeners += [f"CONTROLLER://{node.address}:{node.controller_port}"] * node.is_controller
    voters = [f"{n.id}@{n.address}:{n.controller_port}" for n in nodes if n.is_controller]
    replicas = str(min(3, spec.brokers))
    properties = {
        "process.roles": ",".join(roles),
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data_dir),
        # An automatically created topic hides a typing mistake, and has settings that nobody chose.
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, spec.brokers)),
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": str(min(2, spec.brokers)),
        # 50 by default: too many small logs for brokers that share two cores with their clients.
        "offsets.topic.num.partitions": "10",
        "transaction.state.log.num.partitions": "10",
        # Kafka waits 3 s for more members before the first assignment of an empty group.
        "group.initial.rebalance.delay.ms": "0",
    }
    if node.is_broker:
        properties["inter.broker.listener.name"] = "CLIENT"
    if security is not None:
        properties |= _security_properties(node, security)
    return properties | {name: property_text(value) for name, value in spec.properties.items()}


def _security_properties(node: Node, files: SecurityFiles) -> dict[str, str]:
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.node_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.ca_pem),
        # SCRAM users live in the metadata that the controllers replicate, so the controllers
        # themselves cannot log in by it; they know one another by certificate.
        "listener.name.controller.ssl.client.auth": "required",
    }
    if node.is_broker:
        properties |= {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.client.scram-sha-512.sasl.jaas.config": jaas(files),
        }
    return properties


def jaas(files: SecurityFiles) -> str:
    """The login of the one user, as Kafka's Java code wants it."""
    return (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{files.user}" password="{files.password}";'
    )


def bootstrap_servers(nodes: tuple[Node, ...]) -> str:
    return ",".join(f"{node.address}:{node.port}" for node in nodes if node.is_broker)


def client_properties(bootstrap_servers: str, security: SecurityFiles | None) -> dict[str, str]:
    """A client's configuration in the spelling of Kafka's Java tools."""
    properties = {"bootstrap.servers": bootstrap_servers}
    if security is not None:
        properties |= {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": jaas(security),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(security.ca_pem),
        }
    return properties


def render_properties(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file; no name or value can become a line of its own."""

    def escaped(text: str, special: str) -> str:
        plain = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        return "".join(f"\\{c}" if c in special else c for c in plain)

    return "".join(
        f"{escaped(name, ' =:#!')}={escaped(value, '')}\n"
        for name, value in sorted(properties.items())
    )
