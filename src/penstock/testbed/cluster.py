"""A real Kafka cluster on this machine, as a context manager: `with Cluster(spec) as cluster:`."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from penstock import specs
from penstock.domain.cluster import ROUTER, ClusterSpec, TopicSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.hosts import host_names
from penstock.domain.network import NetworkSpec
from penstock.domain.progress import Progress, silent
from penstock.domain.value import fitting
from penstock.kafka.connection import KafkaCluster
from penstock.kafka.quotas import set_client_quotas
from penstock.kafka.waiting import wait_until
from penstock.testbed import agent, janitor, lease, nodes, provisioning, security
from penstock.testbed.kafka import HOSTS_FILE, broker_command
from penstock.testbed.lease import Lease
from penstock.testbed.machine import listens
from penstock.testbed.network import namespaces
from penstock.testbed.network.hosts import Network
from penstock.testbed.nodes import Node, SecurityFiles
from penstock.testbed.process import NodeProcess
from penstock.testbed.toolchain import Toolchain, find_toolchain

START_TIMEOUT_S = 120.0
# A full collection of a heap of this size takes a third of a second, on a busy machine longer.
_COLLECTION_S = 30.0


class Cluster(KafkaCluster):
    """Brokers as processes, on loopback or each in its own network namespace.

    Everything it makes carries the mark of its lease and is gone when it stops or its process
    ends, unless it was detached for later commands to attach to.
    """

    is_temporary = True

    def __init__(
        self,
        spec: ClusterSpec | None = None,
        *,
        toolchain: Toolchain | None = None,
        name: str | None = None,
        on_progress: Progress = silent,
    ) -> None:
        super().__init__()
        self.spec = fitting("spec", spec, ClusterSpec | None) or ClusterSpec()
        self.toolchain = toolchain or find_toolchain(os.environ)
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
        """Start the cluster; returns when it is ready. Cleans up if that fails."""
        lease.sweep(self.toolchain.root, self._say)
        provisioning.check(self.spec)
        self._lease = lease.take(self.toolchain.root, name=self._name, owner_pid=os.getpid())
        try:
            self._janitor = janitor.watch(self._lease)
            self._make_network()
            self._make_nodes()
            self._say(f"starting {self.spec.brokers} brokers")
            for process in self._processes.values():
                process.start()
            self._write_state()
            self.wait_ready()
            if self.spec.quotas.bytes_per_s():
                with self.inside():
                    set_client_quotas(self.client_config, self.spec.quotas)
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
        if self._janitor is not None:
            janitor.dismiss(self._janitor)
        self._lease, self._janitor, self.network, self._security = None, None, None, None
        self.nodes, self._processes = (), {}

    def detach(self) -> None:
        """Leave it running when this process ends, for `attach`; `penstock testbed down` ends it."""
        if self._janitor is not None:
            self._janitor.kill()
            self._janitor.wait()
            self._janitor = None
        lease.detach(self.lease)

    @classmethod
    def attach(cls, testbed: Lease, toolchain: Toolchain) -> Self:
        """A detached cluster that another command started."""
        try:
            state = json.loads((testbed.directory / "state.json").read_text())
        except (OSError, ValueError):
            raise TestbedError(
                f"testbed {testbed.name!r} is not complete",
                f"remove it: penstock testbed down {testbed.name}",
            ) from None
        spec = specs.parse(state["spec"], ClusterSpec, source=f"testbed {testbed.name}")
        cluster = cls(spec, toolchain=toolchain, name=testbed.name)
        cluster._lease = testbed
        cluster.nodes = tuple(Node(**node) for node in state["nodes"])
        if spec.security == "sasl_ssl":
            cluster._security = security.load_keys(testbed.directory / "keys")
        if spec.place == "namespaces":
            cluster.network = Network.attach(
                testbed, spec.network or NetworkSpec(), host_names(spec)
            )
        cluster._make_processes()
        for process in cluster._processes.values():
            process.expect_to_run()
        return cluster

    # --- what clients need --------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        return nodes.bootstrap_servers(self.nodes)

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

    # --- processes of a run ---------------------------------------------------------------------

    def client_command(self, role: str, number: int, argv: list[str]) -> list[str]:
        if self.network is None:
            return argv
        if role == "watcher":
            # Beside the brokers: the router reaches them without any condition.
            return namespaces.command(self.lease.namespace(ROUTER), argv)
        names = self.network.names
        hosts = names.producers if role == "producer" else names.consumers
        return self.command_on(hosts[number % len(hosts)], argv)

    @property
    def client_environment(self) -> dict[str, str]:
        # The mark: whatever happens to us, the testbed's janitor finds it.
        return self.lease.environment

    # --- one broker ---------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The directory with all files of this testbed."""
        return self.lease.directory

    @property
    def lease(self) -> Lease:
        if self._lease is None:
            raise TestbedError("the cluster is not started", "use `with Cluster(spec) as cluster:`")
        return self._lease

    @property
    def emulated(self) -> Network:
        """The network; raises on loopback."""
        if self.network is None:
            raise BadInput(
                "this cluster is on loopback and has no network to change",
                "use `place: namespaces` (needs root)",
            )
        return self.network

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(n.id for n in self.nodes if n.is_broker)

    @property
    def broker_pids(self) -> tuple[int, ...]:
        processes = (self.process(number).process for number in self.broker_ids)
        return tuple(process.pid for process in processes if process is not None)

    @property
    def versions(self) -> dict[str, str]:
        jar = next(j.stem for j in self.toolchain.kafka_jars if j.name.startswith("kafka_2"))
        return {"kafka": jar.rpartition("-")[2], "java": self.toolchain.java.version_text}

    def node(self, node_id: int) -> Node:
        return self.process(node_id).node

    def process(self, node_id: int) -> NodeProcess:
        if node_id not in self._processes:
            known = ", ".join(map(str, self._processes))
            raise BadInput(f"there is no broker {node_id}", f"use one of {known}")
        return self._processes[node_id]

    def start_broker(self, node_id: int, timeout_s: float = START_TIMEOUT_S) -> float:
        """Start a node that was stopped or killed; seconds until its replicas are in sync."""
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
        a partition and replicas on every broker is written to and deleted again.
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
        expected = set(self.broker_ids)
        self._await(
            lambda: self.admin.broker_ids() == expected,
            left_s(),
            f"brokers {sorted(expected)} to be registered",
        )
        if probe:
            topic = f"penstock-ready-{self.lease.id}"
            replicas = min(3, len(expected))
            self.create_topic(TopicSpec(name=topic, partitions=len(expected), replication=replicas))
            self.admin.send(topic, partitions=len(expected), messages=len(expected), size_bytes=10)
            self.admin.delete_topic(topic)
        self._await(
            lambda: not self.admin.out_of_sync(),
            left_s(),
            "all replicas to be in sync",
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

    def collect_garbage(self) -> None:
        """A full collection in every broker. The old generation fills with what earlier loads left,
        and the fuller it is, the longer the pauses for the young one take (docs/warm-up.md)."""
        for process in self._processes.values():
            if self.spec.observe and process.is_running and not process.is_paused:
                with self.inside(process.node.host):
                    agent.collect_garbage(process.directory, _COLLECTION_S)

    def check_alive(self) -> None:
        """Raise, with the end of its log, if a broker has died by itself."""
        for process in self._processes.values():
            if process.has_died:
                raise TestbedError(
                    f"{process.node.name} exited unexpectedly; the end of its log:\n"
                    + "\n".join(f"    {line}" for line in process.log_tail().splitlines()),
                    "the first ERROR line names the cause; check `properties` and `heap_mb`",
                )

    # --- making -------------------------------------------------------------------------------

    def _make_network(self) -> None:
        if self.spec.place == "namespaces":
            self._say("building the network")
            self.network = Network.create(
                self.lease, self.spec.network or NetworkSpec(), host_names(self.spec)
            )

    def _make_nodes(self) -> None:
        self._say("formatting storage")
        self.nodes = provisioning.place_nodes(self.spec, self.network)
        if self.spec.security == "sasl_ssl":
            addresses = sorted({node.address for node in self.nodes})
            self._security = security.make_keys(self.directory / "keys", addresses)
        provisioning.write_files(
            self.spec,
            self.toolchain,
            self.lease,
            self.nodes,
            self.network,
            self._security,
            self._environment,
        )
        self._make_processes()

    def _make_processes(self) -> None:
        for node in self.nodes:
            directory = self.directory / node.host
            heap = self.spec.heap_mb if node.is_broker else self.spec.controller_heap_mb
            command = broker_command(
                self.toolchain,
                directory,
                heap,
                self.spec.observe,
                self.directory / HOSTS_FILE if self.network is not None else None,
            )
            self._processes[node.id] = NodeProcess(
                node, directory, self.command_on(node.host, command), self._environment, self.lease
            )

    @property
    def _environment(self) -> dict[str, str]:
        # Two allocation arenas instead of eight per core: 30 MB less for every broker.
        return {"PATH": os.defpath, "MALLOC_ARENA_MAX": "2", **self.lease.environment}

    def _write_state(self) -> None:
        state: Mapping[str, Any] = {
            "spec": specs.to_data(self.spec),
            "nodes": [asdict(node) for node in self.nodes],
            "started_at": time.time(),
        }
        (self.directory / "state.json").write_text(json.dumps(state, indent=2))
