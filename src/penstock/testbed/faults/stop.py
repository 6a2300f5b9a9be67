"""The fault `stop`."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.domain.fault import BrokerFault, Struck
from penstock.testbed.broker_faults import running, start_again

if TYPE_CHECKING:
    from penstock.testbed.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class Stop(BrokerFault):
    """Shuts the broker down cleanly (SIGTERM): leadership moves first. Undone by starting it."""

    kind = "stop"

    def strike(self, cluster: Cluster) -> Struck:
        process = running(cluster, self.broker)
        process.send(signal.SIGTERM)
        took_s = process.wait_ended(90)
        return Struck(
            f"stopped {process.node.name} cleanly in {took_s:.1f} s",
            lambda: start_again(cluster, process),
        )
