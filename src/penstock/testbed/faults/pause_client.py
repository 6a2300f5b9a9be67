"""The fault `pause-client`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from penstock.domain.errors import BadInput, FaultDidNotTake
from penstock.domain.fault import Fault, Struck
from penstock.domain.value import Doc
from penstock.kafka.waiting import wait_until

if TYPE_CHECKING:
    from penstock.testbed.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class PauseClient(Fault):
    """Pauses a client of the run (SIGSTOP), like a long garbage collection."""

    kind = "pause-client"
    client: Annotated[str, Doc("producer-1, consumer-2, …: the processes of a run, counted from 1")]

    def check(self, spec: Any) -> None:
        clients = [f"producer-{n + 1}" for n in range(spec.workload.producers)]
        clients += [f"consumer-{n + 1}" for n in range(spec.consumers.count)]
        known = ", ".join(clients)
        self.require(self.client in clients, "client", f"is not a client of the run ({known})")

    def strike(self, cluster: Cluster) -> Struck:
        if self.client not in cluster.clients:
            known = ", ".join(cluster.clients) or "none runs"
            raise BadInput(f"client: {self.client!r} is not a client of this run ({known})")
        process = cluster.clients[self.client]

        def is_paused() -> bool:
            return process.is_running() and process.status() == "stopped"

        if not process.is_running() or is_paused():
            raise FaultDidNotTake(f"{self.client} does not run, so the fault would change nothing")
        process.suspend()
        wait_until(is_paused, timeout_s=2, what=f"{self.client} to freeze", error=FaultDidNotTake)
        return Struck(f"paused {self.client}", process.resume)
