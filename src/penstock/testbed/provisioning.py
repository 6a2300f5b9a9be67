"""What comes before the first broker starts: checks of the machine, places for nodes, their files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput, MissingPart
from penstock.domain.hosts import host_name, host_names, node_roles
from penstock.domain.value import FieldError
from penstock.testbed import agent, lease, nodes, security
from penstock.testbed.kafka import HOSTS_FILE, LOG_CONFIG, LOG_CONFIG_FILE, format_storage
from penstock.testbed.lease import Lease
from penstock.testbed.machine import available_memory_mb, free_ports, taken_port
from penstock.testbed.network.hosts import Network
from penstock.testbed.nodes import Node, SecurityFiles
from penstock.testbed.toolchain import Toolchain


def check(spec: ClusterSpec) -> None:
    """Refuse, before anything is made, what cannot work on this machine."""
    _check_memory(spec)
    _check_links(spec)
    if spec.place == "namespaces" and os.geteuid() != 0:
        raise MissingPart(
            "`place: namespaces` needs root",
            "run as root, or use `place: loopback`, which needs no privileges",
        )
    if spec.place == "loopback" and spec.port is not None:
        _check_ports(_ports(spec, spec.port))


def place_nodes(spec: ClusterSpec, network: Network | None) -> tuple[Node, ...]:
    """An address and ports for every node."""
    roles = node_roles(spec)
    if network is not None:
        own = (nodes.CLIENT_PORT, nodes.CONTROLLER_PORT, nodes.AGENT_PORT)
        return tuple(
            Node(i, broker, controller, network.address(host_name(i, broker)), *own)
            for i, broker, controller in roles
        )
    ports: Iterator[int] = iter(
        free_ports(3 * len(roles)) if spec.port is None else _ports(spec, spec.port)
    )
    return tuple(
        Node(i, broker, controller, "127.0.0.1", next(ports), next(ports), next(ports))
        for i, broker, controller in roles
    )


def write_files(
    spec: ClusterSpec,
    toolchain: Toolchain,
    testbed: Lease,
    placed: tuple[Node, ...],
    network: Network | None,
    keys: SecurityFiles | None,
    environment: Mapping[str, str],
) -> None:
    """Everything on disk that the nodes are started with, formatted storage included."""
    (testbed.directory / LOG_CONFIG_FILE).write_text(LOG_CONFIG)
    if network is not None:
        lines = [f"{network.address(host)} {host}\n" for host in network.hosts]
        (testbed.directory / HOSTS_FILE).write_text("127.0.0.1 localhost\n" + "".join(lines))
    data = testbed.directory / "data"
    if spec.data_dir is not None:
        data = lease.adopt(testbed, Path(spec.data_dir).expanduser().absolute())
    prepared = []
    for node in placed:
        directory, node_data = testbed.directory / node.host, data / node.host
        directory.mkdir()
        node_data.mkdir(parents=True)
        properties = nodes.node_properties(spec, node, placed, node_data, keys)
        file = directory / "server.properties"
        security.write_private(file, nodes.render_properties(properties).encode())
        agent.write_config(directory, node.agent_port)
        prepared.append((file, node_data))
    scram = security.scram_argument(keys) if keys is not None else None
    format_storage(toolchain, prepared, [node.id for node in placed], scram, environment)
    # For Kafka's own tools and others that read such a file.
    servers = nodes.bootstrap_servers(placed)
    text = nodes.render_properties(nodes.client_properties(servers, keys))
    security.write_private(testbed.directory / "client.properties", text.encode())


def _ports(spec: ClusterSpec, first: int) -> range:
    return range(first, first + 3 * (spec.brokers + spec.controllers))


def _check_memory(spec: ClusterSpec) -> None:
    available_mb = available_memory_mb()
    if spec.memory_mb > available_mb:
        node_mb = spec.memory_mb / (spec.brokers + spec.controllers)
        raise BadInput(
            f"brokers: {spec.brokers} brokers with a heap of {spec.heap_mb} MB need "
            f"{spec.memory_mb} MB, but {available_mb} MB are free",
            f"use at most {int(available_mb / node_mb)} brokers, or a smaller heap_mb",
        )


def _check_ports(ports: range) -> None:
    taken = taken_port(ports)
    if taken is not None:
        raise BadInput(
            f"port: {taken} is in use (ports {ports[0]} to {ports[-1]} are needed)",
            "set another `port`, or omit it to use free ports",
        )


def _check_links(spec: ClusterSpec) -> None:
    try:
        host_names(spec).conditions(spec.network.links if spec.network else ())
    except FieldError as error:
        raise BadInput(f"network.links: {error}") from None
