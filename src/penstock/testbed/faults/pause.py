"""The fault `pause`."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.domain.errors import FaultDidNotTake
from penstock.domain.fault import BrokerFault, Struck
from penstock.kafka.waiting import wait_until
from penstock.testbed.broker_faults import running

if TYPE_CHECKING:
    from penstock.testbed.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class Pause(BrokerFault):
    """Pauses the broker (SIGSTOP): its connections stay open but it does not answer."""

    kind = "pause"

    def strike(self, cluster: Cluster) -> Struck:
        process = running(cluster, self.broker)
        process.send(signal.SIGSTOP)
        wait_until(
            lambda: process.is_paused,
            timeout_s=2,
            what=f"{process.node.name} to freeze",
            error=FaultDidNotTake,
        )

        def resume() -> None:
            process.send(signal.SIGCONT)
            wait_until(
                lambda: not process.is_paused, timeout_s=2, what=f"{process.node.name} to thaw"
            )

        return Struck(f"paused {process.node.name}", resume)
