"""The fault `restart`."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.domain.fault import BrokerFault, Struck
from penstock.testbed.broker_faults import running

if TYPE_CHECKING:
    from penstock.testbed.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class Restart(BrokerFault):
    """Restarts the broker cleanly, as in a rolling upgrade, and waits until it is in sync."""

    kind = "restart"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            self.for_s is None, "for_s", "does not apply to a restart; use `stop` with for_s"
        )

    @property
    def is_undone(self) -> bool:
        return True

    def strike(self, cluster: Cluster) -> Struck:
        process = running(cluster, self.broker)
        process.send(signal.SIGTERM)
        process.wait_ended(90)
        took_s = cluster.start_broker(process.node.id)
        return Struck(
            f"restarted {process.node.name}, in sync again {took_s:.1f} s after its start"
        )
