"""The fault `slow-link`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.domain.fault import BrokerFault, Struck
from penstock.domain.network.condition import Link, LinkCondition
from penstock.testbed.broker_faults import target
from penstock.testbed.link_faults import change_links

if TYPE_CHECKING:
    from penstock.testbed.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class SlowLink(BrokerFault):
    """Replaces the condition of every link of the broker, both ways."""

    kind = "slow-link"
    needs_network = True
    condition: LinkCondition

    def strike(self, cluster: Cluster) -> Struck:
        host = target(cluster, self.broker).node.host
        undo = change_links(
            cluster, (Link(src=host, dst="any", both_ways=True, condition=self.condition),)
        )
        return Struck(f"slowed every link of {host}", undo)
