"""The fault `kill`."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.domain.fault import BrokerFault, Struck
from penstock.testbed.broker_faults import running, start_again

if TYPE_CHECKING:
    from penstock.testbed.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class Kill(BrokerFault):
    """Kills the broker (SIGKILL). Undone by starting it again with the same data."""

    kind = "kill"

    def strike(self, cluster: Cluster) -> Struck:
        process = running(cluster, self.broker, or_paused=True)
        process.send(signal.SIGKILL)
        process.wait_ended(10)
        return Struck(f"killed {process.node.name}", lambda: start_again(cluster, process))
