"""The testbed's hosts and the network between them, for a process that builds or uses them."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from penstock.domain.cluster import ROUTER
from penstock.domain.errors import TestbedError
from penstock.domain.network.condition import PERFECT, HostNames, Link, LinkCondition, NetworkSpec
from penstock.specs.files import draft_of
from penstock.testbed.lease import Lease
from penstock.testbed.network import namespaces
from penstock.testbed.network.emulator import (
    Backend,
    Emulator,
    LinkStats,
    choose_backend,
    has_netem,
)
from penstock.testbed.network.encoding import decode, encode
from penstock.testbed.network.netem import NetemEmulator
from penstock.testbed.network.nfqueue import NfqueueEmulator
from penstock.testbed.network.topology import Pair, Topology

STATE_NAME = "network.json"
EMULATORS: dict[Backend, Callable[[Topology], Emulator]] = {
    "netem": NetemEmulator,
    "nfqueue": NfqueueEmulator,
}


class Network:
    """One namespace per host around a router, and the conditions of the links between them.

    Its state lies in the lease's directory, so any process may attach, look and change. Needs no
    teardown: releasing the lease removes namespaces and processes.
    """

    def __init__(self, topology: Topology, names: HostNames, seed: int, backend: Backend) -> None:
        """Use `create` or `attach`."""
        self._topology = topology
        self.names = names
        self._seed = seed
        self.backend = backend
        self._emulator: Emulator = EMULATORS[backend](topology)
        self._state = topology.lease.directory / STATE_NAME

    @classmethod
    def create(cls, lease: Lease, spec: NetworkSpec, hosts: HostNames) -> Network:
        """Build the hosts and put the links into the conditions of `spec`."""
        namespaces.require_root()
        topology = Topology.of(lease, hosts, spec.congestion_control)
        hosts.conditions(spec.links)  # refuses unknown names before anything is made
        namespaces.run_all([namespaces.ip_batch(topology.add_namespaces())])
        backend = choose_backend(spec.backend, lambda: has_netem(topology.router))
        network = cls(topology, hosts, spec.seed, backend)
        # Its start takes longest, so it runs beside the rest.
        network._emulator.start()
        _forward_packets(topology.router)
        namespaces.run_all([namespaces.ip_batch(topology.set_up_router(), topology.router)])
        namespaces.run_all(
            namespaces.ip_batch(topology.set_up_host(host), topology.namespace(host))
            for host in topology.hosts
        )
        network._write({"backend": backend, "changes": 0, "links": []})
        network.set(spec.links)
        return network

    @classmethod
    def attach(cls, lease: Lease, spec: NetworkSpec, hosts: HostNames) -> Network:
        """The network that another process created from the same spec."""
        namespaces.require_root()
        topology = Topology.of(lease, hosts, spec.congestion_control)
        try:
            backend = json.loads((lease.directory / STATE_NAME).read_text())["backend"]
        except FileNotFoundError:
            raise TestbedError(
                f"testbed {lease.id} has no network", "start it with a network section"
            ) from None
        return cls(topology, hosts, spec.seed, backend)

    @property
    def lease(self) -> Lease:
        return self._topology.lease

    @property
    def hosts(self) -> tuple[str, ...]:
        return self._topology.hosts

    def address(self, host: str) -> str:
        return self._topology.address(host)

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """`argv` as a command that runs on the host; its pid is that of `argv`."""
        return namespaces.command(self._topology.namespace(host), argv)

    def inside(self, host: str) -> AbstractContextManager[None]:
        """The calling thread on the host; sockets and threads that it makes there stay there.

        The router is a host too: from it every other one is reached without any condition.
        """
        place = self._topology.router if host == ROUTER else self._topology.namespace(host)
        return namespaces.inside(place)

    @property
    def conditions(self) -> dict[Pair, LinkCondition]:
        """The present condition of every link that was ever given one."""
        return _conditions(self._read())

    def set(self, links: tuple[Link, ...], *, seed: str | None = None) -> None:
        """Change links while traffic flows; in effect when this returns.

        Links not named stay as they are; a perfect condition heals. The links named begin a new
        sequence of random numbers. It follows from the network's seed and the number of changes so
        far, or from `seed`; never from how much traffic there was, so that it can be repeated.
        """
        changed = self.names.conditions(links)
        with self._locked():
            state = self._read()
            before = _conditions(state)
            after = {**before, **changed}
            stream = f"{self._seed}.{state['changes']}" if seed is None else seed
            self._emulator.apply(before, after, dict.fromkeys(changed, stream))
            self._write(
                {
                    **state,
                    "changes": state["changes"] + 1,
                    "links": [[*pair, encode(condition)] for pair, condition in after.items()],
                }
            )

    def replace(self, links: tuple[Link, ...], *, seed: str | None = None) -> None:
        """Put these links into their conditions, and heal all others, in one change."""
        spoiled = {pair: PERFECT for pair, now in self.conditions.items() if now != PERFECT}
        if spoiled or links:
            self.set((*as_links(spoiled), *links), seed=seed)

    def stats(self) -> dict[Pair, LinkStats]:
        """What the links did to packets so far. Raises `TestbedError` if the emulator is dead."""
        return self._emulator.stats()

    def _read(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._state.read_text())
        except FileNotFoundError:
            raise TestbedError(
                f"the network of testbed {self.lease.id} is gone", "was the testbed removed?"
            ) from None
        return state

    def _write(self, state: dict[str, Any]) -> None:
        with draft_of(self._state) as draft:
            draft.write_text(json.dumps(state))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One change at a time, whichever process asks for it."""
        with self._state.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def as_links(conditions: Mapping[Pair, LinkCondition]) -> tuple[Link, ...]:
    """Conditions by pair of hosts, as the links that make them."""
    return tuple(
        Link(src=src, dst=dst, both_ways=False, condition=condition)
        for (src, dst), condition in conditions.items()
    )


def _conditions(state: dict[str, Any]) -> dict[Pair, LinkCondition]:
    return {(src, dst): decode(fields) for src, dst, fields in state["links"]}


def _forward_packets(router: str) -> None:
    settings = Path("/proc/sys/net/ipv4")
    with namespaces.inside(router):
        (settings / "ip_forward").write_text("1")
        # Before the interfaces are made: they inherit the default, which on some systems would drop
        # what comes from an address that is not reached the same way.
        for scope in ("all", "default"):
            (settings / "conf" / scope / "rp_filter").write_text("0")
