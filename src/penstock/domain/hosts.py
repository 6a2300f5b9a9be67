"""The hosts of a testbed: brokers, controllers and clients, by name. Pure."""

from __future__ import annotations

from penstock.domain.cluster import ClusterSpec
from penstock.domain.network.condition import HostNames

FIRST_CONTROLLER_ID = 101


def host_name(node_id: int, is_broker: bool) -> str:
    return f"{'broker' if is_broker else 'controller'}-{node_id}"


def node_roles(spec: ClusterSpec) -> list[tuple[int, bool, bool]]:
    """(id, is a broker, is a controller) of every node."""
    # Three voters survive the loss of one; two would survive none and be slower than one.
    combined = 0 if spec.controllers else (3 if spec.brokers >= 3 else 1)
    brokers = [(i, True, i <= combined) for i in range(1, spec.brokers + 1)]
    ids = range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + spec.controllers)
    return brokers + [(i, False, True) for i in ids]


def host_names(spec: ClusterSpec) -> HostNames:
    """The hosts that the cluster and its clients live on, if each has one."""
    producers = spec.network.producers if spec.network else 1
    consumers = spec.network.consumers if spec.network else 1
    return HostNames(
        brokers=tuple(host_name(i, True) for i, broker, _ in node_roles(spec) if broker),
        controllers=tuple(host_name(i, False) for i, broker, _ in node_roles(spec) if not broker),
        producers=tuple(f"producer-{i}" for i in range(1, producers + 1)),
        consumers=tuple(f"consumer-{i}" for i in range(1, consumers + 1)),
    )
