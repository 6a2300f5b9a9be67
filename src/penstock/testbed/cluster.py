"""A real Kafka cluster on this machine, as a context manager: `with Cluster(spec) as cluster:`."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from penstock import specs
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import BadInput, MissingPart, TestbedError
from penstock.domain.network import NetworkSpec
from penstock.domain.value import FieldError
from penstock.progress import Progress, silent
from penstock.testbed import agent, janitor, lease, nodes, security
from penstock.testbed.connection import KafkaCluster
from penstock.testbed.kafka import LOG_CONFIG, broker_command, format_storage
from penstock.testbed.lease import Lease
from penstock.testbed.machine import available_memory_mb, free_ports, listens, taken_port
from penstock.testbed.network.hosts import Network
from penstock.testbed.network.topology import ROUTER
from penstock.testbed.nodes import Node, SecurityFiles
from penstock.testbed.parts import Parts, find_parts
from penstock.testbed.process import NodeProcess
from penstock.testbed.waiting import wait_until

START_TIMEOUT_S = 120.0


class Cluster(KafkaCluster):
    """Brokers as processes, on loopback or each in a network namespace of its own.

    Everything it makes carries the mark of its lease and is gone when it stops or its process
    ends, unless it was detached for later commands to attach to.
    """

    def __init__(
        self,
        spec: ClusterSpec | None = None,
        *,
        parts: Parts | None = None,
        name: str | None = None,
        on_progress: Progress = silent,
    ) -> None:
        self.spec = spec or ClusterSpec()
        self.parts = parts or find_parts(os.environ)
        self.nodes: tuple[Node, ...] = ()
        self.network: Network | None = None
        self._name = name
        self._say = on_progress
        self._lease: Lease | None = None
        self._security: SecurityFiles | None = None
        self._processes: dict[int, NodeProcess] = {}
        self._janitor: subprocess.Popen[bytes] | None = None

    # --- life ---------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Make the cluster; it returns when it is ready. Leaves nothing behind if that fails."""
        lease.sweep(self.parts.root)
        _check_memory(self.spec)
        _check_links(self.spec)
        if self.spec.place == "namespaces" and os.geteuid() != 0:
            raise MissingPart(
                "brokers on hosts of their own need root",
                "run as root, or use `place: loopback`, which needs no privileges",
            )
        if self.spec.place == "loopback":
            _check_ports(self.spec)
        self._lease = lease.take(self.parts.root, name=self._name, owner_pid=os.getpid())
        try:
            self._janitor = janitor.watch(self._lease)
            self._make_network()
            self._make_nodes()
            self._say(f"starting {self.spec.brokers} brokers")
            for process in self._processes.values():
                process.start()
            self._write_state()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Remove the cluster and all that belongs to it. Its data is thrown away, so no broker
        is asked to shut down in order: that would only take longer."""
        for process in self._processes.values():
            process.end()
        # Their threads hold the network they were made in.
        self._admin = None
        if self._lease is not None:
            lease.release(self._lease)
        if self._janitor is not None and self._janitor.stdin is not None:
            self._janitor.stdin.close()  # finds the directory gone, and goes
            self._janitor.wait()
        self._lease, self._janitor, self.network, self._security = None, None, None, None
        self.nodes, self._processes = (), {}

    def detach(self) -> None:
        """Leave it running when this process ends, for `attach`; `penstock testbed down` ends it."""
        if self._janitor is not None:
            self._janitor.kill()
            self._janitor.wait()
            self._janitor = None
        lease.detach(self.held)

    @classmethod
    def attach(cls, held: Lease, parts: Parts) -> Self:
        """A detached cluster that another command started."""
        try:
            state = json.loads((held.directory / "state.json").read_text())
        except (OSError, ValueError):
            raise TestbedError(
                f"testbed {held.name!r} is not complete",
                f"remove it: penstock testbed down {held.name}",
            ) from None
        spec = specs.parse(state["spec"], ClusterSpec, source=f"testbed {held.name}")
        cluster = cls(spec, parts=parts, name=held.name)
        cluster._lease = held
        cluster.nodes = tuple(Node(**node) for node in state["nodes"])
        if spec.security == "sasl_ssl":
            cluster._security = security.load_keys(held.directory / "keys")
        if spec.place == "namespaces":
            cluster.network = Network.attach(
                held, spec.network or NetworkSpec(), nodes.host_names(spec)
            )
        cluster._make_processes()
        return cluster

    # --- what clients need --------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{n.address}:{n.port}" for n in self.nodes if n.is_broker)

    @property
    def client_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"bootstrap.servers": self.bootstrap_servers}
        if self._security is not None:
            config |= {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": self._security.user,
                "sasl.password": self._security.password,
                "ssl.ca.location": str(self._security.ca_pem),
            }
        return config

    def inside(self, host: str = ROUTER) -> AbstractContextManager[None]:
        """Clients made in this context live on `host`. The router sees an unspoiled network."""
        return self.network.inside(host) if self.network is not None else nullcontext()

    def command_on(self, host: str, argv: list[str]) -> list[str]:
        """The command line that runs `argv` on `host`."""
        return self.network.command(host, argv) if self.network is not None else argv

    # --- one broker ---------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Where everything of this testbed lies while it lives."""
        return self.held.directory

    @property
    def held(self) -> Lease:
        if self._lease is None:
            raise TestbedError("the cluster is not started", "use `with Cluster(spec) as cluster:`")
        return self._lease

    @property
    def emulated(self) -> Network:
        """The network, for what makes no sense without one."""
        if self.network is None:
            raise BadInput(
                "this cluster is on loopback, which has no hosts and no links to change",
                "use `place: namespaces` (needs root)",
            )
        return self.network

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(n.id for n in self.nodes if n.is_broker)

    def node(self, node_id: int) -> Node:
        return self.process(node_id).node

    def process(self, node_id: int) -> NodeProcess:
        if node_id not in self._processes:
            known = ", ".join(map(str, self._processes))
            raise BadInput(f"there is no broker {node_id}", f"use one of {known}")
        return self._processes[node_id]

    def start_broker(self, node_id: int, timeout_s: float = START_TIMEOUT_S) -> float:
        """Start a node that was stopped or killed; seconds until its copies are in sync."""
        process = self.process(node_id)
        began = time.monotonic()
        process.start()
        self._await(
            lambda: self._listening(process.node), timeout_s, f"{process.node.name} to listen"
        )
        if process.node.is_broker:
            self._await(
                lambda: (
                    node_id in self.admin.broker_ids()
                    and not self.admin.out_of_sync(broker=node_id)
                ),
                timeout_s - (time.monotonic() - began),
                f"{process.node.name} to be registered and in sync",
                explain=lambda: "; ".join(self.admin.out_of_sync(broker=node_id)[:5]),
            )
        return time.monotonic() - began

    # --- readiness ----------------------------------------------------------------------------

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S, probe: bool = True) -> float:
        """Wait until every broker is registered and leads or follows its partitions.

        `probe` makes that true of a fresh cluster too, which has no partitions yet: a topic with
        a partition and copies on every broker is written to and deleted again.
        """
        began = time.monotonic()
        self.check_alive()
        if down := [p.node.name for p in self._processes.values() if not p.is_running]:
            raise TestbedError(f"{', '.join(down)} does not run", "start it first")

        def left_s() -> float:
            return max(1.0, timeout_s - (time.monotonic() - began))

        self._await(
            lambda: all(self._listening(node) for node in self.nodes),
            left_s(),
            "every broker to listen",
        )
        wanted = set(self.broker_ids)
        self._await(
            lambda: self.admin.broker_ids() == wanted,
            left_s(),
            f"brokers {sorted(wanted)} to be registered",
        )
        if probe:
            topic = f"penstock-ready-{self.held.id}"
            copies = min(3, len(wanted))
            self.create_topic(TopicSpec(name=topic, partitions=len(wanted), replication=copies))
            self.admin.send(topic, partitions=len(wanted), messages=len(wanted), size_bytes=10)
            self.admin.delete_topic(topic)
        self._await(
            lambda: not self.admin.out_of_sync(),
            left_s(),
            "all copies to be in sync",
            explain=lambda: "; ".join(self.admin.out_of_sync()[:5]),
        )
        return time.monotonic() - began

    def _listening(self, node: Node) -> bool:
        with self.inside():
            return listens(node.address, node.port if node.is_broker else node.controller_port)

    def _await(
        self,
        condition: Callable[[], bool],
        timeout_s: float,
        what: str,
        explain: Callable[[], str] = lambda: "",
    ) -> None:
        def holds() -> bool:
            self.check_alive()
            return condition()

        wait_until(holds, timeout_s=timeout_s, what=what, explain=explain)

    def check_alive(self) -> None:
        """Raise, with the end of its log, if a broker has died by itself."""
        for process in self._processes.values():
            if process.has_died:
                raise TestbedError(
                    f"{process.node.name} ended by itself; the end of its log:\n"
                    + "\n".join(f"    {line}" for line in process.log_tail().splitlines()),
                    "the first ERROR line names the cause; check `properties` and `heap_mb`",
                )

    # --- making -------------------------------------------------------------------------------

    def _make_network(self) -> None:
        if self.spec.place == "namespaces":
            self._say("building the network")
            self.network = Network.create(
                self.held, self.spec.network or NetworkSpec(), nodes.host_names(self.spec)
            )

    def _make_nodes(self) -> None:
        self._say("formatting storage")
        roles = nodes.node_roles(self.spec)
        free: Iterator[int] = iter(())
        if self.network is None:
            count = 3 * len(roles)
            first = self.spec.port
            free = iter(free_ports(count) if first is None else range(first, first + count))
        made = []
        for node_id, is_broker, is_controller in roles:
            if self.network is not None:
                address = self.network.address(nodes.host_name(node_id, is_broker))
                ports = (nodes.CLIENT_PORT, nodes.CONTROLLER_PORT, nodes.AGENT_PORT)
            else:
                address, ports = "127.0.0.1", (next(free), next(free), next(free))
            made.append(Node(node_id, is_broker, is_controller, address, *ports))
        self.nodes = tuple(made)
        if self.spec.security == "sasl_ssl":
            addresses = sorted({n.address for n in self.nodes})
            self._security = security.make_keys(self.directory / "keys", addresses)
        (self.directory / "log4j2.properties").write_text(LOG_CONFIG)
        data = self.directory / "data"
        if self.spec.data_dir is not None:
            data = lease.adopt(self.held, Path(self.spec.data_dir).expanduser().absolute())
        prepared = [self._write_properties(node, data / node.host) for node in self.nodes]
        format_storage(
            self.parts,
            prepared,
            [n.id for n in self.nodes],
            security.scram_argument(self._security) if self._security else None,
            self._environment,
        )
        self._make_processes()

    def _write_properties(self, node: Node, data: Path) -> tuple[Path, Path]:
        directory = self.directory / node.host
        directory.mkdir()
        data.mkdir(parents=True)
        properties = nodes.node_properties(self.spec, node, self.nodes, data, self._security)
        path = directory / "server.properties"
        security.write_private(path, nodes.render_properties(properties).encode())
        agent.write_config(directory, node.agent_port)
        return path, data

    def _make_processes(self) -> None:
        for node in self.nodes:
            directory = self.directory / node.host
            heap = self.spec.heap_mb if node.is_broker else self.spec.controller_heap_mb
            command = broker_command(self.parts, directory, heap, self.spec.observe)
            self._processes[node.id] = NodeProcess(
                node, directory, self.command_on(node.host, command), self._environment
            )

    @property
    def _environment(self) -> dict[str, str]:
        # Two allocation arenas instead of eight per core: 30 MB less for every broker.
        return {"PATH": os.defpath, "MALLOC_ARENA_MAX": "2", **self.held.environment}

    def _write_state(self) -> None:
        state: Mapping[str, Any] = {
            "spec": specs.to_data(self.spec),
            "nodes": [asdict(node) for node in self.nodes],
            "started_at": time.time(),
        }
        # For Kafka's own tools, and for whoever else reads such a file.
        security.write_private(
            self.directory / "client.properties",
            nodes.render_properties(
                nodes.client_properties(self.bootstrap_servers, self._security)
            ).encode(),
        )
        (self.directory / "state.json").write_text(json.dumps(state, indent=2))


def _check_memory(spec: ClusterSpec) -> None:
    available_mb = available_memory_mb()
    if spec.memory_mb > available_mb:
        each = spec.memory_mb / (spec.brokers + spec.controllers)
        raise BadInput(
            f"brokers: {spec.brokers} brokers with a heap of {spec.heap_mb} MB need "
            f"{spec.memory_mb} MB, and {available_mb} MB are free",
            f"use at most {int(available_mb / each)} brokers, or a smaller heap_mb",
        )


def _check_ports(spec: ClusterSpec) -> None:
    if spec.port is None:
        return
    ports = range(spec.port, spec.port + 3 * (spec.brokers + spec.controllers))
    taken = taken_port(ports)
    if taken is not None:
        raise BadInput(
            f"port: {taken} is taken (ports {ports[0]} to {ports[-1]} are needed)",
            "give another `port`, or none: free ones are found then",
        )


def _check_links(spec: ClusterSpec) -> None:
    try:
        nodes.host_names(spec).conditions(spec.network.links if spec.network else ())
    except FieldError as error:
        raise BadInput(f"network.links: {error}") from None
