"""Who is connected to whom, and how it is called: names, addresses and numbers of the hosts.

All of it is a pure function of the lease and the list of hosts, so a second process that attaches
to a running testbed computes the same names instead of asking for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.domain.cluster import ROUTER
from penstock.domain.network.condition import HostNames
from penstock.domain.value import FieldError
from penstock.testbed.lease import Lease

HOST_INTERFACE = "eth0"
# A queue number has 16 bits and names an ordered pair of hosts.
MOST_HOSTS = 250

Pair = tuple[str, str]


@dataclass(frozen=True)
class Topology:
    """A star: every host has one interface, and it leads to the router."""

    lease: Lease
    hosts: tuple[str, ...]
    congestion_control: str = "cubic"

    def __post_init__(self) -> None:
        if len(self.hosts) > MOST_HOSTS:
            raise FieldError("hosts", len(self.hosts), f"must be {MOST_HOSTS} or less")

    @classmethod
    def of(cls, lease: Lease, names: HostNames, congestion_control: str) -> Topology:
        return cls(lease, names.all, congestion_control)

    def index(self, host: str) -> int:
        """The host's place in the list: its number in every name and address."""
        try:
            return self._indexes[host]
        except KeyError:
            raise FieldError(
                "host", host, f"is not a host here; use one of {', '.join(self.hosts)}"
            ) from None

    @cached_property
    def _indexes(self) -> dict[str, int]:
        return {host: index for index, host in enumerate(self.hosts)}

    def namespace(self, host: str) -> str:
        self.index(host)
        return self.lease.namespace(host)

    @property
    def router(self) -> str:
        """The router's namespace."""
        return self.lease.namespace(ROUTER)

    def address(self, host: str) -> str:
        return f"10.77.{self.index(host) + 1}.2"

    def gateway(self, host: str) -> str:
        """The router's address as the host sees it."""
        return f"10.77.{self.index(host) + 1}.1"

    def router_interface(self, host: str) -> str:
        """The router's interface towards the host."""
        return f"to{self.index(host) + 1}"

    def link_number(self, pair: Pair) -> int:
        """The link's number: its NFQUEUE queue."""
        src, dst = pair
        return self.index(src) * MOST_HOSTS + self.index(dst)

    def add_namespaces(self) -> str:
        """Lines for `ip -batch`."""
        names = (self.router, *(self.namespace(host) for host in self.hosts))
        return "".join(f"netns add {name}\n" for name in names)

    def set_up_router(self) -> str:
        """Lines for `ip -batch` in the router's namespace."""
        lines = ["link set lo up"]
        for host in self.hosts:
            interface = self.router_interface(host)
            # Made where it belongs: at no moment is anything in the machine's own namespace.
            lines += [
                f"link add {interface} type veth"
                f" peer name {HOST_INTERFACE} netns {self.namespace(host)}",
                f"addr add {self.gateway(host)}/24 dev {interface}",
                f"link set {interface} up",
            ]
        return "\n".join(lines) + "\n"

    def set_up_host(self, host: str) -> str:
        """Lines for `ip -batch` in the host's namespace, after the router's."""
        # The congestion control is set on the route because the sysctl is refused in a namespace
        # on some kernels; a route's choice holds for accepted connections too.
        return (
            "link set lo up\n"
            f"addr add {self.address(host)}/24 dev {HOST_INTERFACE}\n"
            f"link set {HOST_INTERFACE} up\n"
            f"route add default via {self.gateway(host)} congctl {self.congestion_control}\n"
        )
