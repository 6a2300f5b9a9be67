"""The fault `cut-link`: a link that drops all packets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from penstock.domain.fault import Fault, Struck
from penstock.domain.network.condition import HostNames, Link, LinkCondition
from penstock.domain.value import Doc
from penstock.testbed.link_faults import change_links

if TYPE_CHECKING:
    from penstock.testbed.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class CutLink(Fault):
    """Drops all packets between two hosts or groups of hosts."""

    kind = "cut-link"
    needs_network = True
    src: Annotated[str, Doc("host or group: broker-1, producers, …")]
    dst: Annotated[str, Doc("host or group")]
    both_ways: bool = True

    @property
    def _link(self) -> Link:
        cut = LinkCondition(cut=True)
        return Link(src=self.src, dst=self.dst, both_ways=self.both_ways, condition=cut)

    def check_hosts(self, hosts: HostNames) -> None:
        hosts.conditions((self._link,))

    def strike(self, cluster: Cluster) -> Struck:
        undo = change_links(cluster, (self._link,))
        return Struck(f"cut the link {self.src} {'↔' if self.both_ways else '→'} {self.dst}", undo)
